// Imports rng_bit_generator: it returns random bits for a state, and the advanced state.
//
// The algorithm is Philox4x32 with 10 rounds, in the layout of XLA's CPU backend, where it is the
// default. The state is a key of 64 bits and a counter. Block i encrypts a counter of 128 bits: the
// lower half is the counter plus i, and the upper half is the key. The blocks follow each other.
// Reference: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

constexpr int kRounds = 10;
using Words = std::array<Value, 4>;

Value U32(Builder& b, uint32_t v) { return Constant(b, Array::ScalarInt(DType::kU32, v)); }
Value U64(Builder& b, int64_t v) { return Constant(b, Array::ScalarInt(DType::kU64, v)); }

struct Halves {
  Value low, high;  // 32 bits each
};
Halves HalvesOf(Value x) {
  const Value low = Convert(x, DType::kU32);
  const Value shifted = ShiftRightLogical(x, BroadcastInDim(U64(x.builder(), 32), x.shape(), {}));
  return {low, Convert(shifted, DType::kU32)};
}
Value Joined(Value low, Value high) {
  const Value wide = Convert(high, DType::kU64);
  const Value shifted = ShiftLeft(wide, BroadcastInDim(U64(wide.builder(), 32), wide.shape(), {}));
  return Or(shifted, Convert(low, DType::kU64));
}
// Returns the product in 64 bits.
Halves WideProduct(Value x, uint32_t factor) {
  const Value wide = Convert(x, DType::kU64);
  return HalvesOf(wide * BroadcastInDim(U64(x.builder(), factor), x.shape(), {}));
}

Words Philox(Words c, Value key0, Value key1) {
  Builder& b = key0.builder();
  const Dims shape = c[0].shape();
  const auto spread = [&](Value k) { return BroadcastInDim(k, shape, {}); };
  for (int round = 0; round < kRounds; ++round) {
    const Halves p = WideProduct(c[0], 0xD2511F53), q = WideProduct(c[2], 0xCD9E8D57);
    const Value of_key0 = spread(key0), of_key1 = spread(key1);
    const Value first = Xor(Xor(q.high, c[1]), of_key0);
    const Value third = Xor(Xor(p.high, c[3]), of_key1);
    c = {first, q.low, third, p.low};
    key0 = key0 + U32(b, 0x9E3779B9);
    key1 = key1 + U32(b, 0xBB67AE85);
  }
  return c;
}

// Returns element `i` of a list as a scalar.
Value ElementOf(Value list, int64_t i) { return Reshape(SliceInDim(list, 0, i, i + 1), {}); }

}  // namespace

// Emits the cipher for all blocks at once, elementwise, and cuts the words to the declared result.
// Philox is used for the default algorithm, too, so that results equal XLA's on CPUs bit for bit.
// The counter's carry goes into the upper half of the block's counter.
std::vector<Value> ImportRandomBits(const OpReader& op) {
  constexpr int64_t kDefault = 0, kPhilox = 2;
  const int64_t algorithm = op.Enum("rng_algorithm", AttrKind::kRngAlgorithm);
  if (op.num_operands() != 1 || op.num_results() != 2)
    op.Malformed("does not have one operand and two results");
  const Value state = op.in[0];
  if (algorithm != kDefault && algorithm != kPhilox)
    op.NotSupported("uses an algorithm other than Philox");
  if (state.dtype() != DType::kU64 || state.shape() != Dims{2})
    op.NotSupported(absl::StrCat("has a state ", state.type().ToString(), "; expected u64[2]"));
  const Type type = op.ResultType(1);
  if (!IsInteger(type.dtype) || BitWidth(type.dtype) < 8)
    op.NotSupported(absl::StrCat("makes ", type.ToString(), "; expected integers of 8 to 64 bits"));

  constexpr int64_t kOps = 40 * kRounds;
  op.ChargeOps(kOps);
  Builder& b = op.b();
  const bool wide = BitWidth(type.dtype) == 64;
  const int64_t count = type.num_elements(), words_per_block = wide ? 2 : 4;
  const int64_t blocks = count / words_per_block + (count % words_per_block != 0 ? 1 : 0);
  const Value key = ElementOf(state, 0), counter = ElementOf(state, 1);
  const Value next_counter = counter + U64(b, blocks);
  const auto listed = [](Value v) { return Reshape(v, {1}); };
  const Value first = listed(key);
  const Value next = Concatenate({first, listed(next_counter)}, 0);
  if (count == 0) return {next, Zeros(b, type)};

  const Value steps = Iota(b, DType::kU64, {blocks}, 0),
              from = BroadcastInDim(counter, {blocks}, {});
  const Value low = from + steps;
  const Value carry = Convert(Compare(low, from, "LT"), DType::kU64);
  const Value high = BroadcastInDim(key, {blocks}, {}) + carry;
  const Halves lower = HalvesOf(low), upper = HalvesOf(high), keys = HalvesOf(key);
  const Words words = Philox({lower.low, lower.high, upper.low, upper.high}, keys.low, keys.high);
  std::vector<Value> columns;
  if (wide) {
    columns = {Joined(words[0], words[1]), Joined(words[2], words[3])};
  } else {
    columns.assign(words.begin(), words.end());
  }
  for (Value& column : columns) column = Reshape(column, {blocks, 1});
  const Value bits = Reshape(Concatenate(std::move(columns), 1), {blocks * words_per_block});
  return {next, Convert(Reshape(SliceInDim(bits, 0, 0, count), type.shape), type.dtype)};
}

}  // namespace tessera::ir::stablehlo
