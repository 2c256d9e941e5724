// The op fft: discrete Fourier transforms along the last dims, which the host evaluates by
// ir/fourier.
//
// Reference: StableHLO's fft; JAX's lax.fft for its derivatives; docs/decisions/0022.
#include "ir/fft.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "ir/eval/eval.h"
#include "ir/fourier/fourier.h"
#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/family.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

constexpr std::array<std::string_view, 4> kKinds = {"FFT", "IFFT", "RFFT", "IRFFT"};

FftKind KindOf(const Attrs& attrs) {
  const auto at = std::find(kKinds.begin(), kKinds.end(), attrs.Str("fft_type"));
  return static_cast<FftKind>(at - kKinds.begin());
}
const std::vector<int64_t>& LengthsOf(const Attrs& attrs) { return attrs.Ints("fft_length"); }
// Returns whether the transform is from real numbers or to them, so that the complex array has only
// half of the last dim (length / 2 + 1 elements).
bool HalvesLast(FftKind kind) { return kind == FftKind::kRfft || kind == FftKind::kIrfft; }
DType ComplexOfReal(DType d) { return d == DType::kF32 ? DType::kC64 : DType::kC128; }

// Checks the lengths against the operand's last dims. Lengths are bounded, because the tables for a
// length are computed at once, on one thread (fourier::LengthMax). The bound is lower for a length
// with a large prime factor.
Types InferFft(const InferContext& c) {
  const Type& x = c.in[0];
  if (std::find(kKinds.begin(), kKinds.end(), c.attrs.Str("fft_type")) == kKinds.end())
    return ValueError(c, "fft_type is '", c.attrs.Str("fft_type"),
                      "'; expected FFT, IFFT, RFFT or IRFFT");
  const FftKind kind = KindOf(c.attrs);
  const std::vector<int64_t>& lengths = LengthsOf(c.attrs);
  const int count = static_cast<int>(lengths.size()), first = x.rank() - count;
  if (count < 1 || first < 0)
    return ValueError(c, "has ", count, " lengths for ", x.ToString(),
                      "; expected at least one length, and at most one for each dim");
  const bool from_real = kind == FftKind::kRfft;
  const bool fits =
      from_real ? x.dtype == DType::kF32 || x.dtype == DType::kF64 : IsComplex(x.dtype);
  if (!fits)
    return TypeError(c, "requires ", from_real ? "f32 or f64" : "a complex dtype", ", got ",
                     x.ToString());
  Type t = MakeType(from_real ? ComplexOfReal(x.dtype) : x.dtype, x.shape);
  for (int i = 0; i < count; ++i) {
    const int64_t length = lengths[i], size = x.shape[first + i];
    const int64_t half = length == 0 ? 0 : length / 2 + 1;
    const bool is_half = kind == FftKind::kIrfft && i == count - 1;
    if (length < 0 || size != (is_half ? half : length))
      return ValueError(c, "length ", length, " of dim ", first + i, " does not fit ",
                        x.ToString());
    // If the length is too long for every prime factor, its largest prime factor is not computed,
    // because that takes long.
    const int64_t most = fourier::LengthMax(length > fourier::LengthMax(1) ? 1 : length);
    if (length > most)
      return ValueError(c, "length ", length, " of dim ", first + i,
                        " is too long; expected at most ", most,
                        most < fourier::LengthMax(1) ? ", as it has a large prime factor" : "");
    if (i == count - 1 && from_real) t.shape.back() = half;
    if (is_half) {
      t.shape.back() = length;
      t.dtype = PartDType(x.dtype);
    }
  }
  return std::vector<Type>{t};
}

