// Ahead of time: jit(f).lower(args...) is f's program for arguments of these types, its compile()
// an executable that tells what it needs and is called as f is. Reference: jax.stages.
//
//   const auto lowered = jit(step).lower(params, abstract({8, 3}));
//   const auto compiled = lowered.compile();
//   if (compiled.memory_analysis().peak_memory_in_bytes < limit) params = compiled(params, batch);
//
// Values; copies share the executable. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/call.h"
#include "client/session.h"
#include "client/trace.h"

namespace tessera {
namespace stages {

// Of one device. What jax.stages.Compiled.memory_analysis() tells, by the planner's bound, which a
// run never exceeds.
struct CompiledMemoryStats {
  int64_t argument_size_in_bytes = 0;  // captured arrays included
  int64_t output_size_in_bytes = 0;
  int64_t alias_size_in_bytes = 0;  // of results that may take the memory of donated arguments
  int64_t temp_size_in_bytes = 0;   // of all else that is live at once
  int64_t peak_memory_in_bytes = 0;
  bool operator==(const CompiledMemoryStats&) const = default;
};

// Of one device and one run. Iterations of loops count, those of a while loop once; of branches
// that which takes longest.
struct CostAnalysis {
  double flops = 0;
  double bytes_accessed = 0;   // of its memory; what one kernel hands to the next in registers not
  int64_t bytes_sent = 0;      // to other devices
  double optimal_seconds = 0;  // predicted; see docs/planner.md
  bool operator==(const CostAnalysis&) const = default;
};
// Of a plan whose arguments are donated as `donate` says; those beyond its end are not.
CompiledMemoryStats MemoryOfPlan(const api::CompileReply& plan, const std::vector<bool>& donate);
// What a plan's explain_json (api::CompileReply) predicts; zeros of another text.
CostAnalysis CostOfPlan(const std::string& explain_json);

}  // namespace stages

namespace internal {

struct LoweredCall {
  std::string name;
  Site site;
  TracedProgram traced;
  TreeNode tree;                     // of the tuple of arguments
  std::vector<std::string> paths;    // of the arguments: "args[0].w"
  std::vector<Type> types;           // of the arguments
  std::vector<bool> donate;          // per argument; empty: none
  std::shared_ptr<Session> session;  // of the arrays it was lowered for; null: there were none
};

class CompiledCall {
 public:
  explicit CompiledCall(std::shared_ptr<const LoweredCall> lowered);
  // Throws unless the arguments are those it was compiled for.
  std::vector<Array> Run(const FlatArgs& args) const;
  const LoweredCall& lowered() const { return *lowered_; }
  const Session::Executable& executable() const { return *executable_; }
  stages::CompiledMemoryStats Memory() const;
  stages::CostAnalysis Cost() const;
  std::vector<PartitionSpec> InShardings() const;  // of the arguments
  std::vector<PartitionSpec> OutShardings() const;
  std::vector<Array> Results() const;  // abstract ones

 private:
  void CheckTypes(const FlatArgs& args) const;
  void CheckShardings(const FlatArgs& args) const;

  const std::shared_ptr<const LoweredCall> lowered_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<const Session::Executable> executable_;
};

std::string ProgramText(const LoweredCall& call, bool debug_info);
std::vector<Array> Results(const LoweredCall& call);  // abstract ones

}  // namespace internal

namespace stages {

// An executable for arguments of certain types and shardings.
template <class F, class Tuple, class R>
class Compiled {
 public:
  Compiled(std::shared_ptr<const internal::CompiledCall> call, R like)
      : call_(std::move(call)), like_(std::move(like)) {}

  // The call of f, with its static arguments too. TYPE_ERROR: the arguments are of another tree,
  // shape or dtype than it was compiled for, have other static values, or a function is being
  // traced. VALUE_ERROR: they are sharded otherwise; arrays without a mesh are moved.
  template <class... A>
  requires internal::Traceable<F, A...> R operator()(const A&... args) const {
    static_assert(std::is_same_v<internal::Traced<F, A...>, Tuple>,
                  "compiled for arguments of other C++ types");
    const Tuple tuple = internal::TracedArgs<F>(call_->lowered().site, args...);
    return internal::UnflattenFilled(like_, call_->Run(internal::FlattenArgs(tuple, "args")));
  }

  CompiledMemoryStats memory_analysis() const { return call_->Memory(); }
  CostAnalysis cost_analysis() const { return call_->Cost(); }
  // The plan, as explain tells it.
  std::string as_text() const { return call_->executable().reply.explain_text; }
  // Of the arrays among the arguments, and of the results, in the order of their leaves.
  std::vector<PartitionSpec> input_shardings() const { return call_->InShardings(); }
  std::vector<PartitionSpec> output_shardings() const { return call_->OutShardings(); }
  // f's result, with abstract arrays in the place of its own, which lie where those will: another
  // function can be lowered for them.
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

  // On the session of the arrays it was lowered for, else on the default one.
  Compiled<F, Tuple, R> compile() const {
    return {std::make_shared<const internal::CompiledCall>(call_), like_};
  }
  // The program's text (docs/programs.md), where `debug_info` adds the lines of the user's source.
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
