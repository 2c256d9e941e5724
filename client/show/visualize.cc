// Joins the tracer, the planner's explanation and the drawing code (picture.h): users ask for
// pictures of arrays and plans here. A picture inside a traced function is an inspection, which
// CompileTraced (client/trace/compile.h) answers.
#include "client/show/visualize.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/plan/plan_view.h"
#include "client/show/display.h"
#include "client/show/explicit_text.h"
#include "client/show/picture.h"
#include "client/trace/array_state.h"
#include "client/trace/compile.h"
#include "client/trace/prints.h"

namespace tessera {
namespace internal {
namespace {

Display WithoutColors() {
  Display display;
  display.unicode = true;
  return display;
}

// Returns the array that is drawn for a value. If the value varies over Manual axes, the array has
// a new first dim, with one element for each place along these axes.
PlanArray ArrayToDraw(const InspectedValue& value, const Site& site) {
  PlanArray array{site.ToString(), value.type, value.placement.spec};
  if (value.type.varying.empty()) {
    if (!value.manual.empty())
      absl::StrAppend(&array.name, " in shard_map over ", absl::StrJoin(value.manual, ", "));
    return array;
  }
  ir::AxisList varying_axes;
  for (const std::string& axis : value.manual)
    if (value.type.varying.count(axis) > 0) varying_axes.push_back(axis);
  absl::StrAppend(&array.name, ", the shards along ", absl::StrJoin(varying_axes, ", "), ":");
  array.type.varying.clear();
  array.type.shape.insert(array.type.shape.begin(), value.placement.mesh.SizeOf(varying_axes));
  array.spec.dims.insert(array.spec.dims.begin(), varying_axes);
  return array;
}

PlanView ViewOf(const api::Placement& placement) {
  PlanView view;
  view.mesh = placement.mesh;
  view.devices = placement.devices;
  return view;
}

// Returns an array for the drawing code, with its mesh and devices as a PlanView. Throws if the
// array has no placement.
std::pair<PlanView, PlanArray> ViewAndArrayOf(const Array& x, const Site& site) {
  const api::Placement* const placement = x.valid() ? PlacementOf(x) : nullptr;
  if (!placement) ThrowNotReadable("visualize", x, site);
  return {ViewOf(*placement), PlanArray{"", x.type(), placement->spec}};
}

PlanView ViewOf(const LoweredCall& call) {
  const std::shared_ptr<Session> session =
      call.session ? call.session : Session::Default(call.site);
  const auto executable =
      session->Compile(SplitPrints(call.traced.program, call.site).program,
                       call.traced.mesh.devices, call.name, /*explain=*/true, call.site);
  PlanView view = PlanViewOf(call.traced, executable->reply, call.site);
  for (const Inspection& inspection : call.traced.inspections)
    for (const InspectedValue& value : PlacementsOf(view, inspection))
      view.inspected.push_back(ArrayToDraw(value, inspection.site));
  return view;
}

}  // namespace

std::string PlanPictureOf(const LoweredCall& call) {
  return PlanPicture(ViewOf(call), Display::OfProcess());
}
std::string PlanTextOf(const LoweredCall& call) {
  return PlanPicture(ViewOf(call), WithoutColors());
}
std::string PlanSvgOf(const LoweredCall& call) { return SvgOf(ViewOf(call)); }
std::string PlanTextOf(const ir::Program& program, const api::CompileReply& plan) {
  return PlanPicture(PlanViewOf(program, plan, Site{}), WithoutColors());
}
std::string PlanSvgOf(const ir::Program& program, const api::CompileReply& plan) {
  return SvgOf(PlanViewOf(program, plan, Site{}));
}
std::string ExplicitTextOf(const LoweredCall& call) { return ExplicitText(ViewOf(call)); }

void PrintToStdout(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace internal

void visualize(const Array& x, Site site) {
  if (x.is_traced()) {
    const auto print_picture = [site](const internal::InspectedValue& value) {
      internal::PrintToStdout(internal::PlacementPicture(internal::ViewOf(value.placement),
                                                         internal::ArrayToDraw(value, site),
                                                         internal::Display::OfProcess()));
    };
    internal::Inspect(x, print_picture, site);
    return;
  }
  const auto [view, array] = internal::ViewAndArrayOf(x, site);
  internal::PrintToStdout(internal::PlacementPicture(view, array, internal::Display::OfProcess()));
}

std::string visualize_text(const Array& x, Site site) {
  const auto [view, array] = internal::ViewAndArrayOf(x, site);
  return internal::PlacementPicture(view, array, internal::WithoutColors());
}
std::string visualize_svg(const Array& x, Site site) {
  const auto [view, array] = internal::ViewAndArrayOf(x, site);
  return internal::SvgOf(view, {array});
}

void inspect_array_sharding(const Array& x, std::function<void(const api::Placement&)> callback,
                            Site site) {
  if (x.is_traced()) {
    internal::Inspect(
        x, [callback](const internal::InspectedValue& value) { callback(value.placement); }, site);
    return;
  }
  internal::ViewAndArrayOf(x, site);  // throws if the array has no placement
  callback(*internal::PlacementOf(x));
}

}  // namespace tessera
