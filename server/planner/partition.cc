#include "server/planner/partition.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "server/planner/reshard.h"

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

ir::PartitionSpec SpecFrom(const DimAxes& dims) {
  ir::PartitionSpec p;
  p.dims = dims;
  return p;
}

// The type in human-readable form: global shape with the axes of each dim.
std::string Describe(const Type& t, const DimAxes& dims) {
  Type shown = ir::MakeType(t.dtype, t.shape);
  shown.sharding = dims;
  ir::Normalize(&shown);
  return shown.ToString();
}

class Partitioner {
 public:
  explicit Partitioner(std::vector<OpExplanation>* notes) : notes_(notes) {}

  // Emits f's body into `b`.  `args` and the results are shards as s.of says.
  std::vector<Value> Body(const Function& f, const FunctionShardings& s, Builder& b,
                          ir::Values args, int depth) {
    std::vector<Value> env(f.types.size());
    std::copy(args.begin(), args.end(), env.begin());
    for (size_t i = 0; i < f.ops.size(); ++i) {
      ir::SiteScope site(b, f.sites[i]);
      const Op& op = f.ops[i];
      const size_t note = notes_->size();
      notes_->push_back(NoteOf(f, i, s, depth));
      std::vector<Value> out =
          op.def->data_flow ? Region(f, i, s, b, env, depth, note) : Plain(f, op, s, b, env, note);
      for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
    }
    return ir::ElementsAt(env, f.results);
  }

 private:
  static OpExplanation NoteOf(const Function& f, size_t i, const FunctionShardings& s, int depth) {
    OpExplanation n;
    n.op = std::string(f.ops[i].def->name);
    n.site = f.sites[i];
    n.depth = depth;
    for (ValueId v : f.ops[i].results) n.results.push_back(Describe(f.types[v], s.of[v]));
    if (!f.ops[i].results.empty()) n.why = WhoDecided(s, f.ops[i].results[0]);
    return n;
  }

  // Reshards `shard`, and says so in the note of its op.
  Value ReshardAndNote(Value shard, const Type& global, const DimAxes& from, const DimAxes& to,
                       size_t note, std::string_view what) {
    if (from == to) return shard;
    (*notes_)[note].moves.push_back(
        absl::StrCat(ToAbsl(what), " ", Describe(global, from), " -> ", Describe(global, to)));
    return Reshard(shard, from, to);
  }

  std::vector<Value> Plain(const Function& f, const Op& op, const FunctionShardings& s, Builder& b,
                           const std::vector<Value>& env, size_t note) {
    const Signature sig = ir::SignatureOf(f, op);
    const std::vector<DimAxes> in = ir::ElementsAt(s.of, op.operands);
    const std::vector<DimAxes> out = ir::ElementsAt(s.of, op.results);
    const std::vector<AxisList> axes = ChooseFactorAxes(f, op, sig, in, out);

    ir::RuleContext rule{b,
                         *op.def,
                         op.attrs,
                         op.regions,
                         {},
                         {},
                         ir::ElementsAt(f.types, op.operands),
                         ir::ElementsAt(f.types, op.results)};
    for (size_t i = 0; i < op.operands.size(); ++i)
      rule.in.push_back(ReshardAndNote(env[op.operands[i]], f.types[op.operands[i]], in[i],
                                       ir::JoinAxes(sig.operands[i], axes), note,
                                       absl::StrCat("operand ", i)));
    ir::PartitionContext p{sig, axes, {}};
    std::vector<DimAxes> got;
    for (size_t r = 0; r < op.results.size(); ++r) {
      got.push_back(ir::JoinAxes(sig.results[r], axes));
      p.local_out.push_back(ir::LocalType(f.types[op.results[r]], got[r], f.scope.mesh));
    }
    std::vector<Value> local = op.def->partition.written()
                                   ? op.def->partition.fn(rule, p)
                                   : ir::derive::PartitionByFactors(rule, p);
    for (size_t r = 0; r < local.size(); ++r)
      local[r] = ReshardAndNote(local[r], f.types[op.results[r]], got[r], out[r], note, "result");
    return local;
  }

  // The axes an outer value must have for the region's value, prefix first.
  static DimAxes Needed(const ir::DataFlowEdge& edge, const DimAxes& inner,
                        const DimAxes& outer_now) {
    DimAxes need = inner;
    for (size_t d = 0; d < need.size(); ++d)
      if (!edge.prefix.empty())
        need[d].insert(need[d].begin(), edge.prefix[d].begin(), edge.prefix[d].end());
    if (edge.leading_dim) need.insert(need.begin(), AxisList{});
    need.resize(outer_now.size());
    return need;
  }

