// The op convolution. Each element of the result is a sum of products: of the elements of a window
// of operand 0, lhs, with elements of operand 1, rhs, which is the kernel.
//
// Reference: StableHLO's convolution, whose attribute names these are; and JAX's
// lax/convolution.py, from which the rules of transposition and batching come.
#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/types/span.h"
#include "ir/ops/rules/contraction.h"
#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/refused.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

// The attributes of a convolution. A spec lists the dims of an array: two dims with a role of their
// own, then the spatial dims. For lhs and the result the two dims are the batch and the features.
// For the kernel they are the features of the result and the features of lhs.
struct Convolution {
  ConvDimensionNumbers dims;
  ConvOptions options;

  explicit Convolution(const Attrs& a);
  Convolution(ConvDimensionNumbers numbers, ConvOptions how)
      : dims(std::move(numbers)), options(std::move(how)) {}

  size_t num_spatial() const { return dims.lhs_spec.size() - 2; }
  int64_t groups() const { return options.feature_group_count * options.batch_group_count; }
  Attrs ToAttrs() const;
};

struct SpecNames {
  const char *first, *second, *spatial;
};
constexpr SpecNames kInput = {"input_batch_dimension", "input_feature_dimension",
                              "input_spatial_dimensions"};
constexpr SpecNames kKernel = {"kernel_output_feature_dimension", "kernel_input_feature_dimension",
                               "kernel_spatial_dimensions"};
constexpr SpecNames kOutput = {"output_batch_dimension", "output_feature_dimension",
                               "output_spatial_dimensions"};

DimList SpecOf(const Attrs& a, const SpecNames& names) {
  DimList spec = {a.Int(names.first), a.Int(names.second)};
  const DimList& spatial = a.Ints(names.spatial);
  spec.insert(spec.end(), spatial.begin(), spatial.end());
  return spec;
}
void SetSpec(const DimList& spec, const SpecNames& names, Attrs* a) {
  a->Set(names.first, spec[0]);
  a->Set(names.second, spec[1]);
  a->Set(names.spatial, DimList(spec.begin() + 2, spec.end()));
}

Convolution::Convolution(const Attrs& a)
    : dims{SpecOf(a, kInput), SpecOf(a, kKernel), SpecOf(a, kOutput)} {
  options.window_strides = a.Ints("window_strides");
  const DimList& padding = a.Ints("padding");
  for (size_t i = 0; i + 1 < padding.size(); i += 2)
    options.padding.emplace_back(padding[i], padding[i + 1]);
  options.lhs_dilation = a.Ints("lhs_dilation");
  options.rhs_dilation = a.Ints("rhs_dilation");
  options.feature_group_count = a.Int("feature_group_count");
  options.batch_group_count = a.Int("batch_group_count");
  if (a.Has("preferred_element_type"))
    options.preferred_element_type = a.Dtype("preferred_element_type");
  if (a.Has("out_sharding")) options.out_sharding = &a.Spec("out_sharding");
  options.precision = PrecisionOf(a);
}

Attrs Convolution::ToAttrs() const {
  Attrs a = {{"window_strides", options.window_strides},
             {"lhs_dilation", options.lhs_dilation},
             {"rhs_dilation", options.rhs_dilation},
             {"feature_group_count", options.feature_group_count},
             {"batch_group_count", options.batch_group_count}};
  DimList padding;
  for (const auto& [low, high] : options.padding) {
    padding.push_back(low);
    padding.push_back(high);
  }
  a.Set("padding", std::move(padding));
  SetSpec(dims.lhs_spec, kInput, &a);
  SetSpec(dims.rhs_spec, kKernel, &a);
  SetSpec(dims.out_spec, kOutput, &a);
  if (options.preferred_element_type)
    a.Set("preferred_element_type", *options.preferred_element_type);
  if (options.out_sharding != nullptr) a.Set("out_sharding", *options.out_sharding);
  SetPrecision(options.precision, &a);
  return a;
}

Value Emit(Value lhs, Value rhs, const Convolution& conv) {
  return lhs.builder().Emit1(kConvolution, MatchVarying({lhs, rhs}), conv.ToAttrs());
}

// ---- Types. ----

// The largest size of a dim, so that sums of a few sizes do not overflow.
constexpr int64_t kSizeMax = int64_t{1} << 60;

// Returns the number of elements after dilation - 1 others were put between each two neighbours of
// `n` elements.
absl::StatusOr<int64_t> CheckedDilatedSize(const InferContext& c, int64_t n, int64_t dilation) {
  if (n == 0) return 0;
  const __int128 size = static_cast<__int128>(n - 1) * dilation + 1;
  if (size > kSizeMax)
    return ValueError(c, n, " elements dilated by ", dilation,
                      " are too many; expected 2^60 at most");
  return static_cast<int64_t>(size);
}

absl::Status CheckSpec(const InferContext& c, std::string_view what, const DimList& spec,
                       int rank) {
  if (static_cast<int>(spec.size()) != rank)
    return ValueError(c, ToAbsl(what), " have ", spec.size(), " dims; expected ", rank);
  return CheckDistinctDims(c, what, spec, rank);
}

