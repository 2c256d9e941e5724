// The tracer: keeps this thread's stack of frames, and turns what the SDK's ops emit into functions
// and programs. Ops come from Apply (client/apply/apply.h), which lifts their operands into the
// innermost frame; the transforms record whole functions.
#include "client/trace/trace.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status_exception.h"
#include "ir/inspected.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

thread_local std::vector<std::shared_ptr<Frame>> frames;
// Inspections in functions that have been traced but are not yet part of a program.
thread_local std::vector<Inspection> inspections;
// bounds `inspections`, because some traced functions never become part of a program
constexpr size_t kInspectionsMax = 10'000;

// Pushes a frame; closes and pops it in its destructor.
class FrameScope {
 public:
  FrameScope(const ir::Scope& scope, std::string name)
      : frame_(std::make_shared<Frame>(scope, std::move(name))) {
    frame_->parent = frames.empty() ? nullptr : frames.back().get();
    frames.push_back(frame_);
  }
  ~FrameScope() {
    frame_->open = false;
    frames.pop_back();
  }
  const std::shared_ptr<Frame>& frame() const { return frame_; }

 private:
  std::shared_ptr<Frame> frame_;
};

bool Encloses(const Frame* outer, const Frame* inner) {
  for (const Frame* f = inner; f; f = f->parent) {
    if (f == outer) return true;
  }
  return false;
}

// Returns a captured value's type inside `frame`, without the axes that are Auto there. Throws, as
// JAX does, if an axis that shards the value is Manual there.
Type TypeInside(const Type& type, const Frame& frame, const Site& site) {
  for (const ir::AxisList& axes : type.sharding) {
    for (const std::string& axis : axes) {
      if (frame.builder.mesh().IsManual(axis)) {
        ThrowError(ErrorKind::kNotImplemented, site,
                   "Closing over inputs to shard_map where the input is sharded on "
                   "Explicit axes is not implemented: the captured array has type ",
                   type.ToString(), " and axis '", axis,
                   "' is Manual here. Pass it as an argument with an in_spec");
      }
    }
  }
  const ir::Mesh& mesh = frame.builder.mesh();
  Type inside = type;
  for (ir::AxisList& axes : inside.sharding) {
    std::erase_if(axes, [&](const std::string& axis) {
      return mesh.Has(axis) && mesh.TypeOf(axis) == AxisType::kAuto;
    });
  }
  ir::Normalize(&inside);
  return inside;
}

ir::Value Capture(Frame& frame, const Array& a, const std::pair<const void*, int64_t>& key,
                  const Site& site) {
  auto [it, added] = frame.capture_index.try_emplace(key, static_cast<int>(frame.captures.size()));
  if (added) {
    try {
      frame.capture_params.push_back(frame.builder.Param(TypeInside(a.type(), frame, site)));
    } catch (...) {
      frame.capture_index.erase(it);
      throw;
    }
    frame.captures.push_back(a);
  }
  return frame.capture_params[it->second];
}

// Returns the program's mesh: the context mesh, or else the mesh of the arrays.
Mesh ProgramMesh(const std::vector<Array>& inputs) {
  if (!context_mesh().empty()) return context_mesh();
  for (const Array& a : inputs) {
    if (const api::Placement* placed = PlacementOf(a); placed && !placed->mesh.empty())
      return {placed->mesh, placed->devices};
  }
  return {};
}

// Throws unless the array can be used in the frame's program.
void CheckMeshOf(const Array& a, const Frame& frame, const Site& site) {
  const ir::Mesh& mesh = frame.builder.mesh();
  const api::Placement* const placed = PlacementOf(a);
  if (!placed || placed->mesh.empty() || placed->mesh.SameShape(mesh)) return;
  const Frame* root = &frame;
  while (root->parent) root = root->parent;
  if (root->builder.mesh().empty()) throw RetraceWithMesh{{placed->mesh, placed->devices}};
  if (a.type().is_sharded() && !context_mesh().empty()) {
    ThrowError(ErrorKind::kValueError, site, "context mesh ", context_mesh().ToString(),
               " should match the aval mesh ", placed->mesh.ToString(), " of an array of type ",
               a.type().ToString(),
               ". Put the array on the context mesh first, or leave the context");
  }
  if (a.type().is_sharded()) {
    ThrowError(ErrorKind::kValueError, site,
               "Mesh for all inputs should be equal: the context mesh ", mesh.ToString(),
               ", or the mesh of the other arrays, should match the mesh ", placed->mesh.ToString(),
               " of an array of type ", a.type().ToString(), ". Put all arrays on one mesh first");
  }
}

