// Compilation ahead of time. jit(f).lower(args...) is f's program for arguments of these types. The
// compile() of this program returns an executable, which is called like f and reports its cost.
// Reference: jax.stages.
//
//   const auto lowered = jit(step).lower(params, abstract({8, 3}));
//   const auto compiled = lowered.compile();
//   if (compiled.memory_analysis().peak_memory_in_bytes < limit) params = compiled(params, batch);
//
// Lowered and Compiled are values; copies of a Compiled share the executable. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/session.h"
#include "client/trace/trace.h"
#include "client/transform/call.h"

namespace tessera {
namespace stages {

// The memory of one device in bytes, like jax.stages.Compiled.memory_analysis(). The peak is the
// planner's bound, which a run never exceeds.
struct CompiledMemoryStats {
  int64_t argument_size_in_bytes = 0;  // including captured arrays
  int64_t output_size_in_bytes = 0;
  // part of the results that may take the memory of donated arguments
  int64_t alias_size_in_bytes = 0;
  int64_t temp_size_in_bytes = 0;  // the peak without arguments and results
  int64_t peak_memory_in_bytes = 0;
  bool operator==(const CompiledMemoryStats&) const = default;
};

// The predicted cost of one run on one device. All iterations of a loop count, but a while loop
// counts as one iteration. If there are branches, the one that takes longest counts.
struct CostAnalysis {
  double flops = 0;
  // bytes of device memory; values that stay in a kernel's registers do not count
  double bytes_accessed = 0;
  int64_t bytes_sent = 0;      // bytes sent to other devices
  double optimal_seconds = 0;  // predicted run time; see docs/planner.md
  bool operator==(const CostAnalysis&) const = default;
};
// Returns the memory of a plan. `donate` says which arguments are donated; arguments beyond its end
// are not donated.
CompiledMemoryStats MemoryOfPlan(const api::CompileReply& plan, const std::vector<bool>& donate);
// Returns the predictions in a plan's explain_json (api::CompileReply). Returns zeros for any other
// text.
CostAnalysis CostOfPlan(const std::string& explain_json);

}  // namespace stages

namespace internal {

// A traced program together with the call it was traced for.
struct LoweredCall {
  std::string name;
  Site site;
  TracedProgram traced;
  TreeNode tree;                   // tree of the tuple of arguments
  std::vector<std::string> paths;  // paths of the arguments: "args[0].w"
  std::vector<Type> types;         // types of the arguments
  std::vector<bool> donate;        // one entry per argument, or empty if none is donated
  // session of the concrete arrays among the arguments and captures; null if there are none
  std::shared_ptr<Session> session;
};

// A lowered call and its executable.
class CompiledCall {
 public:
  explicit CompiledCall(std::shared_ptr<const LoweredCall> lowered);
  // Runs the executable. Throws unless the arguments are those it was compiled for.
  std::vector<Array> Run(const FlatArgs& args) const;
  const LoweredCall& lowered() const { return *lowered_; }
  const Session::Executable& executable() const { return *executable_; }
  stages::CompiledMemoryStats Memory() const;
  stages::CostAnalysis Cost() const;
  std::vector<PartitionSpec> InShardings() const;  // specs of the arguments
  std::vector<PartitionSpec> OutShardings() const;
  std::vector<Array> Results() const;  // results as abstract arrays

 private:
  void CheckTypes(const FlatArgs& args) const;
  void CheckShardings(const FlatArgs& args) const;

  const std::shared_ptr<const LoweredCall> lowered_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<const Session::Executable> executable_;
};

std::string ProgramText(const LoweredCall& call, bool debug_info);
std::vector<Array> Results(const LoweredCall& call);  // results as abstract arrays

}  // namespace internal

namespace stages {

// An executable for arguments of certain types and shardings.
template <class F, class Tuple, class R>
class Compiled {
 public:
  Compiled(std::shared_ptr<const internal::CompiledCall> call, R like)
      : call_(std::move(call)), like_(std::move(like)) {}

  // Calls the executable. Takes all arguments of f, also the static ones. Throws TYPE_ERROR while a
  // function is being traced, and if the arguments have another tree, shape or dtype or other
  // static values than it was compiled for. Throws VALUE_ERROR if they are sharded differently;
  // arrays without a mesh are moved.
  template <class... A>
  requires internal::Traceable<F, A...> R operator()(const A&... args) const {
    static_assert(std::is_same_v<internal::Traced<F, A...>, Tuple>,
                  "compiled for arguments of other C++ types");
    const Tuple tuple = internal::TracedArgs<F>(call_->lowered().site, args...);
    return internal::UnflattenFilled(like_, call_->Run(internal::FlattenArgs(tuple, "args")));
  }

  CompiledMemoryStats memory_analysis() const { return call_->Memory(); }
  CostAnalysis cost_analysis() const { return call_->Cost(); }
  // Returns the plan as text, like explain.
  std::string as_text() const { return call_->executable().reply.explain_text; }
  // Return the specs of the arrays among the arguments, and of the results, in the order of the
  // leaves.
  std::vector<PartitionSpec> input_shardings() const { return call_->InShardings(); }
  std::vector<PartitionSpec> output_shardings() const { return call_->OutShardings(); }
  // Returns f's result with abstract arrays in place of its arrays. Each lies where the real result
  // will lie, so that another function can be lowered for it.
  R out_info() const { return internal::UnflattenFilled(like_, call_->Results()); }

 private:
  std::shared_ptr<const internal::CompiledCall> call_;
  R like_;
};

// A function's program for arguments of certain types.
template <class F, class Tuple, class R>
class Lowered {
 public:
  Lowered(std::shared_ptr<const internal::LoweredCall> call, R like)
      : call_(std::move(call)), like_(std::move(like)) {}

  // Compiles the program on the session of the arrays it was lowered for, or else on the default
  // session.
  Compiled<F, Tuple, R> compile() const {
    return {std::make_shared<const internal::CompiledCall>(call_), like_};
  }
  // Returns the program's text (docs/programs.md). With `debug_info` it has the lines of the user's
  // source.
  std::string as_text(bool debug_info = false) const {
    return internal::ProgramText(*call_, debug_info);
  }
  R out_info() const { return internal::UnflattenFilled(like_, internal::Results(*call_)); }
  const internal::LoweredCall& call() const { return *call_; }  // used by the SDK only

 private:
  std::shared_ptr<const internal::LoweredCall> call_;
  R like_;
};

}  // namespace stages

}  // namespace tessera
