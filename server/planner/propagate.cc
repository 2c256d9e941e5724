// The pass that finds a sharding for every value. MakePlan calls Seed and then Propagate; the
// partitioner and cuts.cc read the result. A value's sharding only grows, and ops are visited again
// only when one of their tensors has grown, so that large programs settle in a few sweeps.
#include "server/planner/propagate.h"

#include <algorithm>
#include <set>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "ir/spec.h"

namespace tessera::server::planner {
namespace {

using ir::AxisList;
using ir::DimAxes;
using ir::Function;
using ir::IsPrefix;
using ir::Op;
using ir::Signature;
using ir::Type;
using ir::ValueId;

bool Uses(const DimAxes& dims, const std::string& axis) { return DimOf(dims, axis) >= 0; }

// A function that says what decided that a value is sharded by an axis.
using OriginFn = absl::FunctionRef<std::string(const std::string& axis)>;

// Extends the sharding of one dim of value `v` to `want`, if the present sharding of the dim is a
// prefix of `want`, the new axes are unused in `v`, and they divide the dim evenly. Returns whether
// the sharding has grown.
bool Grow(const Function& f, FunctionShardings* s, ValueId v, int dim, const AxisList& want,
          OriginFn origin_of) {
  DimAxes& have = s->shardings[v];
  if (s->fixed_sharding[v] || have[dim].size() >= want.size() || !IsPrefix(have[dim], want))
    return false;
  for (size_t i = have[dim].size(); i < want.size(); ++i)
    if (Uses(have, want[i]) || f.scope.mesh.IsManual(want[i]) ||
        f.types[v].unreduced.contains(want[i]))
      return false;
  if (f.types[v].shape[dim] % f.scope.mesh.SizeOf(want) != 0) return false;
  for (size_t i = have[dim].size(); i < want.size(); ++i)
    s->origins[v][want[i]] = origin_of(want[i]);
  have[dim] = want;
  s->grown_at[v] = ++s->clock;
  s->settled = false;
  return true;
}

// Returns the name of the op and its call site, such as "add at model.cc:7".
std::string OpText(const Function& f, size_t op) {
  std::string text(f.ops[op].def->name);
  if (f.sites[op].valid()) absl::StrAppend(&text, " at ", f.sites[op].ToString());
  return text;
}

// The phases of propagation. Factors that pass through to a result come first; factors that are
// summed pass axes between operands only in the last phase. For example, a matmul contracts the
// columns of the activations with the rows of a weight. If the rows of the weight are sharded, the
// columns of the activations become sharded too only in the last phase, when the batch has already
// taken its axes. Shardy's priorities of ops have the same purpose.
enum class Phase : uint8_t { kPassing, kSummed };

// Visits an op without planned regions: passes shardings along its factors. Returns whether a
// sharding has grown.
bool SweepOp(const Function& f, size_t index, FunctionShardings* s, Phase phase) {
  const Op& op = f.ops[index];
  const Signature& sig = s->signatures[index];
  const std::vector<DimAxes> in = ir::ElementsAt(s->shardings, op.operands);
  const std::vector<DimAxes> out = ir::ElementsAt(s->shardings, op.results);
  const std::vector<AxisList> axes =
      ChooseFactorAxes(f, op, sig, in, out, /*summed=*/phase == Phase::kSummed);
  auto origin_of = [&](const std::string& axis) {
    for (size_t i = 0; i < in.size(); ++i)
      if (Uses(in[i], axis)) return s->origins[op.operands[i]][axis];
    for (size_t i = 0; i < out.size(); ++i)
      if (Uses(out[i], axis)) return s->origins[op.results[i]][axis];
    return OpText(f, index);
  };
  bool changed = false;
  auto project = [&](ValueId v, const ir::TensorFactors& dims) {
    const DimAxes want = ir::JoinAxes(dims, axes);
    for (size_t d = 0; d < want.size(); ++d)
      changed |= Grow(f, s, v, static_cast<int>(d), want[d], origin_of);
  };
  for (size_t i = 0; i < in.size(); ++i) project(op.operands[i], sig.operands[i]);
  for (size_t i = 0; i < out.size(); ++i) project(op.results[i], sig.results[i]);
  return changed;
}

// Leaves a factor whole if a more major factor of its dim is not sharded down to single elements.
// The shards of such a dim would not be contiguous, which no sharding of the dim can express.
// (Example: a factor 8@x that is merged behind a whole factor 4 into a dim of 32.)
void KeepBlocksContiguous(const Signature& sig, const ir::Mesh& mesh, std::vector<AxisList>* axes) {
  bool changed = true;
  auto visit = [&](const ir::TensorFactors& dims) {
    for (const ir::FactorList& dim : dims) {
      bool is_fully_sharded =
          true;  // true while all factors so far are sharded down to single elements
      for (int f : dim) {
        AxisList& cut = (*axes)[f];
        if (!is_fully_sharded && !cut.empty()) {
          cut.clear();
          changed = true;
        }
        is_fully_sharded = is_fully_sharded && mesh.SizeOf(cut) == sig.factors[f].size;
      }
    }
  };
  while (changed) {
    changed = false;
    for (const ir::TensorFactors& dims : sig.operands) visit(dims);
    for (const ir::TensorFactors& dims : sig.results) visit(dims);
  }
}

// Gives a value outside a region and the region's value at the other end of `edge` the same
// sharding, dim by dim the longer of the two. Returns whether one of them has grown.
bool SyncEdge(const Function& outer, FunctionShardings* os, ValueId ov, const Function& inner,
              FunctionShardings* is, ValueId iv, const ir::DataFlowEdge& edge,
              const std::string& op_text) {
  auto from_outer = [&](const std::string& axis) { return os->origins[ov][axis]; };
  auto from_inner = [&](const std::string& axis) {
    const auto known = is->origins[iv].find(axis);
    return known == is->origins[iv].end() ? op_text : known->second;
  };
  bool changed = false;
  const int offset = edge.leading_dim ? 1 : 0;
  for (int d = 0; d < inner.types[iv].rank(); ++d) {
    const AxisList prefix = edge.prefix.empty() ? AxisList{} : edge.prefix[d];
    const AxisList& o = os->shardings[ov][d + offset];
    if (o.size() > prefix.size() && IsPrefix(prefix, o))
      changed |= Grow(inner, is, iv, d, {o.begin() + prefix.size(), o.end()}, from_outer);
    AxisList want = prefix;
    const AxisList& i = is->shardings[iv][d];
    want.insert(want.end(), i.begin(), i.end());
    changed |= Grow(outer, os, ov, d + offset, want, from_inner);
  }
  return changed;
}

// Propagates in one phase until nothing changes.
void Settle(const Function& f, FunctionShardings* s, Phase phase);

// Visits an op with planned regions. Passes shardings from its operands into the regions, settles
// the regions, and passes shardings out to its results. A loop's carry has one sharding in all
// iterations, so the param and the result of a carry are made equal. Returns whether anything has
// grown.
bool SweepRegions(const Function& f, size_t index, FunctionShardings* s, Phase phase) {
  const Op& op = f.ops[index];
  const ir::DataFlow flow = ir::DataFlowOf(f, op);
  const std::string op_text = OpText(f, index);
  bool changed = false;
  for (size_t k = 0; k < op.regions.size(); ++k) {
    const Function& region = *op.regions[k];
    FunctionShardings* inner = s->regions.at(static_cast<int>(index))[k].get();
    for (const ir::DataFlowEdge& edge : flow.regions[k].operands)
      changed |= SyncEdge(f, s, op.operands[edge.outer], region, inner, edge.inner, edge, op_text);
    // Settles a region only if something in it has grown since it was last settled. Each sweep
    // visits inner regions twice, forwards and backwards. If every visit settled them, the time for
    // nested regions would be exponential in the depth of the nest.
    if (!inner->settled) {
      changed = true;
      s->visited_at[index] = -1;  // The next visit passes the growth inside on to the operands.
      Settle(region, inner, phase);
    }
    for (const ir::DataFlowEdge& edge : flow.regions[k].results)
      changed |= SyncEdge(f, s, op.results[edge.outer], region, inner, region.results[edge.inner],
                          edge, op_text);
    for (const auto& carry : flow.regions[k].carries) {
      const int param = carry.first;
      const ValueId r = region.results[carry.second];
      for (int d = 0; d < region.types[param].rank(); ++d) {
        changed |= Grow(region, inner, param, d, inner->shardings[r][d],
                        [&](const std::string& axis) { return inner->origins[r][axis]; });
        changed |= Grow(region, inner, r, d, inner->shardings[param][d],
                        [&](const std::string& axis) { return inner->origins[param][axis]; });
      }
    }
  }
  return changed;
}

// Returns whether a visit of the op may change something: whether a tensor or a region of the op
// has changed since the last visit.
bool NeedsVisit(const Function& f, size_t index, const FunctionShardings& s) {
  const int64_t visited = s.visited_at[index];
  const auto is_new = [&](ValueId v) { return s.grown_at[v] > visited; };
  const Op& op = f.ops[index];
  if (visited < 0 || std::any_of(op.operands.begin(), op.operands.end(), is_new) ||
      std::any_of(op.results.begin(), op.results.end(), is_new))
    return true;
  if (!op.def->data_flow) return false;
  const auto& inner = s.regions.at(static_cast<int>(index));
  return std::any_of(inner.begin(), inner.end(), [](const auto& r) { return !r->settled; });
}

// Visits all ops that need a visit, forwards and then backwards. Returns whether a sharding has
// grown.
bool Sweep(const Function& f, FunctionShardings* s, Phase phase) {
  bool changed = false;
  auto visit = [&](size_t i) {
    if (!NeedsVisit(f, i, *s)) return;
    s->visited_at[i] = s->clock;
    changed |= f.ops[i].def->data_flow ? SweepRegions(f, i, s, phase) : SweepOp(f, i, s, phase);
  };
  for (size_t i = 0; i < f.ops.size(); ++i) visit(i);
  for (size_t i = f.ops.size(); i-- > 0;) visit(i);
  return changed;
}

void Settle(const Function& f, FunctionShardings* s, Phase phase) {
  if (s->signatures.empty()) {
    s->signatures.resize(f.ops.size());
    for (size_t i = 0; i < f.ops.size(); ++i)
      if (!f.ops[i].def->data_flow) s->signatures[i] = ir::SignatureOf(f, f.ops[i]);
  }
  while (Sweep(f, s, phase)) {
  }
  s->settled = true;
}

// Makes the next sweep visit all ops again, including the ops in regions.
void Reopen(FunctionShardings* s) {
  std::fill(s->visited_at.begin(), s->visited_at.end(), -1);
  s->settled = false;
  for (auto& [op, regions] : s->regions)
    for (auto& region : regions) Reopen(region.get());
}

// Returns the shardings that Explicit types give. All other values are unsharded.
std::unique_ptr<FunctionShardings> InitialShardings(const Function& f) {
  auto s = std::make_unique<FunctionShardings>();
  for (const Type& t : f.types) s->shardings.emplace_back(t.rank());
  s->origins.resize(f.types.size());
  s->fixed_sharding.resize(f.types.size());
  s->grown_at.resize(f.types.size());
  s->visited_at.resize(f.ops.size(), -1);
  for (size_t v = 0; v < f.types.size(); ++v)
    if (f.types[v].is_sharded()) {
      s->shardings[v] = f.types[v].sharding;
      for (const AxisList& dim : s->shardings[v])
        for (const std::string& axis : dim) s->origins[v][axis] = "its Explicit type";
    }
  for (size_t i = 0; i < f.ops.size(); ++i)
    if (f.ops[i].def->data_flow)
      for (const ir::FunctionRef& region : f.ops[i].regions)
        s->regions[static_cast<int>(i)].push_back(InitialShardings(*region));
  return s;
}

// Checks that the spec's axes exist, appear once and divide the dims of value `v`.
absl::Status CheckSpec(const Function& f, ValueId v, const ir::PartitionSpec& spec,
                       const std::string& what) {
  const Type& t = f.types[v];
  const std::optional<ir::SpecFault> fault = ir::FindSpecFault(spec, f.scope.mesh, t.shape);
  if (!fault) return absl::OkStatus();
  switch (fault->kind) {
    case ir::SpecFault::kTooLong:
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat(what, ": spec ", spec.ToString(), " has ", spec.dims.size(),
                                    " entries, which is too long for ", t.ToString()));
    case ir::SpecFault::kUnknownAxis:
      return MakeError(ErrorKind::kUnknownAxis,
                       absl::StrCat(what, ": Resource axis: ", fault->axis, " of ", spec.ToString(),
                                    " is not found in mesh ", f.scope.mesh.ToString()));
    case ir::SpecFault::kAxisTwice:
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat(what, ": spec ", spec.ToString(), " names axis '", fault->axis, "' twice"));
    case ir::SpecFault::kIndivisible:
      break;
  }
  return MakeError(
      ErrorKind::kIndivisible,
      absl::StrCat(what, ": dim ", fault->dim, " of ", t.ToString(), " has size ",
                   t.shape[fault->dim], ", which is not evenly divisible by the ", fault->shards,
                   " shards of ", spec.ToString(), "; pad the dim or choose another axis"));
}