absl::Status CheckPerSpatial(const InferContext& c, std::string_view what, const DimList& values,
                             size_t num_spatial, int64_t least) {
  if (values.size() != num_spatial)
    return ValueError(c, ToAbsl(what), " has ", values.size(), " entries; expected ", num_spatial,
                      ", one for each spatial dim");
  for (const int64_t v : values)
    if (v < least)
      return ValueError(c, ToAbsl(what), " has the entry ", v, "; expected at least ", least);
  return absl::OkStatus();
}

// Checks the group counts against the sizes of batch and features, in JAX's order and words. The
// rules below divide by the counts and rely on these checks.
absl::Status CheckGroups(const InferContext& c, const Convolution& conv) {
  const Type &lhs = c.in[0], &rhs = c.in[1];
  const int64_t batch = lhs.shape[conv.dims.lhs_spec[0]],
                features = lhs.shape[conv.dims.lhs_spec[1]];
  const int64_t out_features = rhs.shape[conv.dims.rhs_spec[0]],
                in_features = rhs.shape[conv.dims.rhs_spec[1]];
  const int64_t feature_groups = conv.options.feature_group_count,
                batch_groups = conv.options.batch_group_count;
  const std::pair<const char*, int64_t> counts[] = {{"feature_group_count", feature_groups},
                                                    {"batch_group_count", batch_groups}};
  for (const auto& [name, count] : counts) {
    if (count <= 0) return ValueError(c, name, " must be a positive integer, got ", count);
    if (out_features % count != 0)
      return ValueError(c, "rhs output feature dimension size must be a multiple of ", name,
                        ", but ", out_features, " is not a multiple of ", count);
  }
  if (feature_groups > 1 && batch_groups > 1)
    return ValueError(c,
                      "At most one of batch_group_count and feature_group_count may be > 1, got "
                      "batch_group_count=",
                      batch_groups, " and feature_group_count=", feature_groups);
  if (features % feature_groups != 0)
    return ValueError(c, "feature_group_count must divide lhs feature dimension size, but ",
                      feature_groups, " does not divide ", features);
  if (batch % batch_groups != 0)
    return ValueError(c, "batch_group_count must divide lhs batch dimension size, but ",
                      batch_groups, " does not divide ", batch);
  if (features / feature_groups != in_features)
    return ValueError(c,
                      "lhs feature dimension size divided by feature_group_count must equal the "
                      "rhs input feature dimension size, but ",
                      features, " // ", feature_groups, " != ", in_features);
  return absl::OkStatus();
}

// Checks the attributes and infers the result's shape. Every size is bounded by 2^60, also the size
// of lhs with padding and dilation, which exists nowhere as a value: ConvolutionMap computes with
// these sizes, and a program that was read may hold any size.
Types InferConvolution(const InferContext& c) {
  const Type &lhs = c.in[0], &rhs = c.in[1];
  if (lhs.rank() != rhs.rank() || lhs.rank() < 2)
    return ValueError(c, "lhs and rhs must have the same number of dimensions, 2 or more, but got ",
                      lhs.ToString(), " and ", rhs.ToString());
  const Convolution conv(c.attrs);
  TESSERA_RETURN_IF_ERROR(CheckSpec(c, "the dims of lhs", conv.dims.lhs_spec, lhs.rank()));
  TESSERA_RETURN_IF_ERROR(CheckSpec(c, "the dims of rhs", conv.dims.rhs_spec, lhs.rank()));
  TESSERA_RETURN_IF_ERROR(CheckSpec(c, "the dims of the result", conv.dims.out_spec, lhs.rank()));
  const size_t n = conv.num_spatial();
  const ConvOptions& o = conv.options;
  TESSERA_RETURN_IF_ERROR(CheckPerSpatial(c, "window_strides", o.window_strides, n, 1));
  TESSERA_RETURN_IF_ERROR(CheckPerSpatial(c, "lhs_dilation", o.lhs_dilation, n, 1));
  TESSERA_RETURN_IF_ERROR(CheckPerSpatial(c, "rhs_dilation", o.rhs_dilation, n, 1));
  if (c.attrs.Ints("padding").size() != 2 * n)
    return ValueError(c, "padding has ", c.attrs.Ints("padding").size(), " entries; expected ",
                      2 * n, ", two for each spatial dim");
  TESSERA_RETURN_IF_ERROR(CheckGroups(c, conv));
  TESSERA_ASSIGN_OR_RETURN(const DType dtype, ProductDType(c));
  TESSERA_RETURN_IF_ERROR(CheckPrecision(c));

  Type t = MakeType(dtype, Dims(lhs.rank()));
  Dims with_zeros = lhs.shape;
  t.shape[conv.dims.out_spec[0]] = lhs.shape[conv.dims.lhs_spec[0]] / o.batch_group_count;
  t.shape[conv.dims.out_spec[1]] = rhs.shape[conv.dims.rhs_spec[0]];
  for (size_t d = 0; d < n; ++d) {
    TESSERA_ASSIGN_OR_RETURN(
        const int64_t size,
        CheckedDilatedSize(c, lhs.shape[conv.dims.lhs_spec[2 + d]], o.lhs_dilation[d]));
    TESSERA_ASSIGN_OR_RETURN(
        const int64_t window,
        CheckedDilatedSize(c, rhs.shape[conv.dims.rhs_spec[2 + d]], o.rhs_dilation[d]));
    const auto [low, high] = o.padding[d];
    const bool fits = std::min(low, high) >= -kSizeMax && std::max(low, high) <= kSizeMax;
    const int64_t padded = fits ? size + low + high : -1;
    if (padded < 0 || padded > kSizeMax)
      return ValueError(c, "padding of spatial dim ", d, " of ", lhs.ToString(), " by (", low, ", ",
                        high, ") gives no valid size; expected one in [0, 2^60]");
    with_zeros[conv.dims.lhs_spec[2 + d]] = padded;
    t.shape[conv.dims.out_spec[2 + d]] =
        padded < window ? 0 : (padded - window) / o.window_strides[d] + 1;
  }
  for (int64_t& size : with_zeros) size = std::max<int64_t>(size, 1);
  TESSERA_RETURN_IF_ERROR(CountElements(c, with_zeros).status());
  // Each element of the result is a sum of as many products as the kernel has elements for one
  // feature of the result.
  TESSERA_ASSIGN_OR_RETURN(const int64_t elements, CountElements(c, t.shape));
  const int64_t features = rhs.shape[conv.dims.rhs_spec[0]];
  const int64_t products = features == 0 ? 0 : rhs.num_elements() / features;
  if (static_cast<__int128>(elements) * products > kSizeMax)
    return ValueError(c, "a result ", t.ToString(), " of ", products,
                      " products each takes too many; expected 2^60 at most in all");
  t.weak = lhs.weak && rhs.weak;
  return std::vector<Type>{t};
}

