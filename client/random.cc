#include "client/random.h"

#include <cmath>
#include <limits>

#include "client/operand.h"
#include "ir/ops.h"

namespace tessera::random {
namespace {

using internal::Apply1;
using internal::ThrowError;
using ir::Value;
using Vs = std::vector<Value>;

const Array& Key(std::string_view op, const Arg& k) {
  const bool ok =
      k.kind == Arg::kArray && k.array->dtype() == DType::kU32 && k.array->shape() == Dims{2};
  if (!ok) {
    ThrowError(ErrorKind::kTypeError, k.site, "random::", ToAbsl(op),
               ": a key, u32[2], is expected, not ",
               k.kind == Arg::kArray ? k.array->type().ToString() : "a number",
               ". Make one with random::key(seed)");
  }
  return *k.array;
}

// The integer `n` at every element of `shape`.
Value Splat(ir::Builder& b, DType dtype, int64_t n, const Dims& shape) {
  return ir::BroadcastInDim(ir::Constant(b, ir::Array::ScalarInt(dtype, n)), shape, {});
}
Value U32(ir::Builder& b, uint32_t n, const Dims& shape = {}) {
  return Splat(b, DType::kU32, n, shape);
}

// Word `i` of a key, broadcast to `shape`.
Value Word(Value key, int64_t i, const Dims& shape) {
  return ir::BroadcastInDim(ir::Squeeze(ir::Slice(key, {i}, {i + 1}), {0}), shape, {});
}

// The row-major index of each element, by one iota per dim, so that each shard computes its own.
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

// Both words of the cipher at each element's counter.
std::pair<Value, Value> Blocks(Value key, const Dims& shape, const Site& site) {
  ir::Builder& b = key.builder();
  const std::vector<Value> in = ir::MatchVarying(
      {Word(key, 0, shape), Word(key, 1, shape), U32(b, 0, shape), FlatIndex(b, shape, site)});
  return ir::Threefry2x32(in[0], in[1], in[2], in[3]);
}

Value Bits32(Value key, const Dims& shape, const Site& site) {
  const auto [high, low] = Blocks(key, shape, site);
  return ir::Xor(high, low);
}

// Joins words along a dim that follows the others: u32[2] from scalars, u32[n,2] from u32[n].
Value JoinWords(Value high, Value low) {
  const int d = high.rank();
  return ir::Concatenate({ir::ExpandDims(high, {d}), ir::ExpandDims(low, {d})}, d);
}

// A float in [0, 1): one in [1, 2), whose mantissa is the upper bits of `bits` and whose exponent
// bits are those of `one`, the bits of 1.0; minus 1.
Value FloatBelow1(Value bits, int64_t exponent_bits, int64_t one, DType dtype) {
  const auto splat = [&](int64_t n) {
    return Splat(bits.builder(), bits.dtype(), n, bits.shape());
  };
  const Value mantissa = ir::ShiftRightLogical(bits, splat(exponent_bits));
  const Value f = ir::BitcastConvert(ir::Or(mantissa, splat(one)), dtype);
  return f - ir::FullLike(f, 1);
}

// In [0, 1).
Value Unit(Value key, const Dims& shape, DType dtype, const Site& site) {
  if (dtype == DType::kF64) {
    const auto [high, low] = Blocks(key, shape, site);
    const Value h = ir::Convert(high, DType::kS64), l = ir::Convert(low, DType::kS64);
    const Value bits = ir::Or(ir::ShiftLeft(h, Splat(key.builder(), DType::kS64, 32, shape)), l);
    return FloatBelow1(bits, 12, 0x3FF0000000000000, DType::kF64);
  }
  if (dtype == DType::kF32) {
    return FloatBelow1(Bits32(key, shape, site), 9, 0x3F800000, DType::kF32);
  }
  ThrowError(ErrorKind::kTypeError, site, "random: dtype f32 or f64 is expected, not ",
             std::string(ir::DTypeName(dtype)), ". Draw f32 and convert");
}

Value Uniform(Value key, const Dims& shape, DType dtype, double low, double high,
              const Site& site) {
  const Value unit = Unit(key, shape, dtype, site);
  const Value lo = ir::FullLike(unit, low);
  // The bounds are rounded before they are subtracted, as JAX does.
  const double span = dtype == DType::kF32
                          ? static_cast<double>(static_cast<float>(high) - static_cast<float>(low))
                          : high - low;
  return ir::Max(lo, unit * ir::FullLike(unit, span) + lo);
}

}  // namespace

Array key(uint64_t seed, Site site) {
  return Apply1("random_key", site, {}, [&](ir::Builder& b, Vs) {
    const Value high = U32(b, static_cast<uint32_t>(seed >> 32));
    return JoinWords(high, U32(b, static_cast<uint32_t>(seed)));
  });
}

Array split(const Arg& k, int64_t n) {
  return Apply1("random_split", k.site, {Key("split", k)}, [&](ir::Builder&, Vs v) {
    const auto [high, low] = Blocks(v[0], {n}, k.site);
    return JoinWords(high, low);
  });
}

Array fold_in(const Arg& k, const Arg& data) {
  std::vector<Array> in = {Key("fold_in", k)};
  if (data.kind == Arg::kArray) in.push_back(*data.array);
  return Apply1("random_fold_in", k.site, in, [&](ir::Builder& b, Vs v) {
    const Value d = data.kind == Arg::kArray ? ir::Convert(v[1], DType::kU32)
                                             : U32(b, static_cast<uint32_t>(data.integer));
    const std::vector<Value> words =
        ir::MatchVarying({Word(v[0], 0, {}), Word(v[0], 1, {}), U32(b, 0), d});
    const auto [high, low] = ir::Threefry2x32(words[0], words[1], words[2], words[3]);
    return JoinWords(high, low);
  });
}

Array bits(const Arg& k, Dims shape) {
  return Apply1("random_bits", k.site, {Key("bits", k)},
                [&](ir::Builder&, Vs v) { return Bits32(v[0], shape, k.site); });
}

Array uniform(const Arg& k, Dims shape, DType dtype, double low, double high) {
  return Apply1("random_uniform", k.site, {Key("uniform", k)},
                [&](ir::Builder&, Vs v) { return Uniform(v[0], shape, dtype, low, high, k.site); });
}

Array normal(const Arg& k, Dims shape, DType dtype) {
  return Apply1("random_normal", k.site, {Key("normal", k)}, [&](ir::Builder&, Vs v) {
    const double low = dtype == DType::kF64 ? std::nextafter(-1.0, 0.0)
                                            : static_cast<double>(std::nextafterf(-1.0f, 0.0f));
    const Value u = Uniform(v[0], shape, dtype, low, 1, k.site);
    return ir::FullLike(u, std::sqrt(2.0)) * ir::ErfInv(u);
  });
}

Array bernoulli(const Arg& k, double p, Dims shape) {
  return Apply1("random_bernoulli", k.site, {Key("bernoulli", k)}, [&](ir::Builder&, Vs v) {
    const Value u = Uniform(v[0], shape, DType::kF32, 0, 1, k.site);
    return ir::Compare(u, ir::FullLike(u, p), "LT");
  });
}

Array randint(const Arg& k, Dims shape, int32_t low, int32_t high) {
  const int64_t span = static_cast<int64_t>(high) - low;
  if (span <= 0 || span > std::numeric_limits<int32_t>::max()) {
    ThrowError(ErrorKind::kValueError, k.site,
               "random::randint: an interval of 1 to 2^31 - 1 numbers is expected, not [", low,
               ", ", high, ")");
  }
  // Two draws of 32 bits make one of 64, reduced modulo the span.
  return Apply1("random_randint", k.site, {Key("randint", k)}, [&](ir::Builder& b, Vs v) {
    const auto [key_high, key_low] = Blocks(v[0], {2}, k.site);
    const Value keys = JoinWords(key_high, key_low);
    const auto draw = [&](int64_t i) {
      return Bits32(ir::Squeeze(ir::Slice(keys, {i, 0}, {i + 1, 2}), {0}), shape, k.site);
    };
    const uint32_t s = static_cast<uint32_t>(span);
    const uint32_t half = static_cast<uint32_t>((uint64_t{1} << 16) % s);
    const uint32_t multiplier = half * half % s;  // in 32 bits, as JAX
    const auto modulo = [&](Value x) { return ir::Rem(x, U32(b, s, shape)); };
    const Value offset = modulo(modulo(draw(0)) * U32(b, multiplier, shape) + modulo(draw(1)));
    return Splat(b, DType::kS32, low, shape) + ir::Convert(offset, DType::kS32);
  });
}

}  // namespace tessera::random