// A transformed dim that is cut can be made whole by an exchange. The exception is a dim of which
// half is left out, because half of a dim can seldom be cut evenly.
Signature FftFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  const Type& x = c.in[0];
  const int first = x.rank() - static_cast<int>(LengthsOf(c.attrs).size());
  TensorFactors from, to;
  for (int d = 0; d < x.rank(); ++d) {
    if (d == x.rank() - 1 && HalvesLast(KindOf(c.attrs))) {
      from.push_back({s.Add(FactorKind::kReplicated, x.shape[d])});
      to.push_back({s.Add(FactorKind::kReplicated, out[0].shape[d])});
      continue;
    }
    const FactorKind kind = d < first ? FactorKind::kPassThrough : FactorKind::kPermutation;
    from.push_back({s.Add(kind, x.shape[d])});
    to.push_back(from.back());
  }
  s.operands = {std::move(from)};
  s.results = {std::move(to)};
  return s;
}

absl::Status FftSharding(const InferContext& c, std::vector<Type>* out) {
  const Type& x = c.in[0];
  const int first = x.rank() - static_cast<int>(LengthsOf(c.attrs).size());
  for (int d = first; d < x.rank(); ++d)
    if (!x.axes_of(d).empty())
      return ShardingError(c, "dim ", d, " of ", x.ToString(),
                           ", which is transformed, is sharded; reshard the operand to leave it "
                           "whole");
  if (x.is_sharded()) (*out)[0].sharding = x.sharding;
  return absl::OkStatus();
}

// Emits the transform of the last dims, whose lengths are `lengths`.
Value Emit(Value x, FftKind kind, std::vector<int64_t> lengths) {
  Attrs attrs;
  attrs.Set("fft_type", std::string(kKinds[static_cast<int>(kind)]));
  attrs.Set("fft_length", std::move(lengths));
  return x.builder().Emit1(kFft, {x}, std::move(attrs));
}

// The matrix of a transform is its own transpose. A transform from real numbers keeps the first
// half of its results, so the others have zero cotangents. In a transform to real numbers each
// element of the half stands for two, except for the first and the middle one.
std::vector<Value> TransposeFft(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  const FftKind kind = KindOf(c.attrs);
  const std::vector<int64_t>& lengths = LengthsOf(c.attrs);
  const Value ct = cts[0];
  const int last = ct.rank() - 1;
  if (!HalvesLast(kind)) return {Emit(ct, kind, lengths)};
  if (kind == FftKind::kRfft) {
    std::vector<int64_t> low(ct.rank(), 0), high = low;
    high.back() = lengths.back() - ct.dim(last);
    const Value padded = Pad(ct, Constant(c.b, ct.dtype(), 0), std::move(low), std::move(high));
    return {Real(Emit(padded, FftKind::kFft, lengths))};
  }
  const Value half = Emit(ct, FftKind::kRfft, lengths);
  double elements = 1;
  for (const int64_t length : lengths) elements *= static_cast<double>(length);
  const int64_t m = half.dim(last), n = lengths.back();
  const Value re = Real(half);
  const Value k = Iota(c.b, DType::kS64, {m}, 0);
  Value single = Compare(k, FullLike(k, 0), "EQ");
  if (n % 2 == 0) single = Or(single, Compare(k, FullLike(k, static_cast<double>(m - 1)), "EQ"));
  const Value once = Full(c.b, ct.dtype(), {m}, 1 / elements);
  const Value weights = Select(single, once, Full(c.b, ct.dtype(), {m}, 2 / elements));
  const Value factor = BroadcastLike(weights, re.type(), {last});
  const Value scaled = re * factor;
  return {Complex(scaled, -(Imag(half) * factor))};
}

Batched BatchFft(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  return {{c.b.Emit1(c.def, {BatchInFront(c, dims, 0, size)}, c.attrs)}, {0}};
}