// Describes how a spatial dim of lhs can be cut together with the same spatial dim of the result
// (kPositions: its elements are the positions of windows) or of the kernel (kWindow). This is
// possible if the dilated lhs has `step` elements for each element of the other dim, where `step`
// is the distance in the dilated lhs between neighbours of that dim. Both dims are then cut at the
// same points into blocks, and each shard needs a halo of lhs besides its block.
struct Cut {
  enum Kind : uint8_t { kNone, kPositions, kWindow } kind = kNone;
  int64_t num_blocks = 0;  // the blocks are as small as possible
  // The number of elements of lhs, and of the other dim, in each block.
  int64_t lhs_per_block = 1, other_per_block = 1;
};
// Tries to cut with the positions first, because the result then needs no sum over the shards.
Cut CutOf(const InferContext& c, const Convolution& conv, const Type& out, size_t d) {
  const ConvOptions& o = conv.options;
  const int64_t n = c.in[0].shape[conv.dims.lhs_spec[2 + d]],
                window = c.in[1].shape[conv.dims.rhs_spec[2 + d]],
                positions = out.shape[conv.dims.out_spec[2 + d]];
  const int64_t stride = o.window_strides[d], dilation = o.lhs_dilation[d],
                spread = o.rhs_dilation[d];
  if (n == 0 || window == 0 || positions == 0) return {};
  const auto blocks = [&](Cut::Kind kind, int64_t count, int64_t step, int64_t others,
                          int64_t other_step) -> Cut {
    const __int128 span = static_cast<__int128>(others - 1) * other_step + 1;
    const int64_t low = o.padding[d].first;
    if ((step != 1 && dilation != 1) || low < 0 || low >= span ||
        span > static_cast<__int128>(n) * dilation ||
        static_cast<__int128>(n) * dilation != static_cast<__int128>(count) * step)
      return {};
    return {kind, std::min(n, count), step, dilation};
  };
  const Cut positions_cut = blocks(Cut::kPositions, positions, stride, window, spread);
  return positions_cut.kind != Cut::kNone ? positions_cut
                                          : blocks(Cut::kWindow, window, spread, positions, stride);
}

