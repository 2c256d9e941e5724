// Checks, factors and index arithmetic for windows at index vectors (windows.h). gather.cc and
// scatter.cc call these functions from their rules, and their evaluators walk over the windows with
// them.
#include "ir/ops/rules/windows.h"

#include <limits>

#include "absl/strings/str_join.h"

namespace tessera::ir::ops {
namespace {

constexpr const char* kModes[] = {"clip", "fill_or_drop", "promise_in_bounds"};

absl::Status CheckDims(const InferContext& c, std::string_view what, const DimList& dims, int rank,
                       bool sorted) {
  TESSERA_RETURN_IF_ERROR(CheckDistinctDims(c, what, dims, rank));
  if (sorted && !std::is_sorted(dims.begin(), dims.end()))
    return ValueError(c, ToAbsl(what), " is [", absl::StrJoin(dims, ","),
                      "]; expected ascending dims");
  return absl::OkStatus();
}

}  // namespace

Geometry::Geometry(const WindowDims& w, int operand_rank, int indices_rank) {
  const int num_position_dims = indices_rank - (w.index_vector_dim < indices_rank ? 1 : 0);
  block_rank = num_position_dims + static_cast<int>(w.window.size());
  operand_to_entry.assign(operand_rank, -1);
  operand_to_block.assign(operand_rank, -1);
  operand_to_indices.assign(operand_rank, -1);
  indices_to_block.assign(indices_rank, -1);
  for (size_t k = 0; k < w.index_map.size(); ++k)
    operand_to_entry[w.index_map[k]] = static_cast<int64_t>(k);
  for (size_t k = 0; k < w.batching.size(); ++k)
    operand_to_indices[w.batching[k]] = w.indices_batching[k];
  const DimList windowed = DimsExcept(operand_rank, w.collapsed, w.batching);
  for (size_t k = 0; k < windowed.size(); ++k) operand_to_block[windowed[k]] = w.window[k];
  const DimList positions = DimsExcept(block_rank, w.window);
  for (int d = 0, next = 0; d < indices_rank; ++d)
    if (d != w.index_vector_dim) indices_to_block[d] = positions[next++];
}

// Checks the constraints that gather and the scatters share, with StableHLO's names of the
// attributes in the errors. Everything later relies on this check: Geometry indexes its lists by
// these numbers without looking.
absl::Status CheckDimensionNumbers(const InferContext& c, const WindowDims& w,
                                   const WindowAttrNames& names) {
  const Type &x = c.in[0], &indices = c.in[1];
  if (!IsInteger(indices.dtype))
    return TypeError(c, "indices are ", indices.ToString(), "; expected an integer type");
  TESSERA_RETURN_IF_ERROR(CheckComputable(c, indices.dtype));
  if (w.index_vector_dim < 0 || w.index_vector_dim > indices.rank())
    return ValueError(c, "index_vector_dim is ", w.index_vector_dim, "; expected one in [0, ",
                      indices.rank(), "] for indices ", indices.ToString());
  const bool has_vector_dim = w.index_vector_dim < indices.rank();
  const int64_t entries = has_vector_dim ? indices.shape[w.index_vector_dim] : 1;
  if (entries != static_cast<int64_t>(w.index_map.size()))
    return ValueError(c, "an index vector of ", indices.ToString(), " has ", entries,
                      " entries; expected one for each of the ", w.index_map.size(), " dims of ",
                      ToAbsl(names.index_map));
  const int block_rank =
      indices.rank() - (has_vector_dim ? 1 : 0) + static_cast<int>(w.window.size());
  TESSERA_RETURN_IF_ERROR(CheckDims(c, names.window, w.window, block_rank, /*sorted=*/true));
  TESSERA_RETURN_IF_ERROR(CheckDims(c, names.collapsed, w.collapsed, x.rank(), /*sorted=*/true));
  TESSERA_RETURN_IF_ERROR(CheckDims(c, names.batching, w.batching, x.rank(), /*sorted=*/true));
  TESSERA_RETURN_IF_ERROR(CheckDims(c, names.indices_batching, w.indices_batching, indices.rank(),
                                    /*sorted=*/false));
  TESSERA_RETURN_IF_ERROR(CheckDims(c, names.index_map, w.index_map, x.rank(), /*sorted=*/false));
  if (w.window.size() + w.collapsed.size() + w.batching.size() != static_cast<size_t>(x.rank()))
    return ValueError(c, ToAbsl(names.window), ", ", ToAbsl(names.collapsed), " and ",
                      ToAbsl(names.batching), " have ", w.window.size(), " + ", w.collapsed.size(),
                      " + ", w.batching.size(), " dims; expected one for each dim of the operand ",
                      x.ToString());
  if (w.batching.size() != w.indices_batching.size())
    return ValueError(c, ToAbsl(names.batching), " has ", w.batching.size(), " dims and ",
                      ToAbsl(names.indices_batching), " has ", w.indices_batching.size(),
                      "; expected equal numbers");
  for (size_t k = 0; k < w.batching.size(); ++k) {
    const int64_t d = w.batching[k], i = w.indices_batching[k];
    if (Contains(w.collapsed, d) || Contains(w.index_map, d))
      return ValueError(c, "operand dim ", d, " is in ", ToAbsl(names.batching), " and in ",
                        ToAbsl(Contains(w.collapsed, d) ? names.collapsed : names.index_map),
                        "; expected it in one of them");
    if (i == w.index_vector_dim)
      return ValueError(c, ToAbsl(names.indices_batching), " names dim ", i,
                        ", along which the index vectors lie");
    if (x.shape[d] != indices.shape[i])
      return ValueError(c, "operand dim ", d, " of ", x.ToString(), " is batched with dim ", i,
                        " of indices ", indices.ToString(), "; expected equal sizes");
  }
  return absl::OkStatus();
}

absl::Status CheckWindow(const InferContext& c, const WindowDims& w, const Dims& sizes) {
  const Type& x = c.in[0];
  for (int d = 0; d < x.rank(); ++d) {
    const bool is_single = Contains(w.collapsed, d) || Contains(w.batching, d);
    const int64_t most = is_single ? std::min<int64_t>(x.shape[d], 1) : x.shape[d];
    if (sizes[d] < 0 || sizes[d] > most)
      return ValueError(c, "the window along dim ", d, " of ", x.ToString(), " has ", sizes[d],
                        " elements; expected ", most, " at most");
  }
  return absl::OkStatus();
}

absl::Status CheckMode(const InferContext& c) {
  const std::string& mode = c.attrs.Str("mode");
  if (std::find(std::begin(kModes), std::end(kModes), mode) != std::end(kModes))
    return absl::OkStatus();
  return ValueError(c, "mode is '", mode, "'; expected one of ", absl::StrJoin(kModes, ", "));
}

GatherScatterMode ModeOf(const Attrs& attrs) {
  const auto* at = std::find(std::begin(kModes), std::end(kModes), attrs.Str("mode"));
  return static_cast<GatherScatterMode>(at - std::begin(kModes));
}
std::string NameOf(GatherScatterMode mode) { return kModes[static_cast<size_t>(mode)]; }

void SetOptions(const GatherScatterOptions& options, Attrs* attrs) {
  attrs->Set("mode", NameOf(options.mode));
  if (options.indices_are_sorted) attrs->Set("indices_are_sorted", true);
  if (options.unique_indices) attrs->Set("unique_indices", true);
  if (options.out_sharding != nullptr) attrs->Set("out_sharding", *options.out_sharding);
}

Attrs WithOptionsOf(const Attrs& other) {
  Attrs attrs = {{"mode", other.Str("mode")}};
  for (const char* promise : {"indices_are_sorted", "unique_indices"})
    if (other.Has(promise)) attrs.Set(promise, other.Bool(promise));
  return attrs;
}

Value EmitMatched(const OpDef& def, std::vector<Value> in, Attrs attrs) {
  Builder& b = in[0].builder();
  return b.Emit1(def, MatchVarying(std::move(in)), std::move(attrs));
}

// Assigns the factors of the indices first, because the block shares the factors of the positions,
// and the operand shares the factors of the dims with which it is batched. A dim of the block whose
// window is smaller than the operand gets a factor of its own that needs replication.
WindowFactors FactorsOf(const Geometry& g, const Type& x, const Type& indices, const Type& block,
                        WindowFactorKinds kinds) {
  WindowFactors f;
  f.block.resize(g.block_rank);
  std::vector<int> of_indices;
  for (int d = 0; d < indices.rank(); ++d) {
    const int64_t at = g.indices_to_block[d];
    const bool is_batched = Contains(g.operand_to_indices, d);
    const FactorKind kind = at < 0       ? FactorKind::kReplicated
                            : is_batched ? FactorKind::kPassThrough
                                         : kinds.positions;
    of_indices.push_back(f.s.Add(kind, indices.shape[d]));
    f.indices.push_back({of_indices[d]});
    if (at >= 0) f.block[at] = {of_indices[d]};
  }
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t at = g.operand_to_block[d], batch = g.operand_to_indices[d];
    if (batch >= 0) {
      f.operand.push_back({of_indices[batch]});
      continue;
    }
    const bool is_whole = at >= 0 && block.shape[at] == x.shape[d];
    const bool is_indexed = g.operand_to_entry[d] >= 0 && (at < 0 || block.shape[at] == 1);
    const FactorKind kind = is_whole     ? FactorKind::kPassThrough
                            : is_indexed ? kinds.indexed
                                         : FactorKind::kReplicated;
    f.operand.push_back({f.s.Add(kind, x.shape[d])});
    if (at < 0) continue;
    f.block[at] =
        is_whole ? f.operand[d] : FactorList{f.s.Add(FactorKind::kReplicated, block.shape[at])};
  }
  return f;
}

