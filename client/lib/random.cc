// Keys, bits, uniform numbers and choices, and the draws that the other samplers build on
// (random_draws.h). Numbers that are made from integers equal those of jax.random to the bit, so
// the order of operations is that of JAX's code.
#include "client/random.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
#include "client/lib/random_draws.h"
#include "client/numpy.h"
#include "client/sets.h"
#include "ir/ops.h"

namespace tessera::random {
namespace internal {

using tessera::internal::BroadcastShapes;
using tessera::internal::BroadcastTo;
using tessera::internal::ThrowError;
using F = Formula;

namespace {

// Returns the integer `n` at every element of `shape`.
Value Splat(ir::Builder& b, DType dtype, int64_t n, const Dims& shape) {
  return ir::BroadcastInDim(ir::Constant(b, ir::Array::ScalarInt(dtype, n)), shape, {});
}
Value U32(ir::Builder& b, uint32_t n, const Dims& shape = {}) {
  return Splat(b, DType::kU32, n, shape);
}

// Returns the row-major index of each element. It is the sum of one iota per dim, so that each
// device can compute the indices of its own shard.
Value FlatIndex(ir::Builder& b, const Dims& shape, const Site& site) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  if (n >= (int64_t{1} << 32)) {
    ThrowError(ErrorKind::kLimitExceeded, site, "random: ", n,
               " elements from one key; at most 2^32 - 1. Split the key");
  }
  const Dims strides = ir::StridesOf(shape);
  Value index = U32(b, 0, shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const Value i = ir::Iota(b, DType::kU32, shape, static_cast<int>(d));
    index = index + i * U32(b, static_cast<uint32_t>(strides[d]), shape);
  }
  return index;
}

// How floats are made of random bits: the upper bits become the mantissa.
struct FloatBits {
  DType random_dtype, bits_dtype;  // dtype of the random bits, and of the bits of the float
  int shift;
  int64_t one_bits;  // bits of 1.0
};
FloatBits FloatBitsOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {DType::kU64, DType::kU64, 12, 0x3FF0000000000000};
    case DType::kF16:
      return {DType::kU16, DType::kU16, 6, 0x3C00};
    case DType::kBF16:  // 8 random bits, because the mantissa has 7
      return {DType::kU8, DType::kU16, 1, 0x3F80};
    default:
      return {DType::kU32, DType::kU32, 9, 0x3F800000};
  }
}

// Returns numbers in [0, 1): a number in [1, 2) minus 1.
Value UnitUniform(const KeyWords& key, const Dims& shape, DType dtype, const Site& site) {
  const FloatBits format = FloatBitsOf(dtype);
  Value bits = Bits(key, shape, format.random_dtype, site);
  if (format.bits_dtype != format.random_dtype) bits = ir::Convert(bits, format.bits_dtype);
  const auto splat = [&](int64_t n) { return Splat(bits.builder(), format.bits_dtype, n, shape); };
  const Value mantissa = ir::ShiftRightLogical(bits, splat(format.shift));
  const Value f = ir::BitcastConvert(ir::Or(mantissa, splat(format.one_bits)), dtype);
  return f - ir::FullLike(f, 1);
}

// Returns x y + z of f64 numbers rounded once, where x is small. The rounding errors of the product
// and the sum are computed, and added last. Reference: T. Dekker, "A floating-point technique for
// extending the available precision" (1971).
Value MultiplyAddOfF64(Value x, Value y, Value z) {
  const auto split = [](const F& a) {
    const F scaled = 134217729 * a;  // 2^27 + 1
    const F above = scaled - a;
    const F high = scaled - above;
    return std::pair(high, a - high);
  };
  const F a = x, b = y, c = z;
  const auto [a_high, a_low] = split(a);
  const auto [b_high, b_low] = split(b);
  const F product = a * b;
  const F of_high = a_high * b_high - product;
  const F lost = ((of_high + a_high * b_low) + a_low * b_high) + a_low * b_low;
  const F sum = product + c;
  const F rest = sum - product;
  const F of_sum = (product - (sum - rest)) + (c - rest);
  constexpr double kSplitMax = 1e290;
  return *ir::Where(ir::Abs(b) < kSplitMax, sum + (of_sum + lost), sum);
}
// Returns x y + z. For f32 and f64 it is rounded once, like the instruction that XLA uses on
// machines that have one.
Value MultiplyAdd(Value x, Value y, Value z) {
  if (x.dtype() == DType::kF64) return MultiplyAddOfF64(x, y, z);
  if (x.dtype() != DType::kF32) return x * y + z;
  // A product of two f32 numbers is exact in f64.
  const Value wide_x = ir::Convert(x, DType::kF64), wide_y = ir::Convert(y, DType::kF64);
  const Value product = wide_x * wide_y;
  return ir::Convert(product + ir::Convert(z, DType::kF64), DType::kF32);
}

double Rounded(DType dtype, double value) { return ir::Array::Of(dtype, {1}, {value}).At(0); }

// Returns the number of bits of the mantissa. 2 to minus this number is the distance from 1 to the
// next number.
int MantissaBits(DType dtype) {
  return dtype == DType::kF64 ? 52 : dtype == DType::kF32 ? 23 : dtype == DType::kF16 ? 10 : 7;
}

}  // namespace

