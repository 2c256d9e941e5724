// bitcast_convert: reads the same bits as another type. If that type has fewer or more bits, a last
// dim holds the parts, the lowest bits first. Complex numbers and booleans need rules of their own
// here.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

// Returns part `i` of the last dim.
Value PartOf(Value x, int64_t i) {
  const Value part = SliceInDim(x, x.rank() - 1, i, i + 1);
  return Reshape(part, Dims(x.shape().begin(), x.shape().end() - 1));
}
Value Stacked(Value a, Value b) {
  const Value first = ExpandDims(a, {a.rank()});
  const Value second = ExpandDims(b, {b.rank()});
  return Concatenate({first, second}, a.rank());
}

// Converts between complex numbers: each part is cut in two, or is made of two.
Value BitcastComplex(Value x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (dtype == DType::kC64) {
    const Value re = BitcastConvert(Real(x), DType::kF32);
    const Value im = BitcastConvert(Imag(x), DType::kF32);
    const Value re_low = PartOf(re, 0), re_high = PartOf(re, 1);
    const Value im_low = PartOf(im, 0), im_high = PartOf(im, 1);
    const Value first = Complex(re_low, re_high), second = Complex(im_low, im_high);
    return Stacked(first, second);
  }
  const Value first = PartOf(x, 0), second = PartOf(x, 1);
  const auto joined = [](Value part) {
    const Value low = Real(part), high = Imag(part);
    return BitcastConvert(Stacked(low, high), DType::kF64);
  };
  const Value re = joined(first), im = joined(second);
  return Complex(re, im);
}

// Returns the unsigned dtype with at least this many bits that can be computed with.
DType UnsignedDType(int bits) {
  return bits <= 8 ? DType::kU8 : bits == 16 ? DType::kU16 : bits == 32 ? DType::kU32 : DType::kU64;
}
// Returns the position of each bit along the last dim.
Value BitPositions(Value like) {
  return Iota(like.builder(), like.dtype(), like.shape(), like.rank() - 1);
}
Value FromBits(Value bits, DType dtype) {
  const DType number = UnsignedDType(BitWidth(dtype));
  const Value wide = Convert(bits, number);
  const Value sum = ReduceSum(ShiftLeft(wide, BitPositions(wide)), {wide.rank() - 1});
  if (BitWidth(dtype) < 8) return Convert(sum, dtype);
  return number == dtype ? sum : BitcastConvert(sum, dtype);
}
Value ToBits(Value x) {
  const DType number = UnsignedDType(BitWidth(x.dtype()));
  const int bits = BitWidth(x.dtype());
  const Value whole = bits < 8              ? Convert(x, number)
                      : number == x.dtype() ? x
                                            : BitcastConvert(x, number);
  Dims shape = x.shape();
  shape.push_back(bits);
  std::vector<int64_t> dims(x.rank());
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
  const Value spread = BroadcastInDim(whole, shape, dims);
  const Value shifted = ShiftRightLogical(spread, BitPositions(spread));
  const Value lowest = And(shifted, FullLike(shifted, 1));
  return Compare(lowest, FullLike(lowest, 0), "NE");
}

}  // namespace

std::vector<Value> ImportBitcast(const OpReader& op) {
  if (op.in.size() != 1) op.Malformed("does not have exactly one operand");
  const Value x = op.in[0];
  const DType from = x.dtype(), to = op.ResultType().dtype;
  const auto need_parts = [&](Value of, int64_t parts) {
    if (of.rank() == 0 || of.dim(of.rank() - 1) != parts)
      op.Malformed(absl::StrCat("makes ", ToAbsl(DTypeName(to)), " of ", of.type().ToString(),
                                "; expected a last dim of ", parts));
  };
  if (IsComplex(from) && IsComplex(to)) {
    constexpr int64_t kHalves = 2;
    if (from == DType::kC64 && to == DType::kC128) need_parts(x, kHalves);
    return {BitcastComplex(x, to)};
  }
  if (from == DType::kBool && to == DType::kBool) return {x};
  if (IsComplex(from) || IsComplex(to))
    op.Malformed(absl::StrCat("makes ", ToAbsl(DTypeName(to)), " of ", x.type().ToString(),
                              "; complex numbers can only be made from complex numbers"));
  if (from == DType::kBool) {
    need_parts(x, BitWidth(to));
    return {FromBits(x, to)};
  }
  if (to == DType::kBool) return {ToBits(x)};
  return {BitcastConvert(x, to)};
}

}  // namespace tessera::ir::stablehlo