// Returns the sharding of an argument, which the planner must keep, or nullopt if the planner
// chooses.
std::optional<PartitionSpec> InSharding(const Array& a, const ir::Mesh& mesh) {
  const api::Placement* const placed = PlacementOf(a);
  if (!placed || mesh.empty() || placed->mesh.empty() || !placed->mesh.SameShape(mesh)) {
    return std::nullopt;
  }
  PartitionSpec spec;
  for (const ir::AxisList& axes : placed->spec.dims) {
    ir::AxisList kept;
    for (const std::string& axis : axes) {
      if (mesh.TypeOf(axis) != AxisType::kManual) kept.push_back(axis);
    }
    spec.dims.push_back(std::move(kept));
  }
  return spec;
}

// The last results of `f`, one for each of `names`, are values to be marked by an op with that
// name. Returns `f` with the marks and without these results.
ir::FunctionRef MarkInspected(const ir::Function& f, const std::vector<std::string>& names) {
  const size_t num_results = f.results.size() - names.size();
  ir::Builder b(f.scope, f.name);
  std::vector<ir::Value> env(f.types.size());
  const auto define = [&](ir::ValueId id, ir::Value v) {
    for (size_t i = 0; i < names.size(); ++i)
      if (f.results[num_results + i] == id) v = ir::CheckpointName(v, names[i]);
    env[id] = v;
  };
  for (ir::ValueId p = 0; p < f.num_params; ++p) define(p, b.Param(f.types[p]));
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const ir::Op& op = f.ops[i];
    ir::SiteScope site(b, f.sites[i]);
    const std::vector<ir::Value> out =
        b.Emit(*op.def, ir::ElementsAt(env, op.operands), op.attrs, op.regions);
    for (size_t r = 0; r < out.size(); ++r) define(op.results[r], out[r]);
  }
  std::vector<ir::Value> results = ir::ElementsAt(env, f.results);
  results.resize(num_results);
  return b.Build(results);
}

// Closes the frame and returns its function.
ir::FunctionRef BuildFunction(Frame& frame, const std::vector<Array>& results, const Site& site) {
  std::vector<ir::Value> values;
  for (const Array& r : results) {
    if (!r.valid()) {
      ThrowError(ErrorKind::kTypeError, site,
                 "the traced function returned an Array without a value (default-constructed)");
    }
    values.push_back(Lift(r, site));
  }
  frame.open = false;
  std::vector<std::string> names;
  for (const auto& [value, name] : frame.inspected) {
    values.push_back(value);
    names.push_back(name);
  }
  ir::FunctionRef f = frame.builder.Build(values);
  return names.empty() ? f : MarkInspected(*f, names);
}

}  // namespace

Frame* CurrentFrame() { return frames.empty() ? nullptr : frames.back().get(); }

ir::Scope CurrentScope() {
  if (Frame* f = CurrentFrame()) return f->builder.scope();
  return ir::Scope{context_mesh().logical, true};
}

Array Wrap(const std::shared_ptr<Frame>& frame, ir::Value v) {
  auto state = std::make_shared<TracedState>(v.type());
  state->frame = frame;
  state->value = v;
  return Array(std::move(state));
}
Array Wrap(ir::Value v) { return Wrap(frames.back(), v); }

ir::Value Lift(const Array& a, const Site& site) {
  Frame& frame = *frames.back();
  ThrowIfNoValue(a, site);
  if (const TracedState* t = AsTraced(a)) {
    if (t->frame.get() == &frame) return t->value;
    if (!t->frame->open || !Encloses(t->frame.get(), &frame)) {
      ThrowError(ErrorKind::kTypeError, site, "leaked tracer: a traced array of type ",
                 a.type().ToString(),
                 " is used outside the function it belongs to, which has ended. "
                 "Return it from that function instead of storing it");
    }
    return Capture(frame, a, {t->frame.get(), t->value.id()}, site);
  }
  if (const ConcreteState* c = AsConcrete(a)) {
    if (QueryDeleted(*c, site)) ThrowDeleted("", a, site);
    CheckMeshOf(a, frame, site);
    return Capture(frame, a, {c, -1}, site);
  }
  if (const NumberState* n = AsNumber(a)) return Capture(frame, a, {n, -1}, site);
  ThrowError(ErrorKind::kTypeError, site, "an abstract array (a type without a value), ",
             a.type().ToString(),
             ", was used as an operand. Pass it as an argument of the traced function");
}