KeyWords KeyWordsOf(Value key) {
  const auto word = [&](int64_t i) { return ir::Squeeze(ir::Slice(key, {i}, {i + 1}), {0}); };
  const Value high = word(0);
  return {high, word(1)};
}
// Joins words along a dim that follows the others: u32[2] from scalars, u32[n,2] from u32[n].
Value KeyOf(const KeyWords& words) {
  const int d = words.high.rank();
  const Value high = ir::ExpandDims(words.high, {d});
  return ir::Concatenate({high, ir::ExpandDims(words.low, {d})}, d);
}
KeyWords Child(const KeyWords& key, int64_t i) {
  ir::Builder& b = key.high.builder();
  const Value zero = U32(b, 0, key.high.shape());
  const Value count = U32(b, static_cast<uint32_t>(i), key.high.shape());
  const std::vector<Value> in = ir::MatchVarying({key.high, key.low, zero, count});
  const auto [high, low] = ir::Threefry2x32(in[0], in[1], in[2], in[3]);
  return {high, low, key.out_sharding};
}

const Array& CheckedKey(std::string_view name, const Arg& k) {
  const bool ok =
      k.kind == Arg::kArray && k.array->dtype() == DType::kU32 && k.array->shape() == Dims{2};
  if (!ok) {
    ThrowError(ErrorKind::kTypeError, k.site, "random::", ToAbsl(name),
               ": a key, u32[2], is expected, not ",
               k.kind == Arg::kArray ? k.array->type().ToString() : "a number",
               ". Make one with random::key(seed)");
  }
  return *k.array;
}
void CheckFloat(std::string_view name, DType dtype, const Site& site) {
  if (ir::IsFloat(dtype) && ir::BitWidth(dtype) >= 16) return;
  ThrowError(ErrorKind::kValueError, site, "random::", ToAbsl(name), ": dtype is ",
             ToAbsl(ir::DTypeName(dtype)), "; a float of 16 bits or more is expected");
}
void CheckInteger(std::string_view name, DType dtype, const Site& site) {
  if (ir::IsInteger(dtype) && ir::BitWidth(dtype) >= 8) return;
  ThrowError(ErrorKind::kValueError, site, "random::", ToAbsl(name), ": dtype is ",
             ToAbsl(ir::DTypeName(dtype)), "; an integer of 8 bits or more is expected");
}
void CheckMode(std::string_view name, std::string_view mode, const Site& site) {
  if (mode == "low" || mode == "high" || mode == "highest") return;
  ThrowError(ErrorKind::kValueError, site, "random::", ToAbsl(name), ": mode is '", ToAbsl(mode),
             "'; expected low, high or highest");
}
Dims ShapeOf(const Arg& param) { return param.kind == Arg::kArray ? param.array->shape() : Dims{}; }
Dims SampleShape(std::string_view name, const std::optional<Dims>& shape,
                 const std::vector<Dims>& params, const Site& site) {
  std::vector<Dims> all = params;
  if (shape) all.push_back(*shape);
  const Dims common_shape = BroadcastShapes(name, all, site);
  if (shape && common_shape != *shape) {
    ThrowError(ErrorKind::kValueError, site, "random::", ToAbsl(name),
               ": parameter shapes must be broadcast-compatible with the shape argument, and "
               "broadcasting them must give that shape, but it gives (",
               ir::DimsToString(common_shape), ") for the shape argument (",
               ir::DimsToString(*shape), ")");
  }
  return common_shape;
}
void CheckCast(std::string_view name, const Arg& param, DType dtype, const Site& site) {
  if (param.kind != Arg::kArray) return;
  const DType have = param.array->dtype();
  if (have == dtype || tessera::internal::Promote(have, dtype) == dtype) return;
  ThrowError(ErrorKind::kTypeError, site, "random::", ToAbsl(name),
             ": cannot safely cast a parameter of type ", ToAbsl(ir::DTypeName(have)), " to ",
             ToAbsl(ir::DTypeName(dtype)), ". Convert it, or ask for another dtype");
}

KeyWords CipherWords(const KeyWords& key, const Dims& shape, const Site& site) {
  ir::Builder& b = key.high.builder();
  const bool one_key_per_element = key.high.rank() != 0;
  const Value k0 = one_key_per_element ? key.high : ir::BroadcastInDim(key.high, shape, {});
  const Value k1 = one_key_per_element ? key.low : ir::BroadcastInDim(key.low, shape, {});
  const Value zero = U32(b, 0, shape);
  // With this sharding of the counters, each device draws the numbers of its own shard.
  const Value count = one_key_per_element
                          ? zero
                          : tessera::internal::Resharded("random", FlatIndex(b, shape, site),
                                                         key.out_sharding, site);
  const std::vector<Value> in = ir::MatchVarying({k0, k1, zero, count});
  const auto [high, low] = ir::Threefry2x32(in[0], in[1], in[2], in[3]);
  return {high, low};
}
Value Bits(const KeyWords& key, const Dims& shape, DType dtype, const Site& site) {
  const KeyWords words = CipherWords(key, shape, site);
  if (dtype == DType::kU64) {
    const Value high = ir::Convert(words.high, dtype), low = ir::Convert(words.low, dtype);
    return ir::Or(ir::ShiftLeft(high, Splat(high.builder(), dtype, 32, shape)), low);
  }
  const Value bits = ir::Xor(words.high, words.low);
  return dtype == DType::kU32 ? bits : ir::Convert(bits, dtype);
}