// The factors of (g n, g c, in)(g o, c, window) -> (n, g o, out), where g are the groups of the
// batch or of the features. A spatial dim passes through if the window is one element that moves by
// one, because each element of the result then depends on one position of lhs. For other windows
// see Cut.
Signature ConvolutionFactors(const InferContext& c, absl::Span<const Type> out) {
  const Convolution conv(c.attrs);
  const ConvOptions& o = conv.options;
  const auto& [l, r, t] = conv.dims;
  const Type &lhs = c.in[0], &rhs = c.in[1];
  Signature s;
  s.reduce = ReduceKind::kSum;
  s.operands = {TensorFactors(lhs.rank()), TensorFactors(rhs.rank())};
  s.results = {TensorFactors(lhs.rank())};
  const int group = conv.groups() > 1 ? s.Add(FactorKind::kPassThrough, conv.groups()) : -1;
  const auto grouped = [&](int64_t groups, int factor) {
    return groups > 1 ? FactorList{group, factor} : FactorList{factor};
  };
  const int batch = s.Add(FactorKind::kPassThrough, out[0].shape[t[0]]);
  const int feature = s.Add(FactorKind::kReduction, rhs.shape[r[1]]);
  const int out_feature = s.Add(FactorKind::kPassThrough, rhs.shape[r[0]] / conv.groups());
  s.operands[0][l[0]] = grouped(o.batch_group_count, batch);
  s.operands[0][l[1]] = grouped(o.feature_group_count, feature);
  s.operands[1][r[0]] = s.results[0][t[1]] = grouped(conv.groups(), out_feature);
  s.operands[1][r[1]] = {feature};
  s.results[0][t[0]] = {batch};
  for (size_t d = 0; d < conv.num_spatial(); ++d) {
    const int64_t size = lhs.shape[l[2 + d]], window = rhs.shape[r[2 + d]];
    const bool is_single = window == 1 && o.window_strides[d] == 1 && o.lhs_dilation[d] == 1 &&
                           o.padding[d] == std::pair<int64_t, int64_t>(0, 0);
    FactorList &from = s.operands[0][l[2 + d]], &by = s.operands[1][r[2 + d]],
               &to = s.results[0][t[2 + d]];
    const auto replicated = [&](int64_t n) { return s.Add(FactorKind::kReplicated, n); };
    const Cut cut = is_single ? Cut{} : CutOf(c, conv, out[0], d);
    if (cut.kind == Cut::kNone) {
      from = {is_single ? s.Add(FactorKind::kPassThrough, size) : replicated(size)};
      by = {replicated(window)};
      to = is_single ? from : FactorList{replicated(out[0].shape[t[2 + d]])};
      continue;
    }
    const bool cuts_positions = cut.kind == Cut::kPositions;
    const int blocks =
        s.Add(cuts_positions ? FactorKind::kPermutation : FactorKind::kReduction, cut.num_blocks);
    const auto blocks_of = [&](int64_t each) {
      return each == 1 ? FactorList{blocks} : FactorList{blocks, replicated(each)};
    };
    from = blocks_of(cut.lhs_per_block);
    by = cuts_positions ? FactorList{replicated(window)} : blocks_of(cut.other_per_block);
    to = cuts_positions ? blocks_of(cut.other_per_block)
                        : FactorList{replicated(out[0].shape[t[2 + d]])};
  }
  return s;
}

// JAX's rule: the kernel and the features of lhs must be unsharded. The result is sharded as lhs
// is, and its sizes must be divisible.
absl::Status ConvolutionSharding(const InferContext& c, std::vector<Type>* out) {
  Type& t = (*out)[0];
  TESSERA_ASSIGN_OR_RETURN(const bool has_out_sharding, ApplyOutSharding(c, &t));
  const Type &lhs = c.in[0], &rhs = c.in[1];
  if (has_out_sharding || !(lhs.is_sharded() || rhs.is_sharded())) return absl::OkStatus();
  const ConvDimensionNumbers dims = Convolution(c.attrs).dims;
  if (rhs.is_sharded() || !lhs.axes_of(static_cast<int>(dims.lhs_spec[1])).empty())
    return ShardingError(c,
                         "Please specify the output sharding via `out_sharding` parameter of "
                         "`conv_general_dilated`; got inputs: ",
                         TypesToString(c.in));
  t.sharding.assign(t.rank(), {});
  for (int d = 0; d < t.rank(); ++d) {
    const AxisList& axes = lhs.axes_of(static_cast<int>(dims.lhs_spec[d]));
    const int64_t to = dims.out_spec[d];
    if (t.shape[to] % c.scope.mesh.SizeOf(axes) != 0)
      return ShardingError(c, "dim ", to, " of the result has size ", t.shape[to],
                           ", which is not divisible by the ", c.scope.mesh.SizeOf(axes),
                           " devices that shard ", lhs.ToString(),
                           "; reshard the input or give out_sharding");
    t.sharding[to] = axes;
  }
  Normalize(&t);
  return absl::OkStatus();
}

// ---- Derivatives. ----

// Returns `x` with dim `from` merged into dim `into` of the remaining dims, as its major part.
Value MergedInto(Value x, int64_t from, int64_t into) {
  const Value moved = MoveDim(x, static_cast<int>(from), static_cast<int>(into));
  Dims shape = moved.shape();
  shape[into] *= shape[into + 1];
  shape.erase(shape.begin() + into + 1);
  return Reshape(moved, shape);
}
// Returns `x` with dim `d` split in two, of which the first has `major` elements.
Value SplitOff(Value x, int64_t d, int64_t major) {
  Dims shape = x.shape();
  shape.insert(shape.begin() + d, major);
  shape[d + 1] /= major;
  return Reshape(x, shape);
}

DimList Swapped(DimList spec) {
  std::swap(spec[0], spec[1]);
  return spec;
}
DimList Spatial(const DimList& spec) { return {spec.begin() + 2, spec.end()}; }
int64_t DilatedSize(int64_t n, int64_t dilation) { return n == 0 ? 0 : (n - 1) * dilation + 1; }