// Gives `v` the sharding of the spec. The sharding may grow later only if the spec has an open dim.
absl::Status FixSharding(const Function& f, FunctionShardings* s, ValueId v,
                         const ir::PartitionSpec& spec, const std::string& what) {
  TESSERA_RETURN_IF_ERROR(CheckSpec(f, v, spec, what));
  s->shardings[v] = spec.dims;
  s->shardings[v].resize(f.types[v].rank());
  for (const AxisList& dim : s->shardings[v])
    for (const std::string& axis : dim) s->origins[v][axis] = what;
  s->fixed_sharding[v] = std::find(spec.open.begin(), spec.open.end(), true) == spec.open.end();
  return absl::OkStatus();
}

// Returns an argument's spec together with the Explicit axes of its type. The spec may leave out
// the axes of the type, but must not name them for other dims.
absl::StatusOr<ir::PartitionSpec> WithExplicitAxes(const Type& type, ir::PartitionSpec spec,
                                                   const std::string& what) {
  if (!type.is_sharded()) return spec;
  if (static_cast<int>(spec.dims.size()) < type.rank()) spec.dims.resize(type.rank());
  for (int d = 0; d < type.rank(); ++d) {
    AxisList missing;
    for (const std::string& axis : type.sharding[d]) {
      const auto at = std::find_if(spec.dims.begin(), spec.dims.end(), [&](const AxisList& axes) {
        return std::find(axes.begin(), axes.end(), axis) != axes.end();
      });
      if (at == spec.dims.end()) {
        missing.push_back(axis);
      } else if (at != spec.dims.begin() + d) {
        return MakeError(
            ErrorKind::kShardingTypeError,
            absl::StrCat(what, ": spec ", spec.ToString(), " cuts dim ", at - spec.dims.begin(),
                         " by Explicit axis '", axis, "', its type ", type.ToString(), " dim ", d,
                         "; leave the axis out of the spec"));
      }
    }
    spec.dims[d].insert(spec.dims[d].begin(), missing.begin(), missing.end());
  }
  return spec;
}