Value Uniform(const KeyWords& key, const Dims& shape, DType dtype, double low, double high,
              const Site& site) {
  const Value unit = UnitUniform(key, shape, dtype, site);
  // The bounds are rounded before they are subtracted, as in JAX.
  const double from = Rounded(dtype, low);
  const double distance = Rounded(dtype, Rounded(dtype, high) - from);
  const Value lo = ir::FullLike(unit, from);
  const Value span = ir::FullLike(unit, distance);
  int exponent = 0;
  // A product by a power of 2 is exact.
  const bool exact = std::fabs(std::frexp(distance, &exponent)) == 0.5;
  return ir::Max(lo, exact ? unit * span + lo : MultiplyAdd(unit, span, lo));
}
Value Uniform(const KeyWords& key, const Dims& shape, DType dtype, Value low, Value high,
              const Site& site) {
  const Value unit = UnitUniform(key, shape, dtype, site);
  const Value span = BroadcastTo(ir::Sub(high, low), shape);
  const Value lo = BroadcastTo(low, shape);
  return ir::Max(lo, MultiplyAdd(unit, span, lo));
}
Value Normal(const KeyWords& key, const Dims& shape, DType dtype, const Site& site) {
  if (ir::IsComplex(dtype)) {
    const DType part = dtype == DType::kC64 ? DType::kF32 : DType::kF64;
    const F re = Normal(Child(key, 0), shape, part, site);
    const F im = Normal(Child(key, 1), shape, part, site);
    const Value scaled = *(re / std::sqrt(2.0));
    return ir::Complex(scaled, *(im / std::sqrt(2.0)));
  }
  // The range starts at the number after -1, because erf_inv(-1) is infinite.
  const double low = std::ldexp(1.0, -MantissaBits(dtype) - 1) - 1;
  const Value u = Uniform(key, shape, dtype, low, 1, site);
  return ir::FullLike(u, std::sqrt(2.0)) * ir::ErfInv(u);
}
Value Exponential(const KeyWords& key, const Dims& shape, DType dtype, const Site& site) {
  const F u = Uniform(key, shape, dtype, 0, 1, site);
  return *-ir::Log1p(-u);
}
Value Signs(const KeyWords& key, const Dims& shape, DType dtype, const Site& site) {
  const Value u = Uniform(key, shape, DType::kF32, 0, 1, site);
  const F chosen = ir::Convert(ir::Compare(u, ir::FullLike(u, 0.5), "LT"), dtype);
  return *(2 * chosen - 1);
}

namespace {

// Returns the float of a fixed-point number below 1, which has two words, rounded down. The number
// of leading zeros gives the exponent, the bits after them the mantissa.
Value FixedPointToFloat(const F& high, const F& low) {
  const F zeros = ir::Clz(high), more_zeros = ir::Clz(low);
  const F is_zero = zeros == 32;
  const F rest = ir::Where(is_zero, low << more_zeros, low >> (32 - zeros));
  const F mantissa = (((high << zeros) | rest) >> 8) & ((1 << 23) - 1);
  const F exponent = (126 - ir::Where(is_zero, 32 + more_zeros, zeros)) << 23;
  const F bits = (exponent & ((1 << 30) - (1 << 22))) | mantissa;
  return ir::BitcastConvert(*bits, DType::kF32);
}
// Returns the two halves of an array along its first dim.
std::pair<F, F> Halves(Value both) {
  const Value first = ir::Squeeze(ir::SliceInDim(both, 0, 0, 1), {0});
  const Value second = ir::Squeeze(ir::SliceInDim(both, 0, 1, 2), {0});
  return {first, second};
}

}  // namespace

// JAX's three modes: "low" takes the logarithm of one uniform number, which has few digits near 1.
// The other modes draw two numbers per element, the second for further digits, and compute from the
// distance to 1, which keeps these digits.
Value Gumbel(const KeyWords& key, const Dims& shape, DType dtype, std::string_view mode,
             const Site& site) {
  Dims two = shape;
  two.insert(two.begin(), 2);
  const double tiny = dtype == DType::kF64 ? std::numeric_limits<double>::min()
                      : dtype == DType::kF16
                          ? 0x1p-14
                          : static_cast<double>(std::numeric_limits<float>::min());
  if (mode == "highest" && dtype == DType::kF32) {
    const auto [high, low] = Halves(Bits(key, two, DType::kU32, site));
    const F not_low = ~low;
    const F carries = Formula([not_low] {
      const F all = not_low == static_cast<double>(std::numeric_limits<uint32_t>::max());
      return ir::Convert(*all, DType::kU32);
    });
    // Computes 1 minus the number.
    const F other_high = ~high + carries, other_low = not_low + 1;
    const F below_half = high < static_cast<double>(1u << 31);
    const F h = ir::Where(below_half, high, other_high), l = ir::Where(below_half, low, other_low);
    const F x = FixedPointToFloat(h, l);
    return *ir::Where(below_half, -ir::Log(-ir::Log1p(-x)), -ir::Log(-ir::Log(x)));
  }
  if (mode != "low") {
    const auto [high, low] = Halves(Uniform(key, two, dtype, 0, 1, site));
    const F finer = high + std::ldexp(1.0, -MantissaBits(dtype)) * low + tiny;
    return *-ir::Log(-ir::Log1p(-ir::Where(high >= 0.5, high, finer)));
  }
  const F u = Uniform(key, shape, dtype, tiny, 1, site);
  return *-ir::Log(-ir::Log(u));
}

