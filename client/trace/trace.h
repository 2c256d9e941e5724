// The tracer: a per-thread stack of functions being recorded.
//
// A frame records one ir::Function. If its body uses a value from outside, the value becomes a
// capture: an extra param, whose value the enclosing frame passes when it calls the function.
// Captures of the outermost frame are concrete arrays, which become extra arguments of the program.
// Used by the SDK only. A frame belongs to the thread that opened it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/array.h"
#include "client/error.h"
#include "client/mesh.h"
#include "client/trace/array_state.h"
#include "ir/builder.h"
#include "ir/program.h"

namespace tessera::internal {

// A value of a program, and its placement in the plan.
struct InspectedValue {
  Type type;                        // type of the value; inside shard_map, the type of one shard
  api::Placement placement;         // placement along the axes that are not Manual there
  std::vector<std::string> manual;  // axes of the shard_maps that enclose the value
};
// A request to report the placement of a value (visualize, inspect_array_sharding).
struct Inspection {
  std::string name;  // name of the op that marks the value (ir/inspected.h)
  Site site;         // call site of the request
  // Called once for each different placement that a plan gives the value. There may be several if
  // the plan contains the enclosing function several times, for example for two calls.
  std::function<void(const InspectedValue&)> report;
};

// A function that is being recorded. It is `open` until its body has returned.
struct Frame {
  Frame(ir::Scope scope, std::string name) : builder(std::move(scope), std::move(name)) {}
  ir::Builder builder;
  Frame* parent = nullptr;
  bool open = true;
  // `captures` are the values from outside that the body uses. `capture_params` are the params that
  // stand for them, and `capture_index` gives the index in both lists by the identity of a value.
  std::vector<Array> captures;
  std::vector<ir::Value> capture_params;
  std::map<std::pair<const void*, int64_t>, int> capture_index;
  // values whose placement is wanted, each with the name of its mark
  std::vector<std::pair<ir::Value, std::string>> inspected;
};

// Thrown when an array or a shard_map has a mesh but the program has none. The outermost frame then
// traces again with this mesh.
struct RetraceWithMesh {
  Mesh mesh;
};

Frame* CurrentFrame();  // null outside any trace
// Returns the scope of the innermost frame, or, outside any trace, a scope with the context mesh.
ir::Scope CurrentScope();

// Returns the state of an array that is concrete and not deleted. Throws for any other array, and
// while tracing. The error message starts with `what`.
const ConcreteState& RequireConcrete(std::string_view what, const Array& a, const Site& site);
// Returns the value of `a` in the current frame, and captures `a` if it comes from outside.
// Requires a frame. Throws TYPE_ERROR for an array that cannot be used here, ARRAY_DELETED for a
// deleted one.
ir::Value Lift(const Array& a, const Site& site);
Array Wrap(const std::shared_ptr<Frame>& frame, ir::Value v);
// Wraps a value of the current frame.
Array Wrap(ir::Value v);

// A closed function and its captures. The params of `fn` are the declared ones, then one for each
// capture.
struct TracedFunction {
  ir::FunctionRef fn;
  std::vector<Array> captures;
};
using FlatBody = absl::FunctionRef<std::vector<Array>(const std::vector<Array>&)>;
// Records `body` on params of these types, in a new frame.
TracedFunction TraceFlat(const ir::Scope& scope, const std::vector<Type>& params, std::string name,
                         const Site& site, FlatBody body);

// Records `body`, on scalars of these dtypes, as the computation of `op`. Requires a frame. Throws
// NOT_IMPLEMENTED if `body` uses an array from outside.
ir::FunctionRef TraceComputation(std::string_view op, const std::vector<DType>& params,
                                 const Site& site, FlatBody body);

// A traced program. The params of its entry are `num_args` arguments, then the captures.
struct TracedProgram {
  ir::Program program;
  Mesh mesh;
  int num_args = 0;
  std::vector<Array> captures;
  std::vector<Inspection> inspections;
  const ir::FunctionRef& fn() const { return program.entry; }
};
// Records `body` as an entry function. Requires that no frame is open on this thread. `hints` are
// arrays that the body uses. If the arguments have no mesh, the program takes the mesh of the
// hints.
TracedProgram TraceProgram(std::string name, const Site& site, const std::vector<Array>& args,
                           FlatBody body, const std::vector<Array>& hints = {});
// Registers `report`, which is called with the placement of `x` when the program that is being
// traced is compiled. Throws TYPE_ERROR outside a trace.
void Inspect(const Array& x, std::function<void(const InspectedValue&)> report, const Site& site);

}  // namespace tessera::internal
