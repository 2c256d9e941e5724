// Emits the device program. MakePlan calls it with the shardings that propagation has found. Each
// op is cut as cuts.h decides, its operands are moved by reshard.h, and its own partition rule
// emits the local ops; nothing here depends on a particular op.
#include "server/planner/partition.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/ops/rules/derived.h"
#include "server/planner/cuts.h"
#include "server/planner/reshard.h"
#include "server/planner/stages.h"

namespace tessera::server::planner {
namespace {

using ir::AxisList;
using ir::Builder;
using ir::DimAxes;
using ir::Function;
using ir::FunctionRef;
using ir::Op;
using ir::Signature;
using ir::Type;
using ir::Value;
using ir::ValueId;

// Returns `dims` as the spec of value `v`, with the axes along which `v` is unreduced or reduced.
ir::PartitionSpec SpecFrom(const Function& f, ValueId v, const DimAxes& dims) {
  ir::PartitionSpec p;
  p.dims = dims;
  p.unreduced = PendingSumAxes(f, v);
  p.reduced.assign(f.types[v].reduced.begin(), f.types[v].reduced.end());
  return p;
}

// Returns a text that says how an op is cut: the types of its operands' shards, then the axes along
// which the op makes a pending sum ("sums along"), then the axes along which its operands are
// pending sums, then the shardings to which sums are completed. Example: `%3 = dot_general
// (f32[8@data,4], f32[4,6]); sums along model`
std::string CutText(const Function& f, const Op& op, const Signature& signature, const OpCut& cut,
                    const std::vector<std::optional<DimAxes>>& complete_to) {
  const auto value = [](std::string* out, ValueId v) { absl::StrAppend(out, "%", v); };
  std::string text =
      absl::StrCat(absl::StrJoin(op.results, ", ", value), " = ", ToAbsl(op.def->name), " (");
  for (size_t i = 0; i < op.operands.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ",
                    ShardedTypeText(f.types[op.operands[i]],
                                    ir::JoinAxes(signature.operands[i], cut.factor_axes)));
  absl::StrAppend(&text, ")");
  const AxisList summed = ir::derive::SummedAxes(signature, cut.factor_axes);
  if (!summed.empty()) absl::StrAppend(&text, "; sums along ", absl::StrJoin(summed, ", "));
  if (!cut.pending_axes.empty())
    absl::StrAppend(&text, "; takes pending sums along ", absl::StrJoin(cut.pending_axes, ", "));
  for (const ValueId v : op.results)
    if (complete_to[v])
      absl::StrAppend(&text, "; %", v, " is completed to ",
                      ShardedTypeText(f.types[v], *complete_to[v]));
  return text;
}

class Partitioner {
 public:
  // Both arguments may be null; see Partition.
  Partitioner(std::vector<OpExplanation>* explanations, std::string* cut_lines)
      : explanations_(explanations), cut_lines_(cut_lines) {}

  // Emits f's body into `b` and returns the shards of its results.  `args` are shards under the
  // shardings in s.shardings; the results have the shardings in `wanted`.  Each op is emitted with
  // its own source line, so that errors and the device program name the user's code.
  std::vector<Value> EmitBody(const Function& f, const FunctionShardings& s,
                              const std::vector<DimAxes>& wanted, Builder& b, ir::Values args,
                              int depth) {
    const CutPlan cuts = PlanCuts(f, s, wanted);
    Env env{f, std::vector<Value>(f.types.size()), s.shardings, {}};
    std::copy(args.begin(), args.end(), env.shards.begin());
    for (size_t i = 0; i < f.ops.size(); ++i) {
      ir::SiteScope site(b, f.sites[i]);
      const Op& op = f.ops[i];
      const size_t explanation_index = explanations_ == nullptr ? 0 : explanations_->size();
      if (explanations_ != nullptr) explanations_->push_back(ExplanationOf(f, i, s, depth));
      if (cut_lines_ != nullptr)
        absl::StrAppend(cut_lines_, std::string(2 * depth, ' '),
                        op.def->data_flow
                            ? absl::StrCat("regions of ", ToAbsl(op.def->name))
                            : CutText(f, op, s.signatures[i], cuts.ops[i], cuts.complete_to),
                        "\n");
      if (op.def->data_flow) {
        const std::vector<Value> out = EmitRegionOp(i, s, b, &env, depth, explanation_index);
        for (size_t r = 0; r < out.size(); ++r) env.shards[op.results[r]] = out[r];
      } else {
        if (explanations_ != nullptr)
          (*explanations_)[explanation_index].explicit_form = FormOf(f, i, s, cuts.ops[i]);
        EmitPlainOp(op, s.signatures[i], cuts.ops[i], cuts.complete_to, b, &env, explanation_index);
      }
    }
    std::vector<Value> results;
    for (size_t r = 0; r < f.results.size(); ++r) {
      const ValueId v = f.results[r];
      results.push_back(MoveValue(&env, v, wanted[r]));
    }
    return results;
  }