Value Filled(ir::Builder& b, DType dtype, double value, const Dims& shape) {
  return ir::BroadcastInDim(ir::Constant(b, dtype, value), shape, {});
}
Value NextParam(ir::Builder& b, const Arg& param, DType dtype, const std::vector<Value>& values,
                size_t* next) {
  if (param.kind != Arg::kArray) return ir::Constant(b, dtype, param.number);
  const Value value = values[(*next)++];
  if (ir::IsComplex(value.dtype()) && !ir::IsComplex(dtype))
    ThrowError(ErrorKind::kTypeError, param.site, "random: a parameter is ",
               value.type().ToString(), "; real numbers are expected");
  return ir::Convert(value, dtype);
}
std::vector<Array> ArraysOf(const Array& key, const std::vector<Arg>& params) {
  std::vector<Array> out = {key};
  for (const Arg& p : params)
    if (p.kind == Arg::kArray) out.push_back(*p.array);
  return out;
}
Array Sampled(std::string_view name, const Arg& key, const std::optional<Dims>& shape,
              const std::vector<Arg>& params, DType dtype, Sampler sampler) {
  const Array& k = CheckedKey(name, key);
  CheckFloat(name, dtype, key.site);
  std::vector<Dims> shapes;
  for (const Arg& p : params) {
    CheckCast(name, p, dtype, key.site);
    shapes.push_back(ShapeOf(p));
  }
  SamplerArgs args;
  args.shape = SampleShape(name, shape, shapes, key.site);
  args.dtype = dtype;
  args.site = key.site;
  return tessera::internal::Apply1(
      "random_" + std::string(name), key.site, ArraysOf(k, params),
      [&](ir::Builder& b, std::vector<Value> in) {
        args.key = KeyWordsOf(in[0]);
        size_t next = 1;
        for (const Arg& p : params)
          args.params.emplace_back(BroadcastTo(NextParam(b, p, dtype, in, &next), args.shape));
        return *sampler(args);
      });
}

}  // namespace internal

namespace {

using internal::ArraysOf;
using internal::CheckedKey;
using internal::CheckFloat;
using internal::Child;
using internal::KeyWords;
using internal::KeyWordsOf;
using internal::SamplerArgs;
using internal::SampleShape;
using internal::ShapeOf;
using ir::Value;
using tessera::internal::Apply1;
using tessera::internal::BroadcastTo;
using tessera::internal::CallOnValues;
using tessera::internal::InProgram;
using tessera::internal::ThrowError;
using F = ir::Formula;
using Vs = std::vector<Value>;

int64_t SizeOf(const Dims& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}
int CheckedAxis(std::string_view name, int axis, int rank, const Site& site) {
  const int from_start = axis < 0 ? axis + rank : axis;
  if (from_start < 0 || from_start >= rank)
    ThrowError(ErrorKind::kValueError, site, "random::", ToAbsl(name), ": axis ", axis,
               " is out of bounds for an array of ", rank, " dims");
  return from_start;
}
// Throws unless `x` is an array with at least 1 dim or a whole number.
void CheckPopulation(std::string_view name, const Arg& x, const Site& site) {
  const bool ok = x.kind == Arg::kArray ? x.array->rank() > 0 : x.kind == Arg::kInteger;
  if (!ok)
    ThrowError(ErrorKind::kTypeError, site, "random::", ToAbsl(name),
               ": a whole number or an array of at least 1 dim is expected");
  // Positions in the array are s32.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t most = x.kind == Arg::kArray ? 0 : x.integer;
  if (x.kind == Arg::kArray)
    for (int d = 0; d < x.array->rank(); ++d) most = std::max(most, x.array->dim(d));
  if (most > kMost || (x.kind == Arg::kInteger && x.integer < 0 && x.number > 0))
    ThrowError(ErrorKind::kValueError, site, "random::", ToAbsl(name), ": the population has ",
               x.kind == Arg::kArray ? static_cast<double>(most) : x.number,
               " elements; expected at most 2^31 - 1");
}

// ---- Integers. ----------------------------------------------------------------------------------

// Returns the lowest and the highest number of a dtype. For u64 the highest is that of s64, because
// bounds given as numbers are s64.
std::pair<int64_t, int64_t> RangeOf(DType dtype) {
  const int bits = ir::BitWidth(dtype);
  if (ir::IsUnsignedInt(dtype))
    return {0, bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1};
  const int64_t most =
      bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  return {-most - 1, most};
}
Value IntegerLike(Value like, int64_t n) {
  const Value one = ir::Constant(like.builder(), ir::Array::ScalarInt(like.dtype(), n));
  return BroadcastTo(one, like.shape());
}
// Clamps x to the numbers that both its own dtype and `dtype` hold.
Value ClipTo(Value x, DType dtype) {
  const auto [low, high] = RangeOf(dtype);
  const auto [x_low, x_high] = RangeOf(x.dtype());
  if (low > x_low) x = ir::Max(x, IntegerLike(x, low));
  if (high < x_high ||
      (ir::IsUnsignedInt(x.dtype()) && ir::BitWidth(x.dtype()) == 64 && dtype != x.dtype()))
    x = ir::Min(x, IntegerLike(x, high));
  return ir::Convert(x, dtype);
}
// Returns whether `high` is above the largest number of `dtype`.
Value IsAbove(Value high, DType dtype) {
  const int64_t most = std::min(RangeOf(dtype).second, RangeOf(high.dtype()).second);
  if (dtype == DType::kU64) return ir::Compare(high, high, "NE");
  return ir::Compare(high, IntegerLike(high, most), "GT");
}

// Two words per element, which together are one number of twice as many bits. Below(span) returns
// this number modulo `span`. A span of 0 stands for all numbers of the dtype.
struct Offsets {
  Value high, low;