// The sizes along a spatial dim from which the paddings of both cotangents are computed.
struct Extent {
  int64_t lhs, rhs, out;  // dilated sizes; that of the result is dilated by the strides
};
Extent ExtentOf(const RuleContext& c, const Convolution& conv, size_t d) {
  const ConvOptions& o = conv.options;
  return {DilatedSize(c.in_types[0].shape[conv.dims.lhs_spec[2 + d]], o.lhs_dilation[d]),
          DilatedSize(c.in_types[1].shape[conv.dims.rhs_spec[2 + d]], o.rhs_dilation[d]),
          DilatedSize(c.out_types[0].shape[conv.dims.out_spec[2 + d]], o.window_strides[d])};
}

void SetOutShardingLike(const Type& like, bool sharded, PartitionSpec* spec, ConvOptions* options) {
  options->out_sharding = nullptr;
  if (!sharded) return;
  for (int d = 0; d < like.rank(); ++d) spec->dims.push_back(like.axes_of(d));
  options->out_sharding = spec;
}

// Returns the cotangent of lhs: the result's cotangent, convolved with the reversed kernel.
Value LhsCotangent(const RuleContext& c, const Convolution& conv, Value ct) {
  const auto& [l, r, t] = conv.dims;
  const Type& x = c.in_types[0];
  Value kernel = NonLinearOperand(c, 1);
  const bool sharded = x.is_sharded() || kernel.type().is_sharded() || ct.type().is_sharded();
  if (conv.groups() > 1) kernel = MergedInto(SplitOff(kernel, r[0], conv.groups()), r[0], r[1]);
  Convolution back({t, Swapped(r), l}, conv.options);
  back.options.window_strides = conv.options.lhs_dilation;
  back.options.lhs_dilation = conv.options.window_strides;
  back.options.feature_group_count = conv.groups();
  back.options.batch_group_count = 1;
  back.options.preferred_element_type = std::nullopt;
  for (size_t d = 0; d < conv.num_spatial(); ++d) {
    const Extent e = ExtentOf(c, conv, d);
    const int64_t before = e.rhs - conv.options.padding[d].first - 1;
    back.options.padding[d] = {before, e.lhs + e.rhs - 1 - e.out - before};
  }
  PartitionSpec spec;
  // With groups of the batch, the product has another shape than the operand, so that the operand's
  // sharding does not fit it.
  SetOutShardingLike(x, sharded && conv.options.batch_group_count == 1, &spec, &back.options);
  const Value reversed = Reverse(Convert(kernel, ct.dtype()), Spatial(r));
  Value out = Emit(ct, reversed, back);
  if (conv.options.batch_group_count > 1)
    out = MergedInto(SplitOff(out, l[1], conv.options.batch_group_count), l[1], l[0]);
  return Convert(sharded ? ShardedLike(out, x) : out, x.dtype);
}

// Returns the cotangent of the kernel: lhs, convolved with the result's cotangent.
Value RhsCotangent(const RuleContext& c, const Convolution& conv, Value ct) {
  const auto& [l, r, t] = conv.dims;
  const Type& kernel = c.in_types[1];
  if (ct.type().num_elements() == 0) return Zeros(c.b, kernel);
  const Value x = NonLinearOperand(c, 0);
  const bool sharded = kernel.is_sharded() || x.type().is_sharded() || ct.type().is_sharded();
  Convolution back({Swapped(l), Swapped(t), Swapped(r)}, conv.options);
  back.options.window_strides = conv.options.rhs_dilation;
  back.options.rhs_dilation = conv.options.window_strides;
  back.options.feature_group_count = conv.options.batch_group_count;
  back.options.batch_group_count = conv.options.feature_group_count;
  back.options.preferred_element_type = std::nullopt;
  for (size_t d = 0; d < conv.num_spatial(); ++d) {
    const Extent e = ExtentOf(c, conv, d);
    const int64_t low = conv.options.padding[d].first;
    back.options.padding[d] = {low, e.out - e.lhs + e.rhs - low - 1};
  }
  PartitionSpec spec;
  SetOutShardingLike(kernel, sharded, &spec, &back.options);
  return Convert(Emit(Convert(x, ct.dtype()), ct, back), kernel.dtype);
}

std::vector<Value> TransposeConvolution(const RuleContext& c, Values cts,
                                        const std::vector<bool>& linear) {
  std::vector<Value> out(2);
  if (!cts[0]) return out;
  const Convolution conv(c.attrs);
  if (linear[0]) out[0] = LhsCotangent(c, conv, cts[0]);
  if (linear[1]) out[1] = RhsCotangent(c, conv, cts[0]);
  return out;
}

// ---- Batching: a mapped dim of the input joins the batch, one of the kernel joins the features,
// and mapped dims of both become groups. ----