absl::Status SeedFixedOps(const Function& f, FunctionShardings* s) {
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    if (op.def->fixed_sharding)
      if (const ir::PartitionSpec* spec = op.def->fixed_sharding(op.attrs)) {
        ir::PartitionSpec rest = *spec;  // the spec without the axes that are Manual here
        for (AxisList& d : rest.dims)
          std::erase_if(d, [&](const std::string& a) { return f.scope.mesh.IsManual(a); });
        TESSERA_RETURN_IF_ERROR(FixSharding(f, s, op.results[0], rest, OpText(f, i)));
      }
    if (auto it = s->regions.find(static_cast<int>(i)); it != s->regions.end())
      for (size_t k = 0; k < op.regions.size(); ++k)
        TESSERA_RETURN_IF_ERROR(SeedFixedOps(*op.regions[k], it->second[k].get()));
  }
  return absl::OkStatus();
}

}  // namespace

// Splits each tensor's sharding into the axes of each of its factors, and keeps one suggestion for
// each factor. A new suggestion replaces the kept one if it extends it, or if it conflicts with it
// and comes from a larger tensor. Two factors may then want the same axis, which goes to the factor
// with the larger tensor. The sort is stable, so that the same program always gets the same axes.
std::vector<AxisList> ChooseFactorAxes(const Function& f, const Op& op, const Signature& sig,
                                       const std::vector<DimAxes>& operands,
                                       const std::vector<DimAxes>& results, bool summed) {
  std::vector<AxisList> axes(sig.factors.size());
  std::vector<int64_t> weight(sig.factors.size(), -1);
  auto consider = [&](ValueId v, const ir::TensorFactors& dims, const DimAxes& sharding) {
    const int64_t bytes = f.types[v].num_bytes();
    for (size_t d = 0; d < dims.size(); ++d) {
      if (sharding[d].empty()) continue;
      const auto split = ir::SplitAxes(sharding[d], dims[d], sig, f.scope.mesh);
      if (!split) continue;
      for (size_t k = 0; k < split->size(); ++k) {
        const int factor = dims[d][k];
        const AxisList& want = (*split)[k];
        const ir::FactorKind kind = sig.factors[factor].kind;
        if (want.empty() || kind == ir::FactorKind::kReplicated ||
            (kind == ir::FactorKind::kReduction && !summed))
          continue;
        const bool longer = want.size() > axes[factor].size() && IsPrefix(axes[factor], want);
        if (axes[factor].empty() || longer ||
            (!IsPrefix(want, axes[factor]) && bytes > weight[factor])) {
          axes[factor] = want;
          weight[factor] = std::max(weight[factor], bytes);
        }
      }
    }
  };
  for (size_t i = 0; i < operands.size(); ++i)
    consider(op.operands[i], sig.operands[i], operands[i]);
  for (size_t i = 0; i < results.size(); ++i) consider(op.results[i], sig.results[i], results[i]);
  // Each axis serves one factor: the one whose tensor is larger. If the tensors are equal, the
  // factor that comes first in the signature gets it, which for a dot_general is one that passes
  // through.
  std::vector<size_t> order(axes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weight[a] > weight[b]; });
  std::set<std::string> taken;
  for (const ValueId v : op.operands)
    taken.insert(f.types[v].unreduced.begin(), f.types[v].unreduced.end());
  for (size_t factor : order) {
    AxisList kept;
    for (const std::string& a : axes[factor]) {
      if (!taken.insert(a).second) break;
      kept.push_back(a);
    }
    axes[factor] = std::move(kept);
  }
  KeepBlocksContiguous(sig, f.scope.mesh, &axes);
  return axes;
}