  Offsets(const KeyWords& key, const Dims& shape, DType bits, const Site& site)
      : high(internal::Bits(Child(key, 0), shape, bits, site)),
        low(internal::Bits(Child(key, 1), shape, bits, site)) {}

  Value Below(uint64_t span) const {
    const int width = ir::BitWidth(low.dtype());
    if (span == 0) return low;
    // All steps, as in JAX, are computed in integers of the dtype's width.
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    const uint64_t half = (uint64_t{1} << (width / 2)) % span;
    const uint64_t multiplier = ((half * half) & mask) % span;
    const Value modulus = IntegerLike(low, static_cast<int64_t>(span));
    const Value upper = ir::Rem(high, modulus) * IntegerLike(low, static_cast<int64_t>(multiplier));
    return ir::Rem(upper + ir::Rem(low, modulus), modulus);
  }
  Value Below(const Value& span) const {
    const int width = ir::BitWidth(low.dtype());
    const F whole_range = F(span) == 0;
    const F divisor = ir::Where(whole_range, 1, F(span));
    const F half = std::ldexp(1.0, width / 2) % divisor;
    const F multiplier = (half * half) % divisor;
    const F offset = ((F(high) % divisor) * multiplier + F(low) % divisor) % divisor;
    return *ir::Where(whole_range, F(low), offset);
  }
};

// ---- Orders. ------------------------------------------------------------------------------------

// Sorts x by random words. Equal words bias the order, so the sort is repeated with new words, more
// often for larger x.
Value Shuffle(KeyWords key, Value x, int axis, const Site& site) {
  const auto size = static_cast<double>(std::max<int64_t>(1, SizeOf(x.shape())));
  const double most = std::log(static_cast<double>(std::numeric_limits<uint32_t>::max()));
  const int rounds = static_cast<int>(std::ceil(3 * std::log(size) / most));
  for (int i = 0; i < rounds; ++i) {
    const KeyWords next = Child(key, 0);
    const Value order = internal::Bits(Child(key, 1), x.shape(), DType::kU32, site);
    x = ir::Sort(ir::MatchVarying({order, x}), axis)[1];
    key = next;
  }
  return x;
}
Value TakeAlong(Value x, Value indices, int axis, const Site& site) {
  return CallOnValues({x, indices}, site, [&](const std::vector<Array>& in) {
    return take(Arg(in[0], site), Arg(in[1], site), axis);
  });
}
Value Permute(const KeyWords& key, Value x, int axis, bool independent, const Site& site) {
  if (independent || x.rank() == 1) return Shuffle(key, x, axis, site);
  const Value order = Shuffle(key, ir::Iota(x.builder(), DType::kS32, {x.dim(axis)}, 0), 0, site);
  return TakeAlong(x, order, axis, site);
}

DType FloatDTypeOf(const Array& x) {
  if (ir::IsFloat(x.dtype())) return x.dtype();
  return x.dtype() == DType::kS64 || x.dtype() == DType::kU64 ? DType::kF64 : DType::kF32;
}

}  // namespace

Array key(uint64_t seed, Site site) {
  return Apply1("random_key", site, {}, [&](ir::Builder& b, Vs) {
    const Value high =
        ir::Constant(b, ir::Array::ScalarInt(DType::kU32, static_cast<int64_t>(seed >> 32)));
    const auto word = static_cast<int64_t>(seed & std::numeric_limits<uint32_t>::max());
    return internal::KeyOf({high, ir::Constant(b, ir::Array::ScalarInt(DType::kU32, word))});
  });
}

Array split(const Arg& k, int64_t n) {
  return Apply1("random_split", k.site, {CheckedKey("split", k)}, [&](ir::Builder&, Vs v) {
    return internal::KeyOf(internal::CipherWords(KeyWordsOf(v[0]), {n}, k.site));
  });
}

// Encrypts `data` with the key, as JAX does. A C++ number is checked before anything is emitted,
// because a number of more than 32 bits would lose bits.
Array fold_in(const Arg& k, const Arg& data) {
  std::vector<Array> in = {CheckedKey("fold_in", k)};
  if (data.kind == Arg::kArray) {
    const DType dtype = data.array->dtype();
    if (data.array->rank() != 0 || !(ir::IsInteger(dtype) || dtype == DType::kBool))
      ThrowError(
          ErrorKind::kTypeError, data.site, "random::fold_in: data is ",
          data.array->type().ToString(),
          "; expected one integer (use vmap to fold each of several integers into a separate key)");
    in.push_back(*data.array);
  } else if (data.kind == Arg::kReal) {
    ThrowError(ErrorKind::kTypeError, data.site, "random::fold_in: data is ", data.number,
               ", a number of a float type; expected an integer");
  } else if (data.integer < std::numeric_limits<int32_t>::min() ||
             data.integer > std::numeric_limits<uint32_t>::max()) {
    ThrowError(ErrorKind::kValueError, data.site, "random::fold_in: data is ", data.integer,
               "; expected an integer of 32 bits");
  }
  return Apply1("random_fold_in", k.site, in, [&](ir::Builder& b, Vs v) {
    const auto number = static_cast<int64_t>(static_cast<uint32_t>(data.integer));
    const Value d = data.kind == Arg::kArray
                        ? ir::Convert(v[1], DType::kU32)
                        : ir::Constant(b, ir::Array::ScalarInt(DType::kU32, number));
    const KeyWords key = KeyWordsOf(v[0]);
    const Value zero = ir::Constant(b, ir::Array::ScalarInt(DType::kU32, 0));
    const std::vector<Value> words = ir::MatchVarying({key.high, key.low, zero, d});
    const auto [high, low] = ir::Threefry2x32(words[0], words[1], words[2], words[3]);
    return internal::KeyOf({high, low});
  });
}