  std::vector<Value> Region(const Function& f, size_t index, const FunctionShardings& s, Builder& b,
                            const std::vector<Value>& env, int depth, size_t note) {
    const Op& op = f.ops[index];
    const std::vector<Type> in_types = ir::ElementsAt(f.types, op.operands);
    const ir::RegionDataFlow map =
        op.def->data_flow({*op.def, f.scope, in_types, op.attrs, op.regions});
    const Function& body = *op.regions[0];
    const FunctionShardings& inner = *s.regions.at(static_cast<int>(index));

    std::vector<Value> args(op.operands.size());
    for (const ir::DataFlowEdge& edge : map.operands) {
      const ValueId v = op.operands[edge.outer];
      args[edge.outer] =
          ReshardAndNote(env[v], f.types[v], s.of[v], Needed(edge, inner.of[edge.inner], s.of[v]),
                         note, absl::StrCat("operand ", edge.outer));
    }
    std::vector<Value> out;
    if (!map.manual_axes.empty()) {
      // The body is per-shard code over its axes already: inline it.
      std::vector<Value> params(body.num_params);
      for (const ir::DataFlowEdge& edge : map.operands) params[edge.inner] = args[edge.outer];
      const std::vector<Value> results = Body(body, inner, b, params, depth + 1);
      out.resize(op.results.size());
      for (const ir::DataFlowEdge& edge : map.results) out[edge.outer] = results[edge.inner];
    } else {
      FunctionRef local = LocalBody(body, inner, b, map, depth + 1);
      out = b.Emit(*op.def, args, op.attrs, {local});
    }
    for (const ir::DataFlowEdge& edge : map.results) {
      const ValueId v = op.results[edge.outer];
      const DimAxes& sharding = inner.of[ShardingSource(body, map, edge.inner)];
      out[edge.outer] = ReshardAndNote(out[edge.outer], f.types[v], Needed(edge, sharding, s.of[v]),
                                       s.of[v], note, "result");
    }
    return out;
  }

  // The value of the region whose sharding a result has: its own, or that of the carry's param.
  static ValueId ShardingSource(const Function& body, const ir::RegionDataFlow& map, int result) {
    for (const auto& [param, carried] : map.carries)
      if (carried == result) return param;
    return body.results[result];
  }

  // The region at shards' types; carried results are resharded as their params are.
  FunctionRef LocalBody(const Function& body, const FunctionShardings& s, Builder& outer,
                        const ir::RegionDataFlow& map, int depth) {
    Builder b(outer.scope(), body.name);
    std::vector<Value> params;
    for (int i = 0; i < body.num_params; ++i)
      params.push_back(b.Param(ir::LocalType(body.types[i], s.of[i], body.scope.mesh)));
    std::vector<Value> results = Body(body, s, b, params, depth);
    for (const auto& [param, result] : map.carries)
      results[result] = Reshard(results[result], s.of[body.results[result]], s.of[param]);
    return b.Build(results);
  }

  std::vector<OpExplanation>* notes_;
};

}  // namespace

absl::StatusOr<PartitionedProgram> Partition(const ir::Program& program,
                                             const FunctionShardings& s) {
  const Function& f = *program.entry;
  PartitionedProgram out;
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] {
    std::vector<std::string> names;
    for (const ir::MeshAxis& a : f.scope.mesh.axes) names.push_back(a.name);
    Builder b({f.scope.mesh.With(names, ir::AxisType::kManual), /*check_vma=*/false}, f.name);
    std::vector<Value> params;
    for (int i = 0; i < f.num_params; ++i) {
      params.push_back(b.Param(ir::LocalType(f.types[i], s.of[i], f.scope.mesh)));
      out.in.push_back(SpecFrom(s.of[i]));
    }
    std::vector<Value> results = Partitioner(&out.notes).Body(f, s, b, params, 0);
    for (size_t r = 0; r < results.size(); ++r) {
      const ValueId v = f.results[r];
      DimAxes want = s.of[v];
      if (r < program.out_shardings.size() && program.out_shardings[r]) {
        want = program.out_shardings[r]->dims;
        want.resize(f.types[v].rank());
      }
      results[r] = Reshard(results[r], s.of[v], want);
      out.out.push_back(SpecFrom(want));
    }
    out.fn = b.Build(results);
  }));
  return out;
}

}  // namespace tessera::server::planner