// Emits one convolution for the whole batch, as JAX does. The mapped dim is merged into a dim of
// the operand and split off the corresponding dim of the result, so that no new kind of convolution
// is needed. A dim that is already divided into groups takes the mapped dim behind the groups,
// which must stay outermost.
Batched BatchConvolution(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  if (size == 0) {  // there are no groups of size 0
    Type empty = c.out_types[0];
    empty.shape.insert(empty.shape.begin(), 0);
    if (empty.is_sharded()) empty.sharding.insert(empty.sharding.begin(), AxisList{});
    return {{Zeros(c.b, empty)}, {0}};
  }
  Convolution conv(c.attrs);
  const auto [l, r, t] = conv.dims;
  ConvOptions& o = conv.options;
  const AxisList axes = BatchAxes(c, dims);
  PartitionSpec spec;
  if (o.out_sharding != nullptr) spec = *o.out_sharding;
  // The dim of the result into which the mapped dim goes is cut by the axes of the mapped dim.
  const auto emit = [&](Value lhs, Value rhs, int64_t result_dim) {
    if (o.out_sharding != nullptr && !axes.empty()) {
      if (!spec.dims[result_dim].empty())
        Throw(ErrorKind::kNotImplemented,
              "conv_general_dilated: the mapped dim is sharded, and out_sharding shards the result "
              "dim that it becomes a part of; reshard the operands, or map first");
      spec.dims[result_dim] = axes;
      o.out_sharding = &spec;
    }
    return Emit(lhs, rhs, conv);
  };
  if (dims[0] >= 0 && dims[1] >= 0) {
    const bool has_batch_groups = o.batch_group_count > 1;
    const Value lhs = MergedInto(c.in[0], dims[0], has_batch_groups ? l[0] : l[1]);
    const Value rhs = MergedInto(c.in[1], dims[1], r[0]);
    (has_batch_groups ? o.batch_group_count : o.feature_group_count) *= size;
    return {{SplitOff(emit(lhs, rhs, t[1]), t[1], size)}, {static_cast<int>(t[1])}};
  }
  const int64_t groups = conv.groups();
  // Merges the mapped dim into `dim`, which is divided into groups. The mapped dim goes behind the
  // groups, which stay outermost.
  const auto behind_groups = [&](Value x, int64_t mapped, int64_t dim) {
    const int64_t at = dim + (mapped <= dim ? 1 : 0);
    x = SplitOff(x, at, groups);
    x = MergedInto(x, mapped + (at < mapped ? 1 : 0), dim + 1);
    return MergedInto(x, dim, dim);
  };
  if (dims[0] >= 0) {
    const Value lhs = o.batch_group_count > 1 ? behind_groups(c.in[0], dims[0], l[0])
                                              : MergedInto(c.in[0], dims[0], l[0]);
    return {{SplitOff(emit(lhs, c.in[1], t[0]), t[0], size)}, {static_cast<int>(t[0])}};
  }
  if (groups == 1) {
    const Value rhs = MergedInto(c.in[1], dims[1], r[0]);
    return {{SplitOff(emit(c.in[0], rhs, t[1]), t[1], size)}, {static_cast<int>(t[1])}};
  }
  Value out = emit(c.in[0], behind_groups(c.in[1], dims[1], r[0]), t[1]);
  out = SplitOff(SplitOff(out, t[1], groups), t[1] + 1, size);
  return {{MergedInto(out, t[1], t[1] + 1)}, {static_cast<int>(t[1])}};
}

// The elements that a shard needs from other shards along a cut spatial dim, and the shard's own
// padding.
struct Halo {
  const AxisList* axes = nullptr;  // null if the shard needs nothing
  int64_t low = 0, high = 0;
  std::pair<int64_t, int64_t> padding;
};
int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
// Computes the part of the dilated operand that this shard's positions, or this shard's elements of
// the window, read. The halo is the part of it beyond the shard's block, in whole elements of lhs.
// The padding makes up the difference between the halo and the exact distance, which may end among
// the zeros of the dilation. Windows then stand in the same positions as without the cut.
Halo HaloOf(const RuleContext& c, const PartitionContext& p, const Convolution& conv, size_t d) {
  const auto& [l, r, t] = conv.dims;
  const ConvOptions& o = conv.options;
  const int factor = p.signature.operands[0][l[2 + d]][0];
  const FactorKind kind = p.signature.factors[factor].kind;
  Halo halo;
  if (p.factor_axes[factor].empty() || kind == FactorKind::kPassThrough) return halo;
  halo.axes = &p.factor_axes[factor];
  const int64_t n = c.in[0].dim(static_cast<int>(l[2 + d])), dilation = o.lhs_dilation[d],
                low = o.padding[d].first;
  int64_t count = p.local_out[0].shape[t[2 + d]], step = o.window_strides[d];
  int64_t others = c.in[1].dim(static_cast<int>(r[2 + d])), other_step = o.rhs_dilation[d];
  if (kind == FactorKind::kReduction) {
    std::swap(count, others);
    std::swap(step, other_step);
  }
  // Positions are those in the dilated operand, counted from where this shard's block begins. The
  // shard reads `size` elements from -low on.
  const int64_t size = (count - 1) * step + (others - 1) * other_step + 1;
  halo.low = FloorDiv(low, dilation);
  halo.high = FloorDiv(size - low - 1, dilation) + 1 - n;
  // The shard's operand must keep at least one element.
  halo.high += std::max<int64_t>(1 - (n + halo.low + halo.high), 0);
  const int64_t before = low - dilation * halo.low;
  halo.padding = {before, size - before - ((n + halo.low + halo.high - 1) * dilation + 1)};
  return halo;
}
std::vector<Value> ExchangeHalos(const RuleContext& c, const PartitionContext& p) {
  const Convolution conv(c.attrs);
  Value x = c.in[0];
  for (size_t d = 0; d < conv.num_spatial(); ++d) {
    const Halo halo = HaloOf(c, p, conv, d);
    if (halo.axes == nullptr) continue;
    x = WithHalo(x, static_cast<int>(conv.dims.lhs_spec[2 + d]), *halo.axes, halo.low, halo.high);
  }
  return {x, c.in[1]};
}

