// jax.stages in C++: jit.cc makes a LoweredCall, and compile() makes a CompiledCall of it. Memory
// and cost come from the plan, so that nothing has to run.
#include "client/transform/stages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/words.h"
#include "client/debug.h"
#include "client/plan/shards.h"
#include "client/trace/compile.h"
#include "ir/text.h"
#include "ir/type.h"

namespace tessera::stages {
namespace {

// Returns the size in bytes of a device's shard.
int64_t ShardBytes(const api::ArraySpec& array) {
  ir::Dims shape;
  for (const internal::Range& r :
       internal::ShardRanges(array.placement.mesh, array.placement.spec, array.shape, 0))
    shape.push_back(r.end - r.begin);
  return ir::MakeType(array.dtype, shape).num_bytes();
}

}  // namespace

CompiledMemoryStats MemoryOfPlan(const api::CompileReply& plan, const std::vector<bool>& donate) {
  CompiledMemoryStats out;
  std::vector<const api::ArraySpec*> free_results;  // results that do not have donated memory yet
  for (const api::ArraySpec& array : plan.out) {
    out.output_size_in_bytes += ShardBytes(array);
    free_results.push_back(&array);
  }
  for (size_t i = 0; i < plan.in.size(); ++i) {
    out.argument_size_in_bytes += ShardBytes(plan.in[i]);
    if (i >= donate.size() || !donate[i]) continue;
    const auto match =
        std::find_if(free_results.begin(), free_results.end(), [&](const api::ArraySpec* result) {
          return result->dtype == plan.in[i].dtype && result->shape == plan.in[i].shape &&
                 internal::HaveSameShards(result->placement, plan.in[i].placement, result->shape);
        });
    if (match == free_results.end()) continue;
    out.alias_size_in_bytes += ShardBytes(**match);
    free_results.erase(match);
  }
  out.peak_memory_in_bytes = plan.memory_bound_bytes;
  out.temp_size_in_bytes = std::max<int64_t>(
      0, out.peak_memory_in_bytes - out.argument_size_in_bytes - out.output_size_in_bytes);
  return out;
}

CostAnalysis CostOfPlan(const std::string& explain_json) {
  const nlohmann::json plan = nlohmann::json::parse(explain_json, nullptr,
                                                    /*allow_exceptions=*/false);
  CostAnalysis out;
  if (!plan.is_object()) return out;
  const nlohmann::json predicted = plan.value("predicted", nlohmann::json::object());
  out.flops = predicted.value("flops", 0.0);
  out.bytes_accessed = predicted.value("bytes_accessed", 0.0);
  out.optimal_seconds = predicted.value("seconds", 0.0);
  for (const nlohmann::json& collective : plan.value("collectives", nlohmann::json::array()))
    out.bytes_sent += collective.value("bytes_sent", int64_t{0});
  return out;
}

}  // namespace tessera::stages

namespace tessera::internal {
namespace {

std::string PlacementText(const api::Placement& p) {
  if (p.mesh.empty()) return absl::StrCat("device ", absl::StrJoin(p.devices, ","));
  return absl::StrCat(p.spec.ToString(), " on ", p.mesh.ToString(), " of devices ",
                      absl::StrJoin(p.devices, ","));
}

}  // namespace

std::string ProgramText(const LoweredCall& call, bool debug_info) {
  ir::PrintOptions options;
  options.sites = debug_info;
  return ir::PrintProgram(call.traced.program, options);
}

std::vector<Array> Results(const LoweredCall& call) {
  std::vector<Array> out;
  for (const Type& type : call.traced.fn()->result_types()) out.push_back(abstract_of(type));
  return out;
}

CompiledCall::CompiledCall(std::shared_ptr<const LoweredCall> lowered)
    : lowered_(std::move(lowered)),
      session_(lowered_->session ? lowered_->session : Session::Default(lowered_->site)),
      executable_(CompileTraced(*session_, lowered_->traced, lowered_->name, /*with_plan=*/true,
                                lowered_->site)) {}

void CompiledCall::CheckTypes(const FlatArgs& args) const {
  const LoweredCall& l = *lowered_;
  if (!(args.tree == l.tree)) {
    ThrowError(ErrorKind::kTypeError, l.site, l.name,
               ": Function compiled with input pytree does not match the input pytree it was "
               "called with: ",
               StructureDifference(l.tree, args.tree, "args"));
  }
  std::vector<std::string> mismatches;
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    ThrowIfNoValue(args.leaves[i], l.site);
    const Type &want = l.types[i], &got = args.leaves[i].type();
    if (want.dtype == got.dtype && want.shape == got.shape) continue;
    mismatches.push_back(absl::StrCat(
        "Argument ", l.paths[i], " compiled with ", ir::MakeType(want.dtype, want.shape).ToString(),
        " and called with ", ir::MakeType(got.dtype, got.shape).ToString()));
  }
  if (!mismatches.empty()) {
    ThrowError(ErrorKind::kTypeError, l.site, l.name,
               ": Argument types differ from the types for which this computation was compiled. "
               "The mismatches are: ",
               absl::StrJoin(mismatches, "; "));
  }
}