Array bits(const Arg& k, Dims shape, DType dtype, const OutSharding& out_sharding) {
  if (!ir::IsUnsignedInt(dtype) || ir::BitWidth(dtype) < 8)
    ThrowError(ErrorKind::kValueError, k.site, "random::bits: dtype is ",
               ToAbsl(ir::DTypeName(dtype)), "; u8, u16, u32 or u64 is expected");
  return Apply1("random_bits", k.site, {CheckedKey("bits", k)}, [&](ir::Builder&, Vs v) {
    KeyWords words = KeyWordsOf(v[0]);
    words.out_sharding = out_sharding;
    return internal::Bits(words, shape, dtype, k.site);
  });
}

Array uniform(const Arg& k, Dims shape, DType dtype, const Arg& low, const Arg& high,
              const OutSharding& out_sharding) {
  const Array& key = CheckedKey("uniform", k);
  CheckFloat("uniform", dtype, k.site);
  SampleShape("uniform", shape, {ShapeOf(low), ShapeOf(high)}, k.site);
  return Apply1("random_uniform", k.site, ArraysOf(key, {low, high}), [&](ir::Builder& b, Vs v) {
    KeyWords words = KeyWordsOf(v[0]);
    words.out_sharding = out_sharding;
    if (low.kind != Arg::kArray && high.kind != Arg::kArray)
      return internal::Uniform(words, shape, dtype, low.number, high.number, k.site);
    size_t next = 1;
    const Value from = internal::NextParam(b, low, dtype, v, &next);
    const Value to = internal::NextParam(b, high, dtype, v, &next);
    const Dims both =
        tessera::internal::BroadcastShapes("uniform", {from.shape(), to.shape()}, k.site);
    const Value from_all = BroadcastTo(from, both);
    return internal::Uniform(words, shape, dtype, from_all, BroadcastTo(to, both), k.site);
  });
}

// Follows jax.random.randint step by step, since its results must agree to the bit. Bounds that are
// numbers are clamped here; bounds that are arrays are clamped in the program.
Array randint(const Arg& k, Dims shape, const Arg& low, const Arg& high, DType dtype,
              const OutSharding& out_sharding) {
  const Array& key = CheckedKey("randint", k);
  internal::CheckInteger("randint", dtype, k.site);
  for (const Arg* bound : {&low, &high}) {
    const bool ok = bound->kind == Arg::kArray ? ir::IsInteger(bound->array->dtype()) &&
                                                     ir::BitWidth(bound->array->dtype()) >= 8
                                               : bound->kind == Arg::kInteger;
    if (!ok)
      ThrowError(ErrorKind::kTypeError, k.site,
                 "random::randint: the bounds must be integers, of 8 bits or more");
    if (bound->kind == Arg::kInteger && bound->integer < 0 && bound->number > 0)
      ThrowError(ErrorKind::kValueError, k.site, "random::randint: a bound is ", bound->number,
                 "; expected a bound of at most 63 bits, or an array of u64");
  }
  SampleShape("randint", shape, {ShapeOf(low), ShapeOf(high)}, k.site);
  // Numbers drawn from fewer than 32 bits would be visibly biased, so 32 bits are drawn.
  const bool narrow = ir::BitWidth(dtype) < 32;
  const DType drawn_dtype = narrow ? DType::kS32 : dtype;
  const DType word_dtype = ir::BitWidth(drawn_dtype) == 64 ? DType::kU64 : DType::kU32;
  return Apply1("random_randint", k.site, ArraysOf(key, {low, high}), [&](ir::Builder& b, Vs v) {
    KeyWords words = KeyWordsOf(v[0]);
    words.out_sharding = out_sharding;
    const Offsets offsets(words, shape, word_dtype, k.site);
    const auto add_offset = [&](const Value& from, const Value& offset) {
      return ir::Convert(ir::Add(from, ir::Convert(offset, drawn_dtype)), dtype);
    };
    const auto [least, most] = RangeOf(dtype);
    if (low.kind != Arg::kArray && high.kind != Arg::kArray) {
      const bool whole_range = !narrow && high.integer > most && dtype != DType::kU64;
      const int64_t from = std::clamp(low.integer, least, most);
      const int64_t to = std::clamp(high.integer, least, narrow ? most + 1 : most);
      uint64_t span = to <= from ? 1 : static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
      if (whole_range && to > from) ++span;
      if (word_dtype == DType::kU32) span &= std::numeric_limits<uint32_t>::max();
      const Value first =
          BroadcastTo(ir::Constant(b, ir::Array::ScalarInt(drawn_dtype, from)), shape);
      return add_offset(first, offsets.Below(span));
    }
    size_t next = 1;
    const auto bound = [&](const Arg& a) {
      return a.kind == Arg::kArray ? v[next++]
                                   : ir::Constant(b, ir::Array::ScalarInt(DType::kS64, a.integer));
    };
    Value from = bound(low), to = bound(high);
    if (narrow) {
      // Bounds are, as in JAX, first converted to 32 bits; `high` may be one more than the dtype
      // holds.
      from = ClipTo(ir::Convert(from, DType::kS32), dtype);
      from = ir::Convert(from, DType::kS32);
      to = ir::Convert(to, DType::kS32);
      to = ir::Max(to, IntegerLike(to, least));
      to = ir::Min(to, IntegerLike(to, most + 1));
    }
    const Value above = IsAbove(to, drawn_dtype);
    from = BroadcastTo(ClipTo(from, drawn_dtype), shape);
    to = BroadcastTo(ClipTo(to, drawn_dtype), shape);
    const F empty = F(to) <= F(from);
    const F distance = ir::Convert(ir::Sub(to, from), word_dtype);
    const F span = ir::Where(empty, 1, distance);
    const F adds_one = F(BroadcastTo(above, shape)) & ~empty;
    return add_offset(from, offsets.Below(*ir::Where(adds_one, span + 1, span)));
  });
}

