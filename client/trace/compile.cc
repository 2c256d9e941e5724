// Compiles traced programs. InProgram, jit, stages and debug_nans call CompileTraced. CompileTraced
// also tells visualize and inspect_array_sharding where their values lie, and checks the
// replication budget.
#include "client/trace/compile.h"

#include <algorithm>
#include <utility>

#include "client/error.h"
#include "client/trace/prints.h"
#include "client/trace/strict.h"

namespace tessera::internal {

PlanView PlanViewOf(const ir::Program& program, const api::CompileReply& plan, const Site& site) {
  PlanView view = OrThrow(MakePlanView(program, plan.explain_json), site);
  view.devices = plan.devices;
  for (const auto* specs : {&plan.in, &plan.out})
    if (view.devices.empty() && !specs->empty()) view.devices = (*specs)[0].placement.devices;
  if (static_cast<int64_t>(view.devices.size()) != view.mesh.num_devices()) view.devices.clear();
  return view;
}

PlanView PlanViewOf(const TracedProgram& traced, const api::CompileReply& plan, const Site& site) {
  return PlanViewOf(SplitPrints(traced.program, site).program, plan, site);
}

std::vector<InspectedValue> PlacementsOf(const PlanView& view, const Inspection& inspection) {
  std::vector<InspectedValue> out;
  for (const PlanView::Op& op : view.ops) {
    if (op.name != inspection.name) continue;
    for (const PlanArray& value : op.values) {
      InspectedValue inspected{value.type, {view.mesh, value.spec, view.devices}, op.manual};
      const bool is_new = std::none_of(out.begin(), out.end(), [&](const InspectedValue& other) {
        return other.type == inspected.type && other.placement == inspected.placement &&
               other.manual == inspected.manual;
      });
      if (is_new) out.push_back(std::move(inspected));
    }
  }
  return out;
}

void ReportInspections(const TracedProgram& traced, const api::CompileReply& plan,
                       const Site& site) {
  if (traced.inspections.empty()) return;
  const PlanView view = PlanViewOf(traced, plan, site);
  for (const Inspection& inspection : traced.inspections)
    for (const InspectedValue& value : PlacementsOf(view, inspection)) inspection.report(value);
}

std::shared_ptr<const Session::Executable> CompileTraced(Session& session,
                                                         const TracedProgram& traced,
                                                         const std::string& name, bool with_plan,
                                                         const Site& site) {
  const SentProgram sent = SplitPrints(traced.program, site);
  std::shared_ptr<const Session::Executable> executable =
      session.Compile(sent.program, traced.mesh.devices, name,
                      with_plan || !traced.inspections.empty() || HasReplicationBudget(), site);
  CheckReplication(traced, executable->reply, name, site);
  ReportInspections(traced, executable->reply, site);
  if (!sent.prints) return executable;
  auto printing = std::make_shared<Session::Executable>(*executable);
  printing->prints = sent.prints;
  printing->num_printed = sent.num_printed;
  return printing;
}

}  // namespace tessera::internal