std::optional<AxisList> AgreedAxes(const AxisList& a, const AxisList& b) {
  if (a == b || b.empty()) return a;
  if (a.empty()) return b;
  return std::nullopt;
}

bool NamesAxisTwice(const Type& t) {
  AxisSet seen;
  for (int d = 0; d < t.rank(); ++d)
    for (const std::string& a : t.axes_of(d))
      if (!seen.insert(a).second) return true;
  return false;
}

absl::Status OutShardingNeededError(const InferContext& c, std::string_view method) {
  return ShardingError(c, "Use `.at[...].", ToAbsl(method),
                       "(out_sharding=)` to provide the sharding of the result, which ",
                       TypesToString(c.in),
                       " leave open (or which would need communication); or reshard the indices");
}

namespace {

DimList ShiftedByOne(const DimList& dims) { return PastBatch(dims, 0); }
DimList WithLeadingDim(const DimList& dims) {
  return WithInserted(ShiftedByOne(dims), 0, int64_t{0});
}

}  // namespace

WindowDims BatchedDims(WindowDims w, bool is_operand_batched, bool are_indices_batched) {
  w.index_vector_dim += are_indices_batched ? 1 : 0;
  if (are_indices_batched) w.indices_batching = ShiftedByOne(w.indices_batching);
  if (is_operand_batched) {
    w.collapsed = ShiftedByOne(w.collapsed);
    w.index_map = ShiftedByOne(w.index_map);
  }
  if (is_operand_batched && are_indices_batched) {
    w.batching = WithLeadingDim(w.batching);
    w.indices_batching.insert(w.indices_batching.begin(), 0);
    w.window = ShiftedByOne(w.window);
  } else if (is_operand_batched) {
    w.batching = ShiftedByOne(w.batching);
    // A window takes the mapped dim whole.
    w.window = WithLeadingDim(w.window);
  } else {
    w.window = ShiftedByOne(w.window);
  }
  return w;
}