 private:
  // The values of a function that have been emitted so far. For each value: this device's shard
  // (`shards`), the shard's sharding (`shardings`), and the device's shards under other shardings
  // that readers wanted (`moved`).
  struct Env {
    const Function& f;
    std::vector<Value> shards;
    std::vector<DimAxes> shardings;
    std::map<std::pair<ValueId, DimAxes>, Value> moved;
  };

  static OpExplanation ExplanationOf(const Function& f, size_t i, const FunctionShardings& s,
                                     int depth) {
    OpExplanation out;
    out.op = std::string(f.ops[i].def->name);
    out.site = f.sites[i];
    out.depth = depth;
    for (ValueId v : f.ops[i].results) {
      out.results.push_back(ShardedTypeText(f.types[v], s.shardings[v]));
      out.types.push_back(f.types[v]);
      out.specs.push_back(SpecFrom(f, v, s.shardings[v]));
    }
    if (f.ops[i].attrs.Has("name")) out.name = f.ops[i].attrs.Str("name");
    out.manual = f.scope.mesh.AxesOfType(ir::AxisType::kManual);
    if (!f.ops[i].results.empty()) out.decided_by = OriginText(s, f.ops[i].results[0]);
    return out;
  }

  static ExplicitForm FormOf(const Function& f, size_t i, const FunctionShardings& s,
                             const OpCut& cut) {
    std::vector<DimAxes> wanted;
    for (const ir::TensorFactors& dims : s.signatures[i].operands)
      wanted.push_back(ir::JoinAxes(dims, cut.factor_axes));
    return ExplicitFormOf(f, f.ops[i], ir::ElementsAt(s.shardings, f.ops[i].operands), wanted,
                          ir::ElementsAt(s.shardings, f.ops[i].results));
  }

  // Adds to the explanation of an op that a value is moved.
  void ExplainMove(const Type& global, const DimAxes& from, const DimAxes& to,
                   size_t explanation_index, std::string_view what) {
    if (explanations_ == nullptr || from == to) return;
    (*explanations_)[explanation_index].moves.push_back(absl::StrCat(
        ToAbsl(what), " ", ShardedTypeText(global, from), " -> ", ShardedTypeText(global, to)));
  }
  // Returns the value's shard under the sharding `to`. If several readers want it under the same
  // sharding, it is moved only once.
  static Value MoveValue(Env* env, ValueId v, const DimAxes& to) {
    if (env->shardings[v] == to) return env->shards[v];
    const auto [moved, is_new] = env->moved.try_emplace({v, to});
    if (is_new) moved->second = Reshard(env->shards[v], env->shardings[v], to);
    return moved->second;
  }
  Value MoveOperand(Env* env, ValueId v, const DimAxes& to, size_t explanation_index,
                    size_t operand) {
    if (explanations_ != nullptr && !env->moved.contains({v, to}))
      ExplainMove(env->f.types[v], env->shardings[v], to, explanation_index,
                  absl::StrCat("operand ", operand));
    return MoveValue(env, v, to);
  }