// Mode "high" draws two numbers. The first is subtracted from p before the comparison, so that the
// digits of the second number count. In this mode all devices draw all numbers, and the result is
// resharded.
Array bernoulli(const Arg& k, const Arg& p, Shape shape, std::string_view mode,
                const OutSharding& out_sharding) {
  const Array& key = CheckedKey("bernoulli", k);
  if (mode != "low" && mode != "high")
    ThrowError(ErrorKind::kValueError, k.site, "random::bernoulli: mode is '", ToAbsl(mode),
               "'; expected high or low");
  if (p.kind == Arg::kArray &&
      (!ir::IsFloat(p.array->dtype()) || ir::BitWidth(p.array->dtype()) < 16))
    ThrowError(
        ErrorKind::kTypeError, k.site,
        "random::bernoulli: the probability must have a float dtype of 16 bits or more, got ",
        ToAbsl(ir::DTypeName(p.array->dtype())));
  const Dims out = SampleShape("bernoulli", shape, {ShapeOf(p)}, k.site);
  const DType dtype = p.kind == Arg::kArray ? p.array->dtype() : DType::kF32;
  return Apply1("random_bernoulli", k.site, ArraysOf(key, {p}), [&](ir::Builder&, Vs v) {
    KeyWords words = KeyWordsOf(v[0]);
    if (mode == "low") words.out_sharding = out_sharding;
    if (mode == "high") {
      Dims two = out;
      two.insert(two.begin(), 2);
      const Value both = internal::Uniform(words, two, dtype, 0, 1, k.site);
      const Value first = ir::Squeeze(ir::SliceInDim(both, 0, 0, 1), {0});
      const F second = ir::Squeeze(ir::SliceInDim(both, 0, 1, 2), {0});
      const int digits = dtype == DType::kF64   ? 52
                         : dtype == DType::kF32 ? 23
                         : dtype == DType::kF16 ? 10
                                                : 7;
      const F finer = second * std::ldexp(1.0, -digits);
      const F limit =
          p.kind == Arg::kArray ? F(BroadcastTo(v[1], out)) : F(ir::FullLike(first, p.number));
      return tessera::internal::Resharded("random::bernoulli", *(finer < limit - F(first)),
                                          out_sharding, k.site);
    }
    const Value u = internal::Uniform(words, out, dtype, 0, 1, k.site);
    const Value limit = p.kind == Arg::kArray ? BroadcastTo(v[1], out) : ir::FullLike(u, p.number);
    return ir::Compare(u, limit, "LT");
  });
}

Array rademacher(const Arg& k, Dims shape, DType dtype) {
  const Array& key = CheckedKey("rademacher", k);
  return Apply1("random_rademacher", k.site, {key}, [&](ir::Builder&, Vs v) {
    return internal::Signs(KeyWordsOf(v[0]), shape, dtype, k.site);
  });
}

Array permutation(const Arg& k, const Arg& x, int axis, bool independent) {
  const Array& key = CheckedKey("permutation", k);
  CheckPopulation("permutation", x, k.site);
  const int along =
      CheckedAxis("permutation", axis, std::max(1, static_cast<int>(ShapeOf(x).size())), k.site);
  return Apply1("random_permutation", k.site, ArraysOf(key, {x}), [&](ir::Builder& b, Vs v) {
    const Value from = x.kind == Arg::kArray
                           ? v[1]
                           : ir::Iota(b, DType::kS32, {std::max<int64_t>(0, x.integer)}, 0);
    return Permute(KeyWordsOf(v[0]), from, along, independent, k.site);
  });
}