// Returns x with dim `dim` transformed.
Value FftAlongDim(Value x, int dim, FftKind kind) {
  const int last = x.rank() - 1;
  const int64_t length = x.dim(dim);
  return MoveDim(Emit(MoveDim(x, dim, last), kind, {length}), last, dim);
}
// If the dim is cut, an all-to-all makes it whole and cuts another dim instead, if there is one
// whose size is a multiple of the number of shards. Otherwise the dim is gathered, and each shard
// keeps its own block of the result.
Value FftAlongCutDim(Value x, int dim, FftKind kind, const AxisList& axes) {
  Builder& b = x.builder();
  const int64_t shards = b.mesh().SizeOf(axes);
  for (int d = 0; d < x.rank(); ++d) {
    if (d == dim || x.dim(d) == 0 || x.dim(d) % shards != 0) continue;
    const Value whole = AllToAll(x, axes, d, dim, /*tiled=*/true);
    return AllToAll(FftAlongDim(whole, dim, kind), axes, dim, d, /*tiled=*/true);
  }
  const Value whole = FftAlongDim(AllGather(x, axes, dim, /*tiled=*/true), dim, kind);
  std::vector<Value> starts(x.rank(), Constant(b, DType::kS32, 0));
  starts[dim] = BlockBegin(b, axes, x.dim(dim));
  return DynamicSlice(whole, std::move(starts), x.shape());
}

// The last dims that are not cut are transformed at once, by one op. The dims before these are
// transformed one by one: after the last dims in a transform from real numbers, and before the last
// dims in a transform to real numbers.
std::vector<Value> PartitionFft(const RuleContext& c, const PartitionContext& p) {
  const FftKind kind = KindOf(c.attrs);
  const std::vector<int64_t>& lengths = LengthsOf(c.attrs);
  Value x = c.in[0];
  const int count = static_cast<int>(lengths.size()), first = x.rank() - count;
  const auto axes_of = [&](int d) -> const AxisList& {
    return p.factor_axes[p.signature.operands[0][d][0]];
  };
  int first_whole = x.rank();  // the first of the last dims that are not cut
  while (first_whole > first && axes_of(first_whole - 1).empty()) --first_whole;
  const auto transform_others = [&](FftKind of) {
    for (int d = first; d < first_whole; ++d)
      x = axes_of(d).empty() ? FftAlongDim(x, d, of) : FftAlongCutDim(x, d, of, axes_of(d));
  };
  const bool to_real = kind == FftKind::kIrfft;
  if (to_real) transform_others(FftKind::kIfft);
  if (first_whole < x.rank())
    x = Emit(x, kind, {lengths.begin() + (first_whole - first), lengths.end()});
  if (!to_real) transform_others(kind == FftKind::kRfft ? FftKind::kFft : kind);
  return {x};
}

// Counts 5 n log2(n) flops for each transform, as is usual.
Cost FftCost(const InferContext& c, absl::Span<const Type> out) {
  const Type& larger = c.in[0].num_elements() > out[0].num_elements() ? c.in[0] : out[0];
  Cost cost;
  for (const int64_t length : LengthsOf(c.attrs))
    cost.flops += 5 * static_cast<double>(larger.num_elements()) *
                  std::log2(static_cast<double>(std::max<int64_t>(length, 2)));
  cost.bytes = static_cast<double>(c.in[0].num_bytes()) + static_cast<double>(out[0].num_bytes());
  return cost;
}

// The transforms run one after the other, so the largest scratch counts. A transform to real
// numbers also has a copy of the operand, in which the other dims are transformed.
int64_t FftScratch(const InferContext& c, absl::Span<const Type> out) {
  const std::vector<int64_t>& lengths = LengthsOf(c.attrs);
  const int64_t width =
      ByteWidth(IsComplex(c.in[0].dtype) ? PartDType(c.in[0].dtype) : c.in[0].dtype);
  const int64_t elements = std::max(c.in[0].num_elements(), out[0].num_elements());
  int64_t most = 0;
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      most = std::max(most, fourier::ScratchBytes(elements / lengths[i] + 1, lengths[i], width,
                                                  /*are_columns=*/i + 1 < lengths.size()));
  if (KindOf(c.attrs) == FftKind::kIrfft && lengths.size() > 1) most += c.in[0].num_bytes();
  return most;
}

// The evaluator's threads share the rows in pieces, and poll between two pieces.
double NothingUninterrupted(const InferContext&, absl::Span<const Type>) { return 0; }