TracedFunction TraceFlat(const ir::Scope& scope, const std::vector<Type>& params, std::string name,
                         const Site& site, FlatBody body) {
  return ConvertExceptions(site, [&] {
    FrameScope frame(scope, std::move(name));
    frame.frame()->builder.SetSite(site);
    std::vector<Array> args;
    for (const Type& t : params) {
      args.push_back(Wrap(frame.frame(), frame.frame()->builder.Param(t)));
    }
    const std::vector<Array> results = body(args);
    TracedFunction out;
    out.fn = BuildFunction(*frame.frame(), results, site);
    out.captures = std::move(frame.frame()->captures);
    return out;
  });
}

ir::FunctionRef TraceComputation(std::string_view op, const std::vector<DType>& params,
                                 const Site& site, FlatBody body) {
  std::vector<Type> types;
  for (DType d : params) types.push_back(ir::MakeType(d, {}));
  const TracedFunction traced = TraceFlat(ir::Scope{}, types, "computation", site, body);
  if (!traced.captures.empty()) {
    ThrowError(ErrorKind::kNotImplemented, site, ToAbsl(op),
               ": computations can't close over arrays, but this one uses an array of type ",
               traced.captures[0].type().ToString(),
               " from outside. Use numbers, or pass it as an operand");
  }
  return traced.fn;
}

namespace {
// Returns whether all axes of the mesh are Explicit, so that types say where values lie.
bool AllAxesExplicit(const ir::Mesh& mesh) {
  return !mesh.empty() && std::all_of(mesh.axes.begin(), mesh.axes.end(), [](const auto& axis) {
    return axis.type == AxisType::kExplicit;
  });
}
}  // namespace

// Records the entry function in a loop: an array whose mesh the program lacks throws
// RetraceWithMesh, and the body is then traced once more with that mesh. Each attempt drops the
// inspections of the failed attempt before it. If all axes of the mesh are Explicit, the
// out_shardings are those of the results' types.
TracedProgram TraceProgram(std::string name, const Site& site, const std::vector<Array>& args,
                           FlatBody body, const std::vector<Array>& hints) {
  Mesh mesh = ProgramMesh(args);
  if (mesh.empty()) mesh = ProgramMesh(hints);
  const size_t num_waiting = inspections.size();
  for (;;) {
    // drop the inspections of a failed attempt
    inspections.resize(std::min(num_waiting, inspections.size()));
    try {
      return ConvertExceptions(site, [&] {
        FrameScope frame(ir::Scope{mesh.logical, true}, name);
        ir::Builder& b = frame.frame()->builder;
        b.SetSite(site);
        std::vector<Array> params;
        for (const Array& a : args) {
          CheckMeshOf(a, *frame.frame(), site);
          params.push_back(Wrap(frame.frame(), b.Param(a.type())));
        }
        const std::vector<Array> results = body(params);
        TracedProgram out;
        out.program.entry = BuildFunction(*frame.frame(), results, site);
        out.mesh = mesh;
        out.num_args = static_cast<int>(args.size());
        out.captures = std::move(frame.frame()->captures);
        std::vector<Array> all = args;
        all.insert(all.end(), out.captures.begin(), out.captures.end());
        for (const Array& a : all) {
          out.program.in_shardings.push_back(InSharding(a, mesh.logical));
        }
        if (AllAxesExplicit(mesh.logical))
          for (const Type& type : out.program.entry->result_types())
            out.program.out_shardings.push_back(ir::SpecOf(type));
        out.inspections = std::exchange(inspections, {});
        return out;
      });
    } catch (const RetraceWithMesh& need) {
      if (!mesh.empty()) {
        ThrowError(ErrorKind::kValueError, site, "context mesh ", mesh.ToString(),
                   " should match the mesh used inside, ", need.mesh.ToString());
      }
      mesh = need.mesh;
    }
  }
}

void Inspect(const Array& x, std::function<void(const InspectedValue&)> report, const Site& site) {
  if (!CurrentFrame()) ThrowNotReadable("visualize", x, site);
  Frame& frame = *CurrentFrame();
  const ir::Value v = Lift(x, site);
  if (inspections.size() >= kInspectionsMax) inspections.clear();
  // The names are the same in every trace, so that equal programs are compiled once.
  std::string name = absl::StrCat(ToAbsl(ir::kInspectedPrefix), inspections.size());
  frame.inspected.emplace_back(v, name);
  inspections.push_back({std::move(name), site, std::move(report)});
}

const ConcreteState& RequireConcrete(std::string_view what, const Array& a, const Site& site) {
  const ConcreteState* c = AsConcrete(a);
  if (!c || CurrentFrame()) ThrowNotReadable(what, a, site);
  if (QueryDeleted(*c, site)) ThrowDeleted(what, a, site);
  return *c;
}

}  // namespace tessera::internal
