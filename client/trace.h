// The tracer: a per-thread stack of functions being recorded.
//
// A frame records one ir::Function. A value from outside that its body uses becomes a capture: an
// extra param, whose value the enclosing frame passes when it calls the function. Captures of the
// outermost frame are concrete arrays, extra arguments of the program. Used by the SDK only; frames
// belong to the thread that opened them.
#pragma once
#include <atomic>
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
#include "client/session.h"
#include "ir/builder.h"
#include "ir/program.h"

namespace tessera::internal {

// A value of a program and where the plan places it.
struct InspectedValue {
  Type type;                        // inside shard_map, of one shard
  api::Placement placement;         // along the axes that are not Manual there
  std::vector<std::string> manual;  // the axes of the shard_maps that it is in
};
// One whose placement is to be told.
struct Inspection {
  std::string name;  // of the op that marks it (ir/inspected.h)
  Site site;         // of the call that asks
  // Called once for each placement that the value has in a plan: several, where what asks is
  // planned several times.
  std::function<void(const InspectedValue&)> tell;
};

struct Frame {
  Frame(ir::Scope scope, std::string name) : builder(std::move(scope), std::move(name)) {}
  ir::Builder builder;
  Frame* parent = nullptr;
  bool open = true;
  std::vector<Array> captures;
  std::vector<ir::Value> capture_params;
  std::map<std::pair<const void*, int64_t>, int> capture_index;
  std::vector<std::pair<ir::Value, std::string>> inspected;  // and the names of their marks
};

struct ArrayState {
  explicit ArrayState(Type t) : type(std::move(t)) {}
  virtual ~ArrayState() = default;
  Type type;
};
struct ConcreteState final : ArrayState {
  using ArrayState::ArrayState;
  ~ConcreteState() override;
  bool may_be_pending() const { return operation != 0 && !ready.load(); }
  // Releases the array in its session.
  void ReleaseInSession() const;
  std::shared_ptr<Session> session;
  uint64_t id = 0;
  std::shared_ptr<const api::Placement> placement;  // not null; shared by the results of all runs
  uint64_t operation = 0;                    // the one that computes it; 0: it is there already
  std::string name;                          // of the program that computes it
  mutable std::atomic<bool> ready{false};    // the operation is known to have ended without error
  mutable std::atomic<bool> deleted{false};  // by the user
  // Donated to an accepted run: the server has deleted it, unless the run ended before it began.
  mutable std::atomic<bool> donated{false};
};
struct AbstractState final : ArrayState {
  using ArrayState::ArrayState;
  std::shared_ptr<const api::Placement> placement;  // null: not known; devices may be missing
};
// A C++ number as an argument of a program; each run uploads it with the plan's placement.
struct NumberState final : ArrayState {
  using ArrayState::ArrayState;
  ir::Array value;
};
struct TracedState final : ArrayState {
  using ArrayState::ArrayState;
  std::shared_ptr<Frame> frame;
  ir::Value value;
};

const ConcreteState* AsConcrete(const Array& a);
const TracedState* AsTraced(const Array& a);
const NumberState* AsNumber(const Array& a);
// Where a concrete array lies, or an abstract one is to lie. Null: nowhere yet.
const api::Placement* PlacementOf(const Array& a);
// Whether the array was deleted. Calls the server if it was donated.
bool IsGone(const ConcreteState& c, const Site& site);
// Returns the state of an array that is concrete and not deleted; else, or while tracing, throws.
// The error message starts with `what`.
const ConcreteState& RequireConcrete(std::string_view what, const Array& a, const Site& site);
// Throws the error of `what`, which needs the contents of `a`: `a` is not concrete, or a function
// is being traced.
[[noreturn]] void ThrowNotReadable(std::string_view what, const Array& a, const Site& site);
// `what` may be empty.
[[noreturn]] void ThrowDeleted(std::string_view what, const Array& a, const Site& site);

// Thrown when an array or a shard_map has a mesh while the program has none; the outermost frame
// then traces again with this mesh.
struct RetraceWithMesh {
  Mesh mesh;
};

Frame* CurrentFrame();  // null outside any trace
// The scope of the innermost frame, or of the context mesh.
ir::Scope CurrentScope();

// The value of `a` in the current frame. Requires: a frame.
ir::Value Lift(const Array& a, const Site& site);
Array Wrap(const std::shared_ptr<Frame>& frame, ir::Value v);
// Wraps a value of the current frame.
Array Wrap(ir::Value v);

// A closed function and its captures: its params are the declared ones, then one per capture.
struct Nested {
  ir::FunctionRef fn;
  std::vector<Array> captures;
};
using FlatBody = absl::FunctionRef<std::vector<Array>(const std::vector<Array>&)>;
// Records `body` on params of these types, in a new frame.
Nested TraceFlat(const ir::Scope& scope, const std::vector<Type>& params, std::string name,
                 const Site& site, FlatBody body);

// Records `body`, on scalars of these dtypes, as the computation of `op`: it may use no array from
// outside. Requires: a frame.
ir::FunctionRef TraceComputation(std::string_view op, const std::vector<DType>& params,
                                 const Site& site, FlatBody body);

// Calls `body` in the current frame; without one, records it as a program, runs that, and returns
// its concrete results.
std::vector<Array> InProgram(std::string_view name, const Site& site,
                             const std::vector<Array>& inputs,
                             absl::FunctionRef<std::vector<Array>()> body);

// Emits one or several ops; the operands are lifted into the current frame (or a program).
using EmitFn = absl::FunctionRef<std::vector<ir::Value>(ir::Builder&, std::vector<ir::Value>)>;
std::vector<Array> Apply(std::string_view name, const Site& site, const std::vector<Array>& inputs,
                         EmitFn emit);
// The same for one result.
using Emit1Fn = absl::FunctionRef<ir::Value(ir::Builder&, std::vector<ir::Value>)>;
Array Apply1(std::string_view name, const Site& site, const std::vector<Array>& inputs,
             Emit1Fn emit);

// Applies `f` (from a transform) to args: inlined into the current frame, or run as a program.
std::vector<Array> CallFunction(const ir::FunctionRef& f, const std::vector<Array>& args,
                                std::string_view name, const Site& site);
// `f` with its params in another order: new param i is old param order[i].
ir::FunctionRef ReorderParams(const ir::Function& f, const std::vector<int>& order);

// A traced program: entry's params are `num_args` arguments, then the captures.
struct TracedProgram {
  ir::Program program;
  Mesh mesh;
  int num_args = 0;
  std::vector<Array> captures;
  std::vector<Inspection> inspections;
  const ir::FunctionRef& fn() const { return program.entry; }
};
// Records `body` as an entry function. Requires: no frame is open on this thread. `hints`: arrays
// that the body uses, whose mesh becomes the program's if the arguments have none.
TracedProgram TraceProgram(std::string name, const Site& site, const std::vector<Array>& args,
                           FlatBody body, const std::vector<Array>& hints = {});
// Has the placement of a value told when the program that is being traced is compiled.
void Inspect(const Array& x, std::function<void(const InspectedValue&)> tell, const Site& site);
// Tells the placements that a program was asked for, which its plan has.
void TellInspections(const TracedProgram& traced, const api::CompileReply& plan, const Site& site);
// The executable of a program, after they have been told.
// `with_plan`: with its explanation.
std::shared_ptr<const Session::Executable> CompileTraced(Session& session,
                                                         const TracedProgram& traced,
                                                         const std::string& name, bool with_plan,
                                                         const Site& site);
// The common session of the arrays; the default one if there are none. Throws if they differ.
std::shared_ptr<Session> SessionOf(const std::vector<Array>& arrays, const Site& site);
// Throws for an Array without a value.
void ThrowIfNoValue(const Array& a, const Site& site);

}  // namespace tessera::internal