// Clamps each entry to the starts of windows within the whole operand, because the mode of the op
// refers to whole arrays. Then subtracts the beginning of this shard's block. The arithmetic is
// done in a signed type that holds every start. With fill_or_drop, entries that are out of bounds
// of the whole operand become -1, so that no shard has their window.
LocalIndices LocalIndicesOf(const RuleContext& c, const PartitionContext& p, const WindowDims& w,
                            const Dims& window) {
  LocalIndices local;
  local.indices = c.in[1];
  const Type& whole = c.in_types[0];
  const auto axes_of = [&](int64_t d) { return p.factor_axes[p.signature.operands[0][d][0]]; };
  const auto is_indexed = [&](int64_t d) { return window[d] < whole.shape[d]; };
  for (const int64_t d : w.index_map)
    if (is_indexed(d)) {
      const AxisList axes = axes_of(d);
      local.axes.insert(local.axes.end(), axes.begin(), axes.end());
    }
  if (local.axes.empty()) return local;

  // For each entry of an index vector, `lasts` holds the last start within the operand, and
  // `begins` the position where the shard's block begins.
  const DType index = c.in[1].dtype();
  const bool wide = std::any_of(whole.shape.begin(), whole.shape.end(),
                                [](int64_t n) { return n > std::numeric_limits<int32_t>::max(); });
  const DType offset = wide ? DType::kS64 : DType::kS32;
  const auto bits = static_cast<int>(8 * ByteWidth(index)) - (IsSignedInt(index) ? 1 : 0);
  const int64_t index_max =
      bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  std::vector<Value> lasts, begins;
  for (const int64_t d : w.index_map) {
    const int64_t last = std::min(whole.shape[d] - window[d], index_max);
    lasts.push_back(Reshape(Constant(c.b, Array::ScalarInt(index, last)), {1}));
    Value begin = Constant(c.b, offset, 0);
    if (is_indexed(d) && !axes_of(d).empty()) {
      const Value block = Constant(c.b, Array::ScalarInt(offset, c.in[0].dim(static_cast<int>(d))));
      begin = Mul(Convert(AxisIndex(c.b, axes_of(d)), offset), block);
    }
    begins.push_back(Reshape(begin, {1}));
  }
  // Spreads values, one for each entry of a vector, over all elements of the indices.
  const auto spread = [&](std::vector<Value> entries) {
    const Value all = Concatenate(std::move(entries), 0);
    const int rank = c.in[1].rank();
    return w.index_vector_dim < rank ? BroadcastInDim(all, c.in[1].shape(), {w.index_vector_dim})
                                     : BroadcastInDim(Reshape(all, {}), c.in[1].shape(), {});
  };
  const Value last = spread(std::move(lasts)), begin = spread(std::move(begins));
  const Value zero = FullLike(last, 0);
  const Value inside = Clamp(zero, c.in[1], last);
  local.indices = Sub(Convert(inside, offset), begin);
  if (ModeOf(c.attrs) == GatherScatterMode::kFillOrDrop) {
    local.in_bounds = Compare(inside, c.in[1], "EQ");
    local.indices = Select(local.in_bounds, local.indices, FullLike(local.indices, -1));
  }
  return local;
}