// Transforms the dims one by one, the last dim first. A transform to real numbers transforms the
// last dim after the others, because only the result of the last step is real. It transforms the
// other dims in a copy of the operand. The factor 1 / elements of an inverse transform is applied
// along the last dim. The evaluator's threads share the rows of each transform.
template <class T>
Arrays Evaluate(const EvalContext& c, const Array& x) {
  const FftKind kind = KindOf(c.attrs);
  const std::vector<int64_t>& lengths = LengthsOf(c.attrs);
  const int count = static_cast<int>(lengths.size()), first = x.rank() - count;
  const auto& parallel_for = c.evaluator.options().parallel_for;
  const auto share = [&](int64_t n, int64_t each, fourier::Work work) {
    return parallel_for ? parallel_for(n, each, work) : fourier::InOrder(n, each, work);
  };
  Array out = ResultBuffer(c, 0);
  if (out.num_elements() == 0) return std::vector<Array>{out};
  T* const to = reinterpret_cast<T*>(out.MutableData());
  const T* from = reinterpret_cast<const T*>(x.data());
  const bool inverse = kind == FftKind::kIfft || kind == FftKind::kIrfft;
  double elements = 1;
  for (const int64_t length : lengths) elements *= static_cast<double>(length);
  const T inverse_scale = inverse ? static_cast<T>(1 / elements) : T{1};
  // Transforms dim d of an array of `shape`, whose elements are complex, from `from` to `into`.
  const auto along = [&](const Dims& shape, int d, T scale, T* into) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < x.rank(); ++i) (i < d ? outer : inner) *= i == d ? 1 : shape[i];
    const absl::Status status =
        fourier::Transform<T>(outer, shape[d], inner, inverse, scale, from, into, share);
    from = into;
    return status;
  };
  const int last = x.rank() - 1;
  const int64_t n = lengths.back();
  const Dims& complex_shape = kind == FftKind::kIrfft ? x.shape() : out.shape();
  Array scratch;
  if (kind == FftKind::kIrfft && count > 1) scratch = x;
  if (kind == FftKind::kRfft) {
    const int64_t rows = x.num_elements() / n;
    TESSERA_RETURN_IF_ERROR(fourier::FromReal<T>(rows, n, from, to, share));
    from = to;
  } else if (kind != FftKind::kIrfft) {
    TESSERA_RETURN_IF_ERROR(along(complex_shape, last, inverse_scale, to));
  }
  for (int d = last - 1; d >= first; --d) {
    T* const into = kind == FftKind::kIrfft ? reinterpret_cast<T*>(scratch.MutableData()) : to;
    TESSERA_RETURN_IF_ERROR(along(complex_shape, d, 1, into));
  }
  if (kind == FftKind::kIrfft)
    TESSERA_RETURN_IF_ERROR(
        fourier::ToReal<T>(out.num_elements() / n, n, inverse_scale, from, to, share));
  return std::vector<Array>{out};
}
Arrays EvalFft(const EvalContext& c, absl::Span<const Array> in) {
  const DType d = in[0].dtype();
  return d == DType::kC64 || d == DType::kF32 ? Evaluate<float>(c, in[0])
                                              : Evaluate<double>(c, in[0]);
}

constexpr AttrSpec kFftAttrs[] = {{"fft_type", AttrKind::kString}, {"fft_length", AttrKind::kInts}};

}  // namespace

constexpr OpDef kFft = Checked({.name = "fft",
                                .lax_name = "fft",
                                .family = Family::kContraction,
                                .num_operands = 1,
                                .attrs = kFftAttrs,
                                .lowering = Lowering::kHost,
                                .infer = InferFft,
                                .factors = FftFactors,
                                .sharding = FftSharding,
                                .varying = Derived{},
                                .jvp = Derived{},
                                .transpose = TransposeFft,
                                .batch = BatchFft,
                                .partition = PartitionFft,
                                .cost = FftCost,
                                .eval = EvalFft,
                                .scratch = FftScratch,
                                .uninterrupted = NothingUninterrupted});

}  // namespace tessera::ir::ops

namespace tessera::ir {

Value Fft(Value x, FftKind kind, const std::vector<int64_t>& lengths) {
  return ops::Emit(x, kind, lengths);
}

}  // namespace tessera::ir