AxisList PendingSumAxes(const Function& f, ValueId v) {
  AxisList axes;
  for (const std::string& axis : f.types[v].unreduced)
    if (!f.scope.mesh.IsManual(axis)) axes.push_back(axis);
  return axes;
}

int DimOf(const DimAxes& dims, const std::string& axis) {
  for (size_t d = 0; d < dims.size(); ++d)
    if (std::find(dims[d].begin(), dims[d].end(), axis) != dims[d].end())
      return static_cast<int>(d);
  return -1;
}

absl::Status Seed(const ir::Program& program, FunctionShardings* s) {
  const Function& f = *program.entry;
  *s = std::move(*InitialShardings(f));
  for (size_t i = 0; i < program.in_shardings.size(); ++i) {
    if (!program.in_shardings[i]) continue;
    const std::string what = ir::ArgumentText(program, i);
    TESSERA_ASSIGN_OR_RETURN(const ir::PartitionSpec spec,
                             WithExplicitAxes(f.types[i], *program.in_shardings[i], what));
    TESSERA_RETURN_IF_ERROR(FixSharding(f, s, static_cast<ValueId>(i), spec, what));
  }
  for (size_t r = 0; r < program.out_shardings.size(); ++r) {
    const ValueId v = f.results[r];
    if (!program.out_shardings[r]) continue;
    const std::string what = ir::ResultText(program, r);
    TESSERA_RETURN_IF_ERROR(s->fixed_sharding[v]
                                ? CheckSpec(f, v, *program.out_shardings[r], what)
                                : FixSharding(f, s, v, *program.out_shardings[r], what));
  }
  return SeedFixedOps(f, s);
}

std::string OriginText(const FunctionShardings& s, ValueId v) {
  std::vector<std::pair<std::string, std::string>> rows;  // origin, and the axes it decided
  for (const AxisList& dim : s.shardings[v])
    for (const std::string& axis : dim) {
      const auto known = s.origins[v].find(axis);
      if (known == s.origins[v].end()) continue;
      const auto row = std::find_if(rows.begin(), rows.end(),
                                    [&](const auto& r) { return r.first == known->second; });
      if (row == rows.end()) {
        rows.emplace_back(known->second, axis);
      } else {
        absl::StrAppend(&row->second, ",", axis);
      }
    }
  if (rows.size() == 1) return rows[0].first;
  return absl::StrJoin(rows, "; ", [](std::string* out, const auto& row) {
    absl::StrAppend(out, row.second, ": ", row.first);
  });
}

void Propagate(const Function& f, FunctionShardings* s) {
  Settle(f, s, Phase::kPassing);
  Reopen(s);
  Settle(f, s, Phase::kSummed);
}

}  // namespace tessera::server::planner