// Chooses in one of three ways, as JAX does: from a permutation (without replacement and weights),
// by bisection in the cumulated weights (with replacement), or by the largest Gumbel scores (with
// weights but without replacement).
Array choice(const Arg& k, const Arg& a, Dims shape, bool replace, const std::optional<Array>& p,
             int axis, std::string_view mode) {
  const Array& key = CheckedKey("choice", k);
  internal::CheckMode("choice", mode, k.site);
  CheckPopulation("choice", a, k.site);
  const bool from_array = a.kind == Arg::kArray;
  const int along = from_array ? CheckedAxis("choice", axis, a.array->rank(), k.site) : 0;
  const int64_t population = from_array ? a.array->dim(along) : a.integer;
  const int64_t num_draws = SizeOf(shape);
  if (num_draws > 0 && population <= 0)
    ThrowError(ErrorKind::kValueError, k.site,
               "random::choice: a must be greater than 0 unless no samples are taken");
  if (!replace && num_draws > population)
    ThrowError(ErrorKind::kValueError, k.site, "random::choice: cannot take a larger sample (size ",
               num_draws, ") than the population (size ", population, ") without replacement");
  std::vector<Array> in = ArraysOf(key, {a});
  if (p) {
    tessera::internal::ThrowIfNoValue(*p, k.site);
    if (p->shape() != Dims{population})
      ThrowError(ErrorKind::kValueError, k.site,
                 "random::choice: p must be a vector with the size of the axis, ", population,
                 ", got ", p->type().ToString());
    in.push_back(*p);
  }
  Dims out = shape;
  if (from_array) {
    const Dims& a_shape = a.array->shape();
    out.insert(out.begin(), a_shape.begin(), a_shape.begin() + along);
    out.insert(out.end(), a_shape.begin() + along + 1, a_shape.end());
  }
  return Apply1("random_choice", k.site, in, [&](ir::Builder& b, Vs v) {
    const KeyWords words = KeyWordsOf(v[0]);
    if (num_draws == 0) return ir::Full(b, from_array ? v[1].dtype() : DType::kS32, out, 0);
    Value indices;
    if (!p && !replace) {
      const Value from = from_array ? v[1] : ir::Iota(b, DType::kS32, {population}, 0);
      const Value permuted = Permute(words, from, along, /*independent=*/false, k.site);
      return ir::Reshape(ir::SliceInDim(permuted, along, 0, num_draws), out);
    }
    if (!p) {
      const Offsets offsets(words, shape, DType::kU32, k.site);
      indices = ir::Convert(offsets.Below(static_cast<uint64_t>(population)), DType::kS32);
    } else {
      const DType dtype = FloatDTypeOf(*p);
      const Value weights = ir::Convert(v.back(), dtype);
      if (replace) {
        const Value sums = ir::Cumsum(weights, 0);
        const F total = ir::Squeeze(ir::SliceInDim(sums, 0, population - 1, population), {0});
        const F totals = BroadcastTo(*total, shape);
        const F drawn = totals * (1 - F(internal::Uniform(words, shape, dtype, 0, 1, k.site)));
        const auto find = [&](const std::vector<Array>& in) {
          return searchsorted(in[0], Arg(in[1], k.site), "left", k.site);
        };
        indices = ir::Convert(CallOnValues({sums, *drawn}, k.site, find), DType::kS32);
      } else {
        const F noise = internal::Gumbel(words, {population}, dtype, mode, k.site);
        const Value scores = *(noise + ir::Log(F(weights)));
        indices = ir::TopK(scores, num_draws, 0).second;
      }
    }
    const Value chosen = from_array ? TakeAlong(v[1], indices, along, k.site) : indices;
    return ir::Reshape(chosen, out);
  });
}

// Adds Gumbel noise to the logits. The category of the largest score is a sample with replacement.
// The categories of the k largest scores are k samples without replacement, for which one noise per
// category is enough.
Array categorical(const Arg& k, const Arg& logits, int axis, Shape shape, bool replace,
                  std::string_view mode) {
  const Array& key = CheckedKey("categorical", k);
  internal::CheckMode("categorical", mode, k.site);
  if (logits.kind != Arg::kArray || logits.array->rank() == 0)
    ThrowError(ErrorKind::kTypeError, k.site,
               "random::categorical: logits must be an array of at least 1 dim");
  const DType dtype = logits.array->dtype();
  CheckFloat("categorical", dtype, k.site);
  const int rank = logits.array->rank();
  const int along = CheckedAxis("categorical", axis, rank, k.site);
  const int64_t classes = logits.array->dim(along);
  Dims batch = logits.array->shape();
  batch.erase(batch.begin() + along);
  const Dims out =
      SampleShape("categorical", shape ? shape : std::optional(batch), {batch}, k.site);
  const auto before = static_cast<int>(out.size() - batch.size());
  const Dims prefix(out.begin(), out.begin() + before);
  if (!replace && SizeOf(prefix) > classes)
    ThrowError(ErrorKind::kValueError, k.site,
               "random::categorical: the number of samples without ", "replacement (",
               SizeOf(prefix), ") cannot exceed the number of categories (", classes, ")");
  return Apply1("random_categorical", k.site, {key, *logits.array}, [&](ir::Builder&, Vs v) {
    const KeyWords words = KeyWordsOf(v[0]);
    if (!replace) {
      const F noise = internal::Gumbel(words, v[1].shape(), dtype, mode, k.site);
      const Value scores = ir::MoveDim(*(F(v[1]) + noise), along, rank - 1);
      const Value indices = ir::TopK(scores, SizeOf(prefix), rank - 1).second;
      return ir::Reshape(ir::MoveDim(indices, rank - 1, 0), out);
    }
    Dims full = out;
    full.insert(full.begin() + before + along, classes);
    const F noise = internal::Gumbel(words, full, dtype, mode, k.site);
    return ir::ArgMax(*(noise + F(BroadcastTo(v[1], full))), before + along);
  });
}

Array gumbel(const Arg& k, Dims shape, DType dtype, std::string_view mode) {
  internal::CheckMode("gumbel", mode, k.site);
  return internal::Sampled("gumbel", k, shape, {}, dtype, [&](const SamplerArgs& d) {
    return F(internal::Gumbel(d.key, d.shape, d.dtype, mode, d.site));
  });
}

}  // namespace tessera::random