  static AxisList Minus(AxisList axes, const AxisList& less) {
    std::erase_if(axes, [&](const std::string& a) { return DimOf({less}, a) >= 0; });
    return axes;
  }
  // Turns a value that is equal on all devices along `axes` into a pending sum. The summand of the
  // first device along these axes is the value, and the summands of the others are zeros.
  static Value AsPendingSum(Value whole, const AxisList& axes) {
    if (axes.empty()) return whole;
    const Value index = ir::AxisIndex(whole.builder(), axes);
    const Value first = ir::Compare(index, ir::FullLike(index, 0), "EQ");
    const Value zeros = ir::FullLike(whole, 0);
    const Value here = ir::BroadcastInDim(first, whole.shape(), {});
    return ir::Select(here, whole, zeros);
  }

  // Emits an op without planned regions. Moves the operands to the shardings of the cut, emits the
  // local ops by the op's partition rule, and brings each result to its sharding. Each result may
  // then be a pending sum: of summands that the op itself makes, or because its operands are
  // pending sums. Both sums are completed by one exchange, unless the cut leaves them to the reader
  // of the result. A result with an unreduced type remains a pending sum along its unreduced axes.
  void EmitPlainOp(const Op& op, const Signature& sig, const OpCut& cut,
                   const std::vector<std::optional<DimAxes>>& complete_to, Builder& b, Env* env,
                   size_t explanation_index) {
    const Function& f = env->f;
    ir::RuleContext context{b,
                            *op.def,
                            op.attrs,
                            op.regions,
                            {},
                            {},
                            ir::ElementsAt(f.types, op.operands),
                            ir::ElementsAt(f.types, op.results)};
    for (size_t i = 0; i < op.operands.size(); ++i)
      context.in.push_back(MoveOperand(env, op.operands[i],
                                       ir::JoinAxes(sig.operands[i], cut.factor_axes),
                                       explanation_index, i));
    ir::PartitionContext p{sig, cut.factor_axes, {}};
    std::vector<DimAxes> got;
    for (size_t r = 0; r < op.results.size(); ++r) {
      got.push_back(ir::JoinAxes(sig.results[r], cut.factor_axes));
      p.local_out.push_back(ir::LocalType(f.types[op.results[r]], got[r], f.scope.mesh));
    }
    ir::derive::LocalResults local;
    if (op.def->partition.written()) {
      local.values = op.def->partition.fn(context, p);
    } else {
      local = ir::derive::PartitionWithPendingSums(context, p);
    }
    local.pending.insert(local.pending.begin(), cut.pending_axes.begin(), cut.pending_axes.end());
    for (size_t r = 0; r < op.results.size(); ++r) {
      const ValueId v = op.results[r];
      if (const AxisList unreduced = PendingSumAxes(f, v); !unreduced.empty()) {
        ExplainMove(f.types[v], got[r], env->shardings[v], explanation_index, "result");
        // If an op has several results, each result has an operand of its own, and is a pending sum
        // along the same axes as that operand.
        const AxisList pending = op.results.size() == 1 ? local.pending : unreduced;
        env->shards[v] = AsPendingSum(
            Reshard(local.values[r], got[r], env->shardings[v], Minus(pending, unreduced)),
            Minus(unreduced, pending));
        continue;
      }
      env->shards[v] = local.values[r];
      // If the result has no sharding to complete it to, its reader takes it as a pending sum.
      if (!local.pending.empty() && !complete_to[v]) continue;
      if (!local.pending.empty()) env->shardings[v] = *complete_to[v];
      ExplainMove(f.types[v], got[r], env->shardings[v], explanation_index, "result");
      env->shards[v] = Reshard(local.values[r], got[r], env->shardings[v], local.pending);
    }
  }

