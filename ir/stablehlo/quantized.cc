// Imports ops on quantized numbers in terms of the rows for ordinary numbers. The ops move the
// integers, multiply and add integers, or compute on floats. Importer::Emit calls ImportQuantized
// if a type of the op is quantized.
#include "ir/stablehlo/quantized.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/ops.h"
#include "ir/stablehlo/quantization.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;

// ---- Numbers for all elements, or for each index along the dim. ---------------------------------
Value BroadcastNumbers(Value x, const Quantization& q, DType dtype,
                       const std::vector<double>& numbers) {
  Array array(dtype, q.dim < 0 ? Dims{} : Dims{static_cast<int64_t>(numbers.size())});
  for (size_t i = 0; i < numbers.size(); ++i) array.Set(static_cast<int64_t>(i), numbers[i]);
  const std::vector<int64_t> dims =
      q.dim < 0 ? std::vector<int64_t>() : std::vector<int64_t>{q.dim};
  return BroadcastInDim(Constant(x.builder(), std::move(array)), x.shape(), dims);
}
std::vector<double> AsDoubles(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

// Returns the integers minus their zero points.
Value Centered(Value x, const Quantization& q, DType dtype) {
  const Value wide = Convert(x, dtype);
  const auto is_zero = [](int64_t z) { return z == 0; };
  if (std::all_of(q.zero_points.begin(), q.zero_points.end(), is_zero)) return wide;
  return Sub(wide, BroadcastNumbers(wide, q, dtype, AsDoubles(q.zero_points)));
}
DType WideDType(DType dtype) { return BitWidth(dtype) < 32 ? DType::kS32 : DType::kS64; }

Value Dequantize(Value x, const Quantization& q) {
  const Value real = Convert(Centered(x, q, WideDType(q.storage)), q.expressed);
  return Mul(real, BroadcastNumbers(real, q, q.expressed, q.scales));
}
Value Quantize(Value given, const Quantization& q) {
  const Value x = Convert(given, q.expressed);
  const Value scaled = Div(x, BroadcastNumbers(x, q, q.expressed, q.scales));
  const Value moved = Add(scaled, BroadcastNumbers(x, q, q.expressed, AsDoubles(q.zero_points)));
  const Value low = Constant(x.builder(), q.expressed, static_cast<double>(q.min));
  const Value high = Constant(x.builder(), q.expressed, static_cast<double>(q.max));
  const Value rounded = x.builder().Emit1(ops::kRoundNearestEven, {Clamp(low, moved, high)});
  return Convert(rounded, q.storage);
}

// ---- The kinds of ops. -------------------------------------------------------------------------
// These ops move numbers, or pass them to their regions, whatever the numbers stand for. They need
// no conversion of the integers.
constexpr std::string_view kMovingOps[] = {"all_gather",
                                           "all_to_all",
                                           "bitcast_convert",
                                           "broadcast",
                                           "broadcast_in_dim",
                                           "collective_broadcast",
                                           "collective_permute",
                                           "concatenate",
                                           "constant",
                                           "dynamic_broadcast_in_dim",
                                           "dynamic_gather",
                                           "dynamic_pad",
                                           "dynamic_reshape",
                                           "dynamic_slice",
                                           "dynamic_update_slice",
                                           "gather",
                                           "map",
                                           "pad",
                                           "real_dynamic_slice",
                                           "reduce",
                                           "reduce_window",
                                           "reshape",
                                           "reverse",
                                           "scatter",
                                           "select",
                                           "select_and_scatter",
                                           "sharding_constraint",
                                           "slice",
                                           "sort",
                                           "torch_index_select",
                                           "transpose"};
// These ops are computed on floats.
constexpr std::string_view kFloatOps[] = {"abs",
                                          "add",
                                          "atan2",
                                          "cbrt",
                                          "ceil",
                                          "clamp",
                                          "compare",
                                          "cosine",
                                          "divide",
                                          "exponential",
                                          "exponential_minus_one",
                                          "floor",
                                          "log",
                                          "log_plus_one",
                                          "logistic",
                                          "maximum",
                                          "minimum",
                                          "multiply",
                                          "negate",
                                          "power",
                                          "remainder",
                                          "round_nearest_afz",
                                          "round_nearest_even",
                                          "rsqrt",
                                          "sign",
                                          "sine",
                                          "sqrt",
                                          "subtract",
                                          "tan",
                                          "tanh"};
constexpr std::string_view kProductOps[] = {"convolution", "dot", "dot_general", "dynamic_conv"};

template <size_t kSize>
bool IsOneOf(std::string_view name, const std::string_view (&names)[kSize]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The quantizations of the operands and the results.
struct OpQuantizations {
  std::vector<std::optional<Quantization>> operands, results;
};

// Checks that all quantized operands and results are quantized alike. Constants are written as
// integers.
void NeedAlike(const OpReader& op, const OpQuantizations& q) {
  const Quantization* first = nullptr;
  for (const auto* list : {&q.operands, &q.results}) {
    for (const std::optional<Quantization>& quantization : *list) {
      if (!quantization) continue;
      if (first == nullptr) first = &*quantization;
      if (!(*first == *quantization))
        op.NotSupported("has operands that are quantized in two ways; quantize them alike first");
    }
  }
}

Results ComputeOnFloats(const OpReader& op, const ImportRow& row, const OpQuantizations& q) {
  DType expressed = DType::kF32;
  Results in;
  for (size_t i = 0; i < op.in.size(); ++i) {
    in.push_back(q.operands[i] ? Dequantize(op.in[i], *q.operands[i]) : op.in[i]);
    if (q.operands[i]) expressed = q.operands[i]->expressed;
  }
  Results out = row.import(op.WithOperands(expressed, std::move(in)));
  for (size_t r = 0; r < out.size() && r < q.results.size(); ++r)
    if (q.results[r]) out[r] = Quantize(out[r], *q.results[r]);
  return out;
}

// ---- Products. ----------------------------------------------------------------------------------
// Returns the dim of the result for a dim of rhs, or nullopt if that dim is summed over.
std::optional<int64_t> ResultDimOf(const OpReader& op, int64_t rhs_dim) {
  if (op.Name() != "dot_general" && op.Name() != "dot") {
    if (rhs_dim != op.Int("kernel_output_feature_dimension")) return std::nullopt;
    return op.Int("output_feature_dimension");
  }
  const bool general = op.Name() == "dot_general";
  const std::vector<int64_t> batch = op.IntsOrNone("rhs_batching_dimensions");
  const std::vector<int64_t> contracted =
      general ? op.Ints("rhs_contracting_dimensions") : std::vector<int64_t>{0};
  const auto in = [](const std::vector<int64_t>& dims, int64_t d) {
    return std::find(dims.begin(), dims.end(), d);
  };
  if (in(contracted, rhs_dim) != contracted.end()) return std::nullopt;
  if (const auto at = in(batch, rhs_dim); at != batch.end()) return at - batch.begin();
  // The dim comes after the batch and the remaining dims of lhs.
  int64_t dim = op.in[0].rank() - static_cast<int64_t>(contracted.size());
  for (int64_t d = 0; d < rhs_dim; ++d)
    dim += in(batch, d) == batch.end() && in(contracted, d) == contracted.end() ? 1 : 0;
  return dim;
}

// Computes a product of two quantized operands on centered integers, so that the sum is exact, and
// then scales it once. Scales along a dim of the second operand become scales along a dim of the
// result. A sum in s32 is only used if it cannot overflow.
Results ComputeProduct(const OpReader& op, const ImportRow& row, const OpQuantizations& q) {
  if (op.in.size() < 2) op.Malformed("has too few operands");
  const std::optional<Quantization>&lhs = q.operands[0], &rhs = q.operands[1];
  // If one operand is made of floats, both are.
  if (!lhs || !rhs) return ComputeOnFloats(op, row, q);
  if (lhs->dim >= 0) op.NotSupported("has a first operand that is quantized along a dim");
  constexpr int64_t kSafe = 1 << 15;  // products of 8 bits that s32 can add up
  const bool narrow = BitWidth(lhs->storage) <= 8 && BitWidth(rhs->storage) <= 8;
  const DType sum = narrow && op.in[1].type().num_elements() <= kSafe ? DType::kS32 : DType::kS64;
  Quantization product_quantization = {DType::kS32, lhs->expressed, {}, {}, -1, 0, 0};
  if (rhs->dim >= 0) {
    const std::optional<int64_t> dim = ResultDimOf(op, rhs->dim);
    if (!dim) op.NotSupported("has a second operand that is quantized along a dim of the sums");
    product_quantization.dim = *dim;
  }
  for (const double scale : rhs->scales) {
    product_quantization.scales.push_back(lhs->scales[0] * scale);
    if (!IsScale(product_quantization.expressed, product_quantization.scales.back()))
      op.NotSupported("has scales whose product is beyond the type that the numbers stand for");
  }
  Results in = {Centered(op.in[0], *lhs, sum)};
  in.push_back(Centered(op.in[1], *rhs, sum));
  in.insert(in.end(), op.in.begin() + 2, op.in.end());
  const Results sums = row.import(op.WithOperands(sum, std::move(in)));
  const Value exact = Convert(sums[0], product_quantization.expressed);
  const Value real =
      Mul(exact, BroadcastNumbers(exact, product_quantization, product_quantization.expressed,
                                  product_quantization.scales));
  if (q.results[0]) return {Quantize(real, *q.results[0])};
  return {Convert(real, op.ResultType().dtype)};
}

Results NotQuantized(const OpReader& op) { op.Malformed("has numbers that are not quantized"); }
constexpr ImportRow kRows[] = {{"uniform_dequantize", NotQuantized},
                               {"uniform_quantize", NotQuantized}};

}  // namespace

// Chooses by the op's name how quantized operands are handled. Ops that only move numbers must have
// the same quantization throughout, since nothing would convert between two. Any op that is in none
// of the lists is refused rather than computed wrongly.
Results ImportQuantized(const OpReader& op, const ImportRow& row) {
  const std::string name = op.Name();
  // Ops that pass values to functions and regions pass quantized values as their integers.
  if (TakesTuples(name)) return row.import(op);
  OpQuantizations q;
  for (int i = 0; i < op.num_operands(); ++i) q.operands.push_back(op.OperandQuantization(i));
  for (int r = 0; r < op.num_results(); ++r) q.results.push_back(op.ResultQuantization(r));
  // Scales along a dim become literals of the program, which count as ops.
  constexpr size_t kScalesOfOp = 16;
  for (const auto* list : {&q.operands, &q.results})
    for (const std::optional<Quantization>& quantization : *list)
      if (quantization)
        op.ChargeOps(static_cast<int64_t>(quantization->scales.size() / kScalesOfOp));
  if (name == "uniform_quantize" || name == "uniform_dequantize") {
    if (op.in.size() != 1 || q.results.size() != 1)
      op.Malformed("does not have one operand and one result");
    const bool to_quantized = name == "uniform_quantize";
    if (q.results[0].has_value() != to_quantized || (!q.operands[0] && !to_quantized))
      op.Malformed("has an operand or a result that is not quantized");
    const Value real = q.operands[0] ? Dequantize(op.in[0], *q.operands[0]) : op.in[0];
    if (!IsFloat(real.dtype())) op.Malformed("quantizes numbers that are not floats");
    return {to_quantized ? Quantize(real, *q.results[0]) : Convert(real, op.ResultType().dtype)};
  }
  if (IsOneOf(name, kProductOps)) return ComputeProduct(op, row, q);
  if (IsOneOf(name, kFloatOps)) return ComputeOnFloats(op, row, q);
  if (!IsOneOf(name, kMovingOps))
    op.NotSupported("has quantized operands; dequantize them first, and quantize the results");
  NeedAlike(op, q);
  Results out = row.import(op);
  // The literals of unsigned numbers are written as signed ones.
  if (name == "constant" && out[0].dtype() != op.ResultType().dtype)
    out[0] = BitcastConvert(out[0], op.ResultType().dtype);
  return out;
}

const ImportRow* FindQuantize(std::string_view name) {
  for (const ImportRow& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace tessera::ir::stablehlo