// Returns the op's attributes for a shard, which has its own padding, and fewer groups if the
// groups are cut.
Attrs LocalizeConvolution(const RuleContext& c, const PartitionContext& p) {
  Attrs attrs = c.attrs;
  attrs.Erase("out_sharding");
  const Convolution conv(c.attrs);
  DimList padding = c.attrs.Ints("padding");
  for (size_t d = 0; d < conv.num_spatial(); ++d) {
    const Halo halo = HaloOf(c, p, conv, d);
    if (halo.axes != nullptr) std::tie(padding[2 * d], padding[2 * d + 1]) = halo.padding;
  }
  attrs.Set("padding", std::move(padding));
  if (conv.groups() == 1) return attrs;
  const int64_t shards = c.b.mesh().SizeOf(p.factor_axes[0]);  // the groups are factor 0
  for (const char* count : {"feature_group_count", "batch_group_count"})
    if (attrs.Int(count) > 1) attrs.Set(count, attrs.Int(count) / shards);
  return attrs;
}

// ---- Reference semantics. ----

// An index over which the products run: its size, and the stride of a step along it in lhs, rhs and
// the result.
struct LoopIndex {
  int64_t size = 1;
  int64_t lhs = 0, rhs = 0, out = 0;
};

// Forms matrices that are as large as the order of the result's dims allows. If the features are
// the last dim of the result, they become n and the dims before them m. Otherwise the features
// become m, the dims after them n, and the dims before them a batch. The windows become rows of
// lhs, which overlap.
ContractionMap ConvolutionMap(const InferContext& c, absl::Span<const Type> out) {
  const Convolution conv(c.attrs);
  const ConvOptions& o = conv.options;
  const auto& [l, r, t] = conv.dims;
  const size_t num_spatial = conv.num_spatial();
  const Dims &lhs = c.in[0].shape, &rhs = c.in[1].shape;
  ContractionMap map;
  bool needs_padding = false;
  for (size_t d = 0; d < num_spatial; ++d)
    needs_padding = needs_padding || o.lhs_dilation[d] != 1 || o.padding[d].first != 0 ||
                    o.padding[d].second != 0;
  if (needs_padding) {
    map.low.assign(lhs.size(), 0);
    map.high = map.interior = map.low;
    for (size_t d = 0; d < num_spatial; ++d) {
      std::tie(map.low[l[2 + d]], map.high[l[2 + d]]) = o.padding[d];
      map.interior[l[2 + d]] = o.lhs_dilation[d] - 1;
    }
  }
  const Dims ls = StridesOf(PaddedShape(map, lhs)), rs = StridesOf(rhs),
             ts = StridesOf(out[0].shape);

  // A stride that does not fit in an integer is never used, because no array that exists has two
  // elements so far apart. It is replaced by 0.
  const auto product_or_zero = [](int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? 0 : product;
  };
  const int64_t groups = conv.groups(), per_group = rhs[r[0]] / groups;
  const LoopIndex group = {
      groups,
      o.feature_group_count > 1 ? product_or_zero(rhs[r[1]], ls[l[1]])
                                : product_or_zero(lhs[l[0]] / groups, ls[l[0]]),
      product_or_zero(per_group, rs[r[0]]), product_or_zero(per_group, ts[t[1]])};
  const LoopIndex feature = {per_group, 0, rs[r[0]], ts[t[1]]};
  // `kept` is indexed by the dim of the result, `summed` by the dim of rhs.
  std::vector<LoopIndex> kept(lhs.size()), summed(lhs.size());
  kept[t[0]] = {out[0].shape[t[0]], ls[l[0]], 0, ts[t[0]]};
  summed[r[1]] = {rhs[r[1]], ls[l[1]], rs[r[1]], 0};
  for (size_t d = 0; d < num_spatial; ++d) {
    const int64_t positions = out[0].shape[t[2 + d]], window = rhs[r[2 + d]], step = ls[l[2 + d]];
    // If there is only one window, its stride is unused, and if a window has only one element, its
    // dilation is unused. Both may then be any number.
    kept[t[2 + d]] = {positions, positions <= 1 ? step : product_or_zero(o.window_strides[d], step),
                      0, ts[t[2 + d]]};
    summed[r[2 + d]] = {window, window <= 1 ? step : product_or_zero(o.rhs_dilation[d], step),
                        rs[r[2 + d]], 0};
  }
  summed.erase(summed.begin() + r[0]);

  std::vector<LoopIndex> batch, m, n;
  const auto before = absl::MakeConstSpan(kept).first(t[1]),
             after = absl::MakeConstSpan(kept).subspan(t[1] + 1);
  // With one feature per group, the matrices would have a single row or column, so all dims of the
  // result become batch dims.
  if (per_group == 1 && groups > 1) {
    batch.assign(before.begin(), before.end());
    batch.push_back(group);
    batch.insert(batch.end(), after.begin(), after.end());
  } else if (after.empty()) {
    if (groups > 1) batch = {group};
    m.assign(before.begin(), before.end());
    n = {feature};
  } else {
    batch.assign(before.begin(), before.end());
    if (groups > 1) batch.push_back(group);
    m = {feature};
    n.assign(after.begin(), after.end());
    map.a = 1;
  }
  const auto sizes = [](const std::vector<LoopIndex>& list) {
    Dims dims;
    for (const LoopIndex& i : list) dims.push_back(i.size);
    return dims;
  };
  map.batch = sizes(batch);
  map.m = sizes(m);
  map.n = sizes(n);
  map.k = sizes(summed);
  const auto add = [](const std::vector<LoopIndex>& list, int64_t LoopIndex::*stride, Dims* to) {
    for (const LoopIndex& i : list) to->push_back(i.*stride);
  };
  const auto of_a = map.a == 0 ? &LoopIndex::lhs : &LoopIndex::rhs,
             of_b = map.a == 0 ? &LoopIndex::rhs : &LoopIndex::lhs;
  for (const auto* list : {&batch, &m, &summed}) add(*list, of_a, &map.a_strides);
  for (const auto* list : {&batch, &summed, &n}) add(*list, of_b, &map.b_strides);
  for (const auto* list : {&batch, &m, &n}) add(*list, &LoopIndex::out, &map.c_strides);
  return map;
}