void CompiledCall::CheckShardings(const FlatArgs& args) const {
  const LoweredCall& l = *lowered_;
  std::vector<std::string> mismatches;
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const ConcreteState* const concrete = AsConcrete(args.leaves[i]);
    if (!concrete || concrete->placement->mesh.empty()) continue;
    const api::Placement& required = executable_->reply.in.at(i).placement;
    if (HaveSameShards(*concrete->placement, required, concrete->type.shape)) continue;
    mismatches.push_back(absl::StrCat("Argument ", l.paths[i], " with shape ",
                                      concrete->type.ToString(),
                                      ": Passed sharding: ", PlacementText(*concrete->placement),
                                      ", Required sharding: ", PlacementText(required)));
  }
  if (!mismatches.empty()) {
    ThrowError(ErrorKind::kValueError, l.site, l.name,
               ": Computation was compiled for input shardings that disagree with the shardings of "
               "arguments passed to it. Here are the ",
               mismatches.size(), " mismatches: ", absl::StrJoin(mismatches, "; "));
  }
}

std::vector<Array> CompiledCall::Run(const FlatArgs& args) const {
  const LoweredCall& l = *lowered_;
  if (CurrentFrame()) {
    ThrowError(ErrorKind::kTypeError, l.site, l.name,
               ": Cannot apply JAX transformations to a function lowered and compiled for a "
               "particular signature. Call the function that was lowered");
  }
  CheckTypes(args);
  CheckShardings(args);
  const std::vector<Array> all = Concat(args.leaves, l.traced.captures);
  if (SessionOf(all, l.site) != session_ &&
      std::any_of(all.begin(), all.end(), [](const Array& a) { return AsConcrete(a); })) {
    ThrowError(ErrorKind::kValueError, l.site, l.name,
               ": compiled for a different session than its arguments belong to");
  }
  if (DebugNans()) return RunCheckingNans(l.traced, all, l.name, l.site);
  std::vector<bool> donate = l.donate;
  if (!donate.empty()) donate.resize(all.size(), false);
  return session_->Run(*executable_, all, std::move(donate), l.site);
}

stages::CompiledMemoryStats CompiledCall::Memory() const {
  return stages::MemoryOfPlan(executable_->reply, lowered_->donate);
}

stages::CostAnalysis CompiledCall::Cost() const {
  return stages::CostOfPlan(executable_->reply.explain_json);
}

std::vector<PartitionSpec> CompiledCall::InShardings() const {
  std::vector<PartitionSpec> out;
  for (size_t i = 0; i < lowered_->types.size(); ++i)
    out.push_back(executable_->reply.in.at(i).placement.spec);
  return out;
}
std::vector<Array> CompiledCall::Results() const {
  std::vector<Array> out;
  for (size_t i = 0; i < executable_->num_results(); ++i) {
    auto state = std::make_shared<AbstractState>(executable_->out_types[i]);
    state->placement = executable_->out_placements[i];
    out.emplace_back(std::move(state));
  }
  return out;
}
std::vector<PartitionSpec> CompiledCall::OutShardings() const {
  std::vector<PartitionSpec> out;
  for (size_t i = 0; i < executable_->num_results(); ++i)
    out.push_back(executable_->reply.out.at(i).placement.spec);
  return out;
}

}  // namespace tessera::internal