  // An edge connects a value of the function with a value of a region. Returns the sharding of the
  // function's value under which the region's value has the sharding `region_sharding`. The axes of
  // the edge's prefix come first in each dim. `rank` is the rank of the function's value.
  static DimAxes OuterSharding(const ir::DataFlowEdge& edge, const DimAxes& region_sharding,
                               size_t rank) {
    DimAxes out = region_sharding;
    for (size_t d = 0; d < out.size(); ++d)
      if (!edge.prefix.empty())
        out[d].insert(out[d].begin(), edge.prefix[d].begin(), edge.prefix[d].end());
    if (edge.leading_dim) out.insert(out.begin(), AxisList{});
    out.resize(rank);
    return out;
  }

  // The shardings with which values enter and leave the regions of an op, for each operand that a
  // region takes and for each result. All regions use the same ones. For branches they are the
  // shardings of the values outside; for a loop they are those of the values in the body. A region
  // that wants another sharding reshards inside.
  struct Boundary {
    std::vector<DimAxes> operands, results;
    // The edge of each operand and result, or null if no region has the value.
    std::vector<const ir::DataFlowEdge*> operand_edges, result_edges;
  };
  static Boundary BoundaryOf(const Op& op, const ir::DataFlow& flow, const FunctionShardings& s,
                             const std::vector<std::unique_ptr<FunctionShardings>>& regions) {
    Boundary out;
    out.operands.resize(op.operands.size());
    out.operand_edges.resize(op.operands.size());
    out.results.resize(op.results.size());
    out.result_edges.resize(op.results.size());
    const bool has_branches = op.def->RoleOf(0) == ir::RegionRole::kBranch;
    for (size_t k = 0; k < op.regions.size(); ++k) {
      for (const ir::DataFlowEdge& edge : flow.regions[k].operands) {
        out.operands[edge.outer] =
            has_branches ? s.shardings[op.operands[edge.outer]] : regions[k]->shardings[edge.inner];
        out.operand_edges[edge.outer] = &edge;
      }
      for (const ir::DataFlowEdge& edge : flow.regions[k].results) {
        out.results[edge.outer] =
            has_branches
                ? s.shardings[op.results[edge.outer]]
                : regions[k]
                      ->shardings[ShardingSource(*op.regions[k], flow.regions[k], edge.inner)];
        out.result_edges[edge.outer] = &edge;
      }
    }
    return out;
  }

  // Emits an op with planned regions and returns its results. All regions must agree on the
  // shardings at the op's boundary, so these are fixed first. Operands are moved to them before the
  // op, the regions are partitioned for them, and results are moved from them after the op. The
  // body of a shard_map is code for one shard already, and is emitted in place of the op.
  std::vector<Value> EmitRegionOp(size_t index, const FunctionShardings& s, Builder& b, Env* env,
                                  int depth, size_t explanation_index) {
    const Function& f = env->f;
    const Op& op = f.ops[index];
    const ir::DataFlow flow = ir::DataFlowOf(f, op);
    const std::vector<std::unique_ptr<FunctionShardings>>& regions =
        s.regions.at(static_cast<int>(index));
    const Boundary boundary = BoundaryOf(op, flow, s, regions);

    std::vector<Value> args;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId v = op.operands[i];
      const ir::DataFlowEdge* edge = boundary.operand_edges[i];
      const DimAxes need = edge ? OuterSharding(*edge, boundary.operands[i], s.shardings[v].size())
                                : DimAxes(s.shardings[v].size());
      args.push_back(MoveOperand(env, v, need, explanation_index, i));
    }
    std::vector<Value> out;
    if (!flow.manual_axes.empty()) {
      // The body is per-shard code over its axes already, so it is inlined.
      const Function& body = *op.regions[0];
      std::vector<Value> params(body.num_params);
      for (const ir::DataFlowEdge& edge : flow.regions[0].operands)
        params[edge.inner] = args[edge.outer];
      const std::vector<Value> results =
          EmitBody(body, *regions[0], ir::ElementsAt(regions[0]->shardings, body.results), b,
                   params, depth + 1);
      out.resize(op.results.size());
      for (const ir::DataFlowEdge& edge : flow.regions[0].results)
        out[edge.outer] = results[edge.inner];
    } else {
      std::vector<FunctionRef> local;
      for (size_t k = 0; k < op.regions.size(); ++k)
        local.push_back(
            PartitionRegion(*op.regions[k], *regions[k], b, flow.regions[k], boundary, depth + 1));
      out = b.Emit(*op.def, args, op.attrs, local);
    }
    for (size_t r = 0; r < out.size(); ++r) {
      const ValueId v = op.results[r];
      const DimAxes from =
          OuterSharding(*boundary.result_edges[r], boundary.results[r], s.shardings[v].size());
      ExplainMove(f.types[v], from, s.shardings[v], explanation_index, "result");
      out[r] = Reshard(out[r], from, s.shardings[v]);
    }
    return out;
  }