Cost ConvolutionCost(const InferContext& c, absl::Span<const Type> out) {
  const DimList& r = Convolution(c.attrs).dims.rhs_spec;
  Cost cost;
  const int64_t features = c.in[1].shape[r[0]];
  cost.flops = 2 * static_cast<double>(out[0].num_elements()) *
               static_cast<double>(features == 0 ? 0 : c.in[1].num_elements() / features);
  for (const Type* t : {&c.in[0], &c.in[1], &out[0]})
    cost.bytes += static_cast<double>(t->num_bytes());
  return cost;
}

constexpr AttrSpec kConvolutionAttrs[] = {{kInput.first, AttrKind::kInt},
                                          {kInput.second, AttrKind::kInt},
                                          {kInput.spatial, AttrKind::kInts},
                                          {kKernel.first, AttrKind::kInt},
                                          {kKernel.second, AttrKind::kInt},
                                          {kKernel.spatial, AttrKind::kInts},
                                          {kOutput.first, AttrKind::kInt},
                                          {kOutput.second, AttrKind::kInt},
                                          {kOutput.spatial, AttrKind::kInts},
                                          {"window_strides", AttrKind::kInts},
                                          {"padding", AttrKind::kInts},
                                          {"lhs_dilation", AttrKind::kInts},
                                          {"rhs_dilation", AttrKind::kInts},
                                          {"feature_group_count", AttrKind::kInt},
                                          {"batch_group_count", AttrKind::kInt},
                                          {"preferred_element_type", AttrKind::kDType, false},
                                          {"out_sharding", AttrKind::kSpec, false},
                                          {"precision", AttrKind::kString, false}};

}  // namespace

constexpr OpDef kConvolution = Checked({.name = "convolution",
                                        .lax_name = "conv_general_dilated",
                                        .family = Family::kContraction,
                                        .num_operands = 2,
                                        .attrs = kConvolutionAttrs,
                                        .lowering = Lowering::kContract,
                                        .infer = InferConvolution,
                                        .factors = ConvolutionFactors,
                                        .sharding = ConvolutionSharding,
                                        .varying = Derived{},
                                        .jvp = BilinearJvp,
                                        .transpose = TransposeConvolution,
                                        .batch = BatchConvolution,
                                        .partition = Derived{},
                                        .localize = LocalizeConvolution,
                                        .exchange = ExchangeHalos,
                                        .cost = ConvolutionCost,
                                        .contraction_map = ConvolutionMap,
                                        .reduce = ReduceKind::kSum});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

Value ConvGeneralDilated(Value lhs, Value rhs, const ConvDimensionNumbers& dims,
                         ConvOptions options) {
  const size_t spatial = dims.lhs_spec.size() < 2 ? 0 : dims.lhs_spec.size() - 2;
  for (auto* list : {&options.window_strides, &options.lhs_dilation, &options.rhs_dilation})
    if (list->empty()) list->assign(spatial, 1);
  if (options.padding.empty()) options.padding.assign(spatial, {0, 0});
  const Value like = lhs.type().weak ? rhs : lhs;
  const Value x = ops::ConvertIfWeak(lhs, like), kernel = ops::ConvertIfWeak(rhs, like);
  return ops::Emit(x, kernel, ops::Convolution(dims, std::move(options)));
}

}  // namespace tessera::ir
