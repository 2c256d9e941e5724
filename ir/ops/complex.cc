// The ops real, imag and complex, which take complex numbers apart and put them together.
//
// The derivatives are those of the parts. A cotangent c and a tangent t pair to the real part of c
// t, as in JAX. Therefore the cotangent of the imaginary part is minus the imaginary part of the
// number's cotangent. Reference: JAX, "The Autodiff Cookbook", complex numbers;
// docs/decisions/0021.
#include <utility>

#include "ir/eval/eval.h"
#include "ir/ops/rules/family.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

Types InferPart(const InferContext& c) {
  const Type& x = c.in[0];
  if (!IsComplex(x.dtype))
    return TypeError(c, "requires a complex dtype, got ", ToAbsl(DTypeName(x.dtype)));
  Type t = MakeType(PartDType(x.dtype), x.shape);
  t.weak = x.weak;
  return std::vector<Type>{t};
}

// Returns a piece that fills a result of `shape` with every `stride`-th element of operand
// `source`.
IndexPiece StridedPiece(const Dims& shape, int source, int64_t stride) {
  IndexPiece piece;
  piece.source = source;
  piece.shape = shape;
  piece.start.assign(shape.size(), 0);
  piece.step.assign(shape.size(), 1);
  piece.strides = StridesOf(shape);
  for (int64_t& s : piece.strides) s *= stride;
  return piece;
}
template <int kPart>
IndexMap MapOfPart(const InferContext& c, absl::Span<const Type>) {
  IndexPiece piece = StridedPiece(c.in[0].shape, 0, 2);
  piece.offset = kPart;
  return {.pieces = {std::move(piece)}, .literal = {}, .indexes_complex_parts = true};
}

std::vector<Value> TransposeReal(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  return {Complex(cts[0], Zeros(c.b, cts[0].type()))};
}
std::vector<Value> TransposeImag(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  const Value zero = Zeros(c.b, cts[0].type());
  return {Complex(zero, -cts[0])};
}

Types InferComplex(const InferContext& c) {
  const Type &re = c.in[0], &im = c.in[1];
  if (re.dtype != im.dtype || (re.dtype != DType::kF32 && re.dtype != DType::kF64))
    return TypeError(c, "requires two operands of f32 or of f64, got ", TypesToString(c.in));
  if (re.shape != im.shape)
    return TypeError(c, "requires operands of one shape, got ", TypesToString(c.in));
  Type t = MakeType(re.dtype == DType::kF32 ? DType::kC64 : DType::kC128, re.shape);
  t.weak = re.weak && im.weak;
  return std::vector<Type>{t};
}
IndexMap MapOfComplex(const InferContext& c, absl::Span<const Type>) {
  IndexMap map;
  map.indexes_complex_parts = true;
  for (int part = 0; part < 2; ++part) {
    IndexPiece piece = StridedPiece(c.in[0].shape, part, 1);
    piece.start.push_back(part);
    piece.step.push_back(1);
    piece.shape.push_back(1);
    piece.strides.push_back(0);
    map.pieces.push_back(std::move(piece));
  }
  return map;
}
std::vector<Value> TransposeComplex(const RuleContext&, Values cts,
                                    const std::vector<bool>& linear) {
  std::vector<Value> out(2);
  if (!cts[0]) return out;
  if (linear[0]) out[0] = Real(cts[0]);
  if (linear[1]) out[1] = -Imag(cts[0]);
  return out;
}

consteval OpDef PartOp(OpDef d) {
  d.family = Family::kElementwise;
  d.lowering = Lowering::kIndexMap;
  d.factors = PointwiseFactors;
  d.sharding = Derived{};
  d.varying = Derived{};
  d.jvp = Derived{};
  d.batch = Derived{};
  d.partition = Derived{};
  d.cost = Derived{};
  return Checked(d);
}

}  // namespace

constexpr OpDef kReal = PartOp({.name = "real",
                                .lax_name = "real",
                                .num_operands = 1,
                                .infer = InferPart,
                                .transpose = TransposeReal,
                                .index_map = MapOfPart<0>});
constexpr OpDef kImag = PartOp({.name = "imag",
                                .lax_name = "imag",
                                .num_operands = 1,
                                .infer = InferPart,
                                .transpose = TransposeImag,
                                .index_map = MapOfPart<1>});
constexpr OpDef kComplex = PartOp({.name = "complex",
                                   .lax_name = "complex",
                                   .num_operands = 2,
                                   .infer = InferComplex,
                                   .transpose = TransposeComplex,
                                   .index_map = MapOfComplex});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {
namespace {

// Returns a part of x. If x was made of parts, or is a constant or a broadcast, the part is found
// without emitting `def`, so that chains of complex functions become chains of real ones.
Value PartOf(const OpDef& def, Value x) {
  Builder& b = x.builder();
  const bool is_real = &def == &ops::kReal;
  const Op* const producer = b.DefiningOp(x);
  if (producer != nullptr && producer->def == &ops::kComplex)
    return Value(&b, producer->operands[is_real ? 0 : 1]);
  if (producer != nullptr && producer->def == &ops::kConstant)
    return Constant(b,
                    ValueOrThrow(EvaluateOp(def, {}, {producer->attrs.Literal("value")}, {}))[0]);
  if (producer != nullptr && producer->def == &ops::kBroadcastInDim) {
    const Attrs attrs = producer->attrs;
    const Value part = PartOf(def, Value(&b, producer->operands[0]));
    return b.Emit1(ops::kBroadcastInDim, {part}, attrs);
  }
  return b.Emit1(def, {x});
}

}  // namespace

Value Real(Value x) { return PartOf(ops::kReal, x); }
Value Imag(Value x) { return PartOf(ops::kImag, x); }
Value Complex(Value re, Value im) { return re.builder().Emit1(ops::kComplex, Harmonize({re, im})); }
Value Conj(Value x) {
  const Value re = Real(x);
  return Complex(re, -Imag(x));
}

}  // namespace tessera::ir
