// Random bits: the counter-based cipher of JAX's default generator, as an elementwise op.
#include "ir/ops/rules/pointwise.h"

namespace tessera::ir::ops {

// ---- threefry2x32: takes key0, key1, count0, count1 and returns the two words of a block. ----
namespace {

// Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), Threefry-2x32-20.
constexpr auto kThreefryBody = []<class X>(X key0, X key1, X x0, X x1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const X key[3] = {key0, key1, key0 ^ key1 ^ 0x1BD11BDAu};
  x0 = x0 + key[0];
  x1 = x1 + key[1];
  for (int group = 0; group < 5; ++group) {
    for (int r : kRotations[group % 2]) {
      x0 = x0 + x1;
      x1 = (x1 << r) | ShrL(x1, scalar::Like(x1, 32 - r));
      x1 = x1 ^ x0;
    }
    x0 = x0 + key[(group + 1) % 3];
    x1 = x1 + key[(group + 2) % 3] + (group + 1);
  }
  return std::array<X, 2>{x0, x1};
};

absl::StatusOr<std::vector<Type>> InferThreefry(const InferContext& c) {
  for (const Type& t : c.in)
    if (t.dtype != DType::kU32)
      return TypeError(c, "requires keys and counters of u32, got ", t.ToString(),
                       "; convert it with convert_element_type");
  TESSERA_RETURN_IF_ERROR(CheckSameShape(c, c.in.subspan(2)));
  const Dims& shape = c.in[2].shape;
  for (const Type& key : c.in.subspan(0, 2))
    if (key.rank() != 0 && key.shape != shape)
      return TypeError(c, "keys must be scalars or have the shape of the counters, got key shape ",
                       TupleOf(key.shape), " and counter shape ", TupleOf(shape));
  return std::vector<Type>(2, MakeType(DType::kU32, shape));
}

constexpr auto kRunThreefry = [](const Attrs&, DType, DType, auto run) {
  constexpr DType kWord = DType::kU32;
  run.template Call<kWord, kWord, kWord, kWord, kWord>(kThreefryBody);
};

consteval OpDef Threefry() {
  OpDef d = Elementwise("threefry2x32", "threefry2x32", 4, InferThreefry, kScalarFrom<kRunThreefry>,
                        {ZeroTangents});
  d.family = Family::kRandom;
  return Checked(d);
}

}  // namespace
constexpr OpDef kThreefry2x32 = Threefry();

}  // namespace tessera::ir::ops

namespace tessera::ir {

std::pair<Value, Value> Threefry2x32(Value key0, Value key1, Value count0, Value count1) {
  const std::vector<Value> out =
      key0.builder().Emit(ops::kThreefry2x32, MatchVarying({key0, key1, count0, count1}));
  return {out[0], out[1]};
}

}  // namespace tessera::ir