Value AdditiveIdentity(Value like) { return FullLike(like, IsFloat(like.dtype()) ? -0.0 : 0.0); }

int64_t IndexAt(const Array& indices, int64_t at) {
  const int64_t v = indices.IntAt(at);
  return indices.dtype() == DType::kU64 && v < 0 ? std::numeric_limits<int64_t>::max() : v;
}

WindowRuns::WindowRuns(const Geometry& g, const Dims& operand_shape, const Dims& window,
                       const Dims& block_shape) {
  const Dims from = StridesOf(operand_shape), to = StridesOf(block_shape);
  operand = block = {0};
  for (size_t k = window.size(); k-- > 0;) {
    if (window[k] == 1 || g.operand_to_block[k] < 0) continue;
    const int64_t a = from[k], b = to[g.operand_to_block[k]], n = window[k];
    if (operand.size() == 1 && a == length && b == length) {
      length *= n;
      continue;
    }
    std::vector<int64_t> outer_operand, outer_block;
    for (int64_t i = 0; i < n; ++i)
      for (size_t r = 0; r < operand.size(); ++r) {
        outer_operand.push_back(i * a + operand[r]);
        outer_block.push_back(i * b + block[r]);
      }
    operand = std::move(outer_operand);
    block = std::move(outer_block);
  }
}

}  // namespace tessera::ir::ops