  // Returns the value whose sharding counts for a result of the region: for a carry its param,
  // otherwise the result itself.
  static ValueId ShardingSource(const Function& region, const ir::RegionDataFlow& flow,
                                int result) {
    for (const auto& [param, carry_result] : flow.carries)
      if (carry_result == result) return param;
    return region.results[result];
  }

  // Partitions a region: returns the function that a device runs in its place. The params and
  // results of the function are shards under the boundary's shardings.
  FunctionRef PartitionRegion(const Function& region, const FunctionShardings& s, Builder& outer,
                              const ir::RegionDataFlow& flow, const Boundary& boundary, int depth) {
    Builder b(outer.scope(), region.name);
    std::vector<Value> params(region.num_params);
    std::vector<const DimAxes*> given(region.num_params);
    for (const ir::DataFlowEdge& edge : flow.operands)
      given[edge.inner] = &boundary.operands[edge.outer];
    for (int i = 0; i < region.num_params; ++i)
      params[i] = b.Param(ir::LocalType(region.types[i], *given[i], region.scope.mesh));
    for (int i = 0; i < region.num_params; ++i)
      params[i] = Reshard(params[i], *given[i], s.shardings[i]);
    std::vector<DimAxes> wanted = ir::ElementsAt(s.shardings, region.results);
    for (const ir::DataFlowEdge& edge : flow.results)
      wanted[edge.inner] = boundary.results[edge.outer];
    return b.Build(EmitBody(region, s, wanted, b, params, depth));
  }

  std::vector<OpExplanation>* const explanations_;
  std::string* const cut_lines_;
};

}  // namespace

// Sets up the builder of the device program, whose scope has all axes Manual, and emits the entry
// function into it. Where the program gives a result an out sharding, the result has that sharding,
// even if the returned value has another one in the function. Rules of ops report errors as
// exceptions (docs/decisions/0001), which end here.
absl::StatusOr<PartitionedProgram> Partition(const ir::Program& program, const FunctionShardings& s,
                                             bool with_explanations, std::string* cut_lines) {
  const Function& f = *program.entry;
  PartitionedProgram out;
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] {
    std::vector<std::string> names;
    for (const ir::MeshAxis& a : f.scope.mesh.axes) names.push_back(a.name);
    Builder b({f.scope.mesh.WithAxisType(names, ir::AxisType::kManual), /*check_vma=*/false},
              f.name);
    std::vector<Value> params;
    for (int i = 0; i < f.num_params; ++i) {
      params.push_back(b.Param(ir::LocalType(f.types[i], s.shardings[i], f.scope.mesh)));
      out.in.push_back(SpecFrom(f, i, s.shardings[i]));
    }
    std::vector<DimAxes> wanted = ir::ElementsAt(s.shardings, f.results);
    for (size_t r = 0; r < wanted.size(); ++r) {
      if (r < program.out_shardings.size() && program.out_shardings[r]) {
        wanted[r] = program.out_shardings[r]->dims;
        wanted[r].resize(f.types[f.results[r]].rank());
      }
      out.out.push_back(SpecFrom(f, f.results[r], wanted[r]));
    }
    Partitioner partitioner(with_explanations ? &out.explanations : nullptr, cut_lines);
    out.fn = b.Build(partitioner.EmitBody(f, s, wanted, b, params, 0));
  }));
  return out;
}

}  // namespace tessera::server::planner
