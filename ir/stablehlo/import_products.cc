// Imports products: dot_general, convolution, and the ops that are special cases of them.
//
// precision_config gives the lowest precision of products for each operand; we use the higher of
// the two. An algorithm says which numbers are multiplied and how the products are added up.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;

void NeedOperands(const OpReader& op, size_t n) {
  if (op.in.size() != n)
    op.Malformed(absl::StrCat("has ", op.in.size(), " operands; expected ", n));
}

Precision PrecisionOf(const OpReader& op) {
  constexpr std::string_view kName = "precision_config";
  Precision most = Precision::kDefault;
  if (!op.Has(kName)) return most;
  const Artifact& a = op.artifact();
  const Attr& list = AttrOf(a, op.Find(kName), AttrKind::kArray, op.Name(kName));
  if (list.refs.size > 2) op.Malformed("has precisions of more than two operands");
  for (const uint32_t precision : Slice(a.refs, list.refs)) {
    const int64_t value = EnumOf(a, precision, AttrKind::kPrecision, op.Name(kName));
    if (value < 0 || value > static_cast<int64_t>(Precision::kHighest))
      op.Malformed("has a precision other than DEFAULT, HIGH and HIGHEST");
    // Both enumerations have the same numbers.
    most = std::max(most, static_cast<Precision>(value));
  }
  return most;
}

// Computes products in the widest of the dtypes of the operands and the result. Either the operands
// are converted first, which is exact, or the result is rounded afterwards.
template <class Multiply>
Value EmitProduct(const OpReader& op, Value lhs, Value rhs, const Multiply& multiply) {
  const DType result = op.ResultType().dtype;
  const auto holds_more = [](DType a, DType b) {
    if (IsComplex(a) != IsComplex(b)) return IsComplex(a);
    if (IsFloat(a) != IsFloat(b)) return IsFloat(a);
    return BitWidth(a) > BitWidth(b);
  };
  // If the sum has a wider dtype than the operands, a single op can do it.
  const auto computes = [](DType d) { return IsComputable(d) && d != DType::kBool; };
  if (lhs.dtype() == rhs.dtype() && lhs.dtype() != result && computes(lhs.dtype()) &&
      computes(result) && holds_more(result, lhs.dtype()) &&
      IsFloat(result) == IsFloat(lhs.dtype()))
    return multiply(lhs, rhs, result);
  DType dtype = result;
  for (const Value v : {lhs, rhs})
    if (holds_more(v.dtype(), dtype)) dtype = v.dtype();
  // Neither of f16 and bf16 can hold the other.
  for (const DType of : {lhs.dtype(), rhs.dtype(), result})
    if (IsFloat(of) && of != dtype && BitWidth(of) == BitWidth(dtype)) dtype = DType::kF32;
  // A sum of products of booleans is whether any product is true. Products that are true are
  // counted, and the count is compared with 0 by the conversion below. A count in f32 stops growing
  // at 2^24, but it does not come back to 0 however many are contracted, as a count in integers
  // would. Floats also have the fastest kernels.
  if (dtype == DType::kBool) dtype = DType::kF32;
  // Numbers of 8 bits and fewer that have no kernels are exact in f32, and whole ones in s32.
  if (!IsComputable(dtype) && !IsComplex(dtype)) dtype = IsFloat(dtype) ? DType::kF32 : DType::kS32;
  const Value x = Convert(lhs, dtype), y = Convert(rhs, dtype);
  return Convert(multiply(x, y, std::nullopt), result);
}

// ---- Algorithms of dot_general. -----------------------------------------------------------------
// The types that an algorithm may name. No algorithm has a kNone.
enum class AlgorithmType : uint8_t { kNone, kF8, kF16, kBF16, kTF32, kF32, kF64, kOther };

AlgorithmType AlgorithmTypeOf(const OpReader& op, std::string_view name) {
  if (!op.Has(name)) return AlgorithmType::kNone;
  const Artifact& a = op.artifact();
  const Attr& attr = AttrOf(a, op.Find(name), AttrKind::kType, op.Name(name));
  const DecodedType& type = a.types[a.refs[attr.refs.begin]];
  if (type.kind == TypeKind::kNone) return AlgorithmType::kNone;
  constexpr int64_t kTF32Bits = 19;
  if (type.kind == TypeKind::kOtherScalar && a.ints[type.ints.begin] == kTF32Bits)
    return AlgorithmType::kTF32;
  if (type.kind != TypeKind::kScalar || !IsFloat(type.dtype)) return AlgorithmType::kOther;
  switch (type.dtype) {
    case DType::kF16:
      return AlgorithmType::kF16;
    case DType::kBF16:
      return AlgorithmType::kBF16;
    case DType::kF32:
      return AlgorithmType::kF32;
    case DType::kF64:
      return AlgorithmType::kF64;
    default:
      return BitWidth(type.dtype) == 8 ? AlgorithmType::kF8 : AlgorithmType::kOther;
  }
}

// An algorithm of JAX's DotAlgorithmPreset in the words of StableHLO: operands of one type, added
// up in another, with this number of products of their parts.
struct Algorithm {
  AlgorithmType operands, sum;
  int64_t products;
};
constexpr Algorithm kAlgorithms[] = {
    {AlgorithmType::kF8, AlgorithmType::kF32, 1},   {AlgorithmType::kF16, AlgorithmType::kF16, 1},
    {AlgorithmType::kF16, AlgorithmType::kF32, 1},  {AlgorithmType::kBF16, AlgorithmType::kBF16, 1},
    {AlgorithmType::kBF16, AlgorithmType::kF32, 1}, {AlgorithmType::kBF16, AlgorithmType::kF32, 3},
    {AlgorithmType::kBF16, AlgorithmType::kF32, 6}, {AlgorithmType::kBF16, AlgorithmType::kF32, 9},
    {AlgorithmType::kTF32, AlgorithmType::kF32, 1}, {AlgorithmType::kTF32, AlgorithmType::kF32, 3},
    {AlgorithmType::kF32, AlgorithmType::kF32, 1},  {AlgorithmType::kF64, AlgorithmType::kF64, 1},
};

// Returns an integer attribute of the algorithm, or 0 if the op does not have it.
int64_t IntOrZero(const OpReader& op, std::string_view name) {
  return op.Has(name) && op.KindOf(name) == AttrKind::kInteger ? op.Int(name) : 0;
}
std::optional<Algorithm> AlgorithmOf(const OpReader& op) {
  const AlgorithmType lhs = AlgorithmTypeOf(op, "lhs_precision_type");
  const AlgorithmType rhs = AlgorithmTypeOf(op, "rhs_precision_type");
  const AlgorithmType sum = AlgorithmTypeOf(op, "accumulation_type");
  if (lhs == AlgorithmType::kNone && rhs == AlgorithmType::kNone && sum == AlgorithmType::kNone)
    return std::nullopt;
  const int64_t products = IntOrZero(op, "num_primitive_operations");
  const bool has_single_components =
      IntOrZero(op, "lhs_component_count") == 1 && IntOrZero(op, "rhs_component_count") == 1;
  const auto* const known =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [&](const Algorithm& row) {
        return row.operands == lhs && row.operands == rhs && row.sum == sum &&
               row.products == products;
      });
  if (known == std::end(kAlgorithms) || !has_single_components)
    op.NotSupported(
        "has an algorithm that is not in jax.lax.DotAlgorithmPreset; use one of these, or no "
        "algorithm");
  return *known;
}

// Returns an operand rounded as the algorithm asks. Operands of f32 that would be multiplied as
// bf16 and added up as f32 stay unchanged, as XLA does on CPUs: all of their parts are then
// multiplied.
Value Rounded(const OpReader& op, Value x, const Algorithm& algorithm) {
  constexpr int kTF32Exponent = 8, kTF32Mantissa = 10;
  switch (algorithm.operands) {
    case AlgorithmType::kF8:
      if (BitWidth(x.dtype()) != 8)
        op.NotSupported(absl::StrCat("has an algorithm of floats of 8 bits, and an operand ",
                                     x.type().ToString(), "; convert it before"));
      return x;
    case AlgorithmType::kF16:
      return Convert(x, DType::kF16);
    case AlgorithmType::kBF16:
      return algorithm.sum == AlgorithmType::kBF16 ? Convert(x, DType::kBF16) : x;
    case AlgorithmType::kTF32:
      if (algorithm.products > 1 || BitWidth(x.dtype()) < 32) return x;
      return ReducePrecision(Convert(x, DType::kF32), kTF32Exponent, kTF32Mantissa);
    default:
      return x;
  }
}
// Returns a precision that is at least that of the algorithm. TF32 has more bits than one bf16, and
// fewer than two.
Precision PrecisionOf(const Algorithm& algorithm) {
  const bool needs_highest = algorithm.operands == AlgorithmType::kF32 || algorithm.products > 1;
  return needs_highest ? Precision::kHighest : Precision::kDefault;
}
DType SumDType(const Algorithm& algorithm) {
  switch (algorithm.sum) {
    case AlgorithmType::kF16:
      return DType::kF16;
    case AlgorithmType::kBF16:
      return DType::kBF16;
    case AlgorithmType::kF64:
      return DType::kF64;
    default:
      return DType::kF32;
  }
}

Value EmitDot(const OpReader& op, const DotDims& dims) {
  const std::optional<Algorithm> algorithm = AlgorithmOf(op);
  const Precision precision = PrecisionOf(op);
  if (!algorithm) {
    return EmitProduct(op, op.in[0], op.in[1], [&](Value lhs, Value rhs, std::optional<DType> sum) {
      return DotGeneral(lhs, rhs, dims, nullptr, sum, precision);
    });
  }
  for (const Value x : op.in)
    if (!IsFloat(x.dtype()))
      op.Malformed(
          absl::StrCat("has an algorithm of floats, and an operand ", x.type().ToString()));
  const DType sum = SumDType(*algorithm);
  const Value rounded_lhs = Rounded(op, op.in[0], *algorithm);
  const Value rounded_rhs = Rounded(op, op.in[1], *algorithm);
  const bool wider =
      rounded_lhs.dtype() == rounded_rhs.dtype() && BitWidth(rounded_lhs.dtype()) < BitWidth(sum);
  const Value lhs = wider ? rounded_lhs : Convert(rounded_lhs, sum);
  const Value rhs = wider ? rounded_rhs : Convert(rounded_rhs, sum);
  const Value product =
      DotGeneral(lhs, rhs, dims, nullptr, sum, std::max(precision, PrecisionOf(*algorithm)));
  return Convert(product, op.ResultType().dtype);
}
Results ImportDotGeneral(const OpReader& op) {
  NeedOperands(op, 2);
  return {
      EmitDot(op, {op.Ints("lhs_batching_dimensions"), op.Ints("rhs_batching_dimensions"),
                   op.Ints("lhs_contracting_dimensions"), op.Ints("rhs_contracting_dimensions")})};
}
// Contracts the last dim of the first operand with the first dim of the second.
Results ImportDot(const OpReader& op) {
  NeedOperands(op, 2);
  if (op.in[0].rank() == 0 || op.in[1].rank() == 0) op.Malformed("has a scalar operand");
  return {EmitDot(op, {{}, {}, {op.in[0].rank() - 1}, {0}})};
}

// ---- Sums of products by the letters of their dims: "ij,jk->ik". --------------------------------
constexpr size_t kNowhere = std::string_view::npos;

void CheckLetters(const OpReader& op, std::string_view letters, int rank) {
  if (static_cast<int>(letters.size()) != rank)
    op.Malformed(absl::StrCat("has ", letters.size(), " letters for ", rank, " dims"));
  for (size_t i = 0; i < letters.size(); ++i)
    if (letters.find(letters[i], i + 1) != kNowhere)
      op.NotSupported("has a letter twice in a term, which is a diagonal");
}
// Returns operand i of an einsum. A boolean operand becomes a number if the result is a number.
Value EinsumOperand(const OpReader& op, int i) {
  const DType result = op.ResultType().dtype;
  return op.in[i].dtype() == DType::kBool && result != DType::kBool ? Convert(op.in[i], result)
                                                                    : op.in[i];
}
// Sums x along the dims whose letters are not in `keep`, and removes these letters from `letters`.
// A sum of booleans is whether any are true.
Value SumOthers(Value x, std::string* letters, const std::string& keep) {
  std::vector<int64_t> dims;
  std::string kept;
  for (size_t d = 0; d < letters->size(); ++d) {
    if (keep.find((*letters)[d]) == kNowhere) {
      dims.push_back(static_cast<int64_t>(d));
    } else {
      kept.push_back((*letters)[d]);
    }
  }
  *letters = kept;
  if (dims.empty()) return x;
  return x.dtype() == DType::kBool ? ReduceOr(x, dims) : ReduceSum(x, dims);
}
Value TransposeTo(const OpReader& op, Value x, std::string_view letters, std::string_view wanted) {
  CheckLetters(op, wanted, x.rank());
  std::vector<int64_t> permutation;
  for (const char letter : wanted) {
    const size_t at = letters.find(letter);
    if (at == kNowhere) op.Malformed("has a result with a letter of no operand");
    permutation.push_back(static_cast<int64_t>(at));
  }
  return Transpose(x, permutation);
}
// Returns the terms before the arrow, and the term after it.
std::pair<std::vector<std::string>, std::string> TermsOf(const OpReader& op, size_t n) {
  const std::string_view text = op.Text("einsum_config");
  const size_t arrow = text.find("->");
  if (arrow == kNowhere) op.Malformed("has no -> in its einsum_config");
  std::vector<std::string> terms(1);
  for (const char c : text.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else if (c != ' ') {
      terms.back().push_back(c);
    }
  }
  std::string result;
  for (const char c : text.substr(arrow + 2))
    if (c != ' ') result.push_back(c);
  if (terms.size() != n)
    op.Malformed(absl::StrCat("has ", terms.size(), " terms in its einsum_config; expected ", n));
  return {terms, result};
}
Results ImportUnaryEinsum(const OpReader& op) {
  NeedOperands(op, 1);
  auto [terms, result] = TermsOf(op, 1);
  CheckLetters(op, terms[0], op.in[0].rank());
  const Value summed = SumOthers(EinsumOperand(op, 0), &terms[0], result);
  return {TransposeTo(op, summed, terms[0], result)};
}
// Turns an einsum of two terms into one dot_general: letters of both terms are batch dims if the
// result has them, and contracted otherwise. Letters that occur in one term only, and not in the
// result, are summed first. A transpose puts the dims into the order of the result.
Results ImportEinsum(const OpReader& op) {
  NeedOperands(op, 2);
  auto [terms, result] = TermsOf(op, 2);
  for (int i = 0; i < 2; ++i) CheckLetters(op, terms[i], op.in[i].rank());
  const Value lhs = SumOthers(EinsumOperand(op, 0), &terms[0], absl::StrCat(terms[1], result));
  const Value rhs = SumOthers(EinsumOperand(op, 1), &terms[1], absl::StrCat(terms[0], result));
  DotDims dims;
  std::string batch, lhs_only, rhs_only;
  for (size_t d = 0; d < terms[0].size(); ++d) {
    const char letter = terms[0][d];
    const size_t in_rhs = terms[1].find(letter);
    const bool is_in_result = result.find(letter) != kNowhere;
    if (in_rhs == kNowhere) {
      lhs_only.push_back(letter);
      continue;
    }
    (is_in_result ? dims.lhs_batch : dims.lhs_contract).push_back(static_cast<int64_t>(d));
    (is_in_result ? dims.rhs_batch : dims.rhs_contract).push_back(static_cast<int64_t>(in_rhs));
    if (is_in_result) batch.push_back(letter);
  }
  for (const char letter : terms[1])
    if (terms[0].find(letter) == kNowhere) rhs_only.push_back(letter);
  const Value product = EmitProduct(op, lhs, rhs, [&](Value x, Value y, std::optional<DType> sum) {
    return DotGeneral(x, y, dims, nullptr, sum);
  });
  return {TransposeTo(op, product, absl::StrCat(batch, lhs_only, rhs_only), result)};
}

// ---- Convolutions. ------------------------------------------------------------------------------
Results EmitConvolution(const OpReader& op, const std::vector<int64_t>& padding) {
  const auto spec = [&](std::string_view first, std::string_view second, std::string_view spatial) {
    std::vector<int64_t> dims = op.Ints(spatial);
    dims.insert(dims.begin(), {op.Int(first), op.Int(second)});
    return dims;
  };
  const ConvDimensionNumbers dims = {
      spec("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
      spec("kernel_output_feature_dimension", "kernel_input_feature_dimension",
           "kernel_spatial_dimensions"),
      spec("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions")};
  const size_t num_spatial = dims.rhs_spec.size() - 2;
  ConvOptions options;
  options.precision = PrecisionOf(op);
  options.window_strides = op.Ints("window_strides");
  options.lhs_dilation = op.Ints("lhs_dilation");
  options.rhs_dilation = op.Ints("rhs_dilation");
  options.feature_group_count = op.Int("feature_group_count");
  options.batch_group_count = op.Int("batch_group_count");
  const std::vector<int64_t> reversal = op.Ints("window_reversal");
  if (padding.size() != 2 * num_spatial)
    op.Malformed("does not have two amounts of padding per spatial dim");
  if (reversal.size() != num_spatial)
    op.Malformed("does not have one entry of window_reversal per spatial dim");
  std::vector<int64_t> reversed;
  for (size_t d = 0; d < num_spatial; ++d) {
    options.padding.emplace_back(padding[2 * d], padding[2 * d + 1]);
    if (reversal[d] != 0) reversed.push_back(dims.rhs_spec[2 + d]);
  }
  const Value kernel = reversed.empty() ? op.in[1] : Reverse(op.in[1], reversed);
  return {EmitProduct(op, op.in[0], kernel, [&](Value lhs, Value rhs, std::optional<DType> sum) {
    options.preferred_element_type = sum;
    return ConvGeneralDilated(lhs, rhs, dims, options);
  })};
}
Results ImportConvolution(const OpReader& op) {
  NeedOperands(op, 2);
  return EmitConvolution(op, op.Ints("padding"));
}
// The padding is an operand, which must be a constant.
Results ImportDynamicConvolution(const OpReader& op) {
  NeedOperands(op, 3);
  return EmitConvolution(op, op.KnownInts(2));
}

constexpr ImportRow kRows[] = {
    {"convolution", ImportConvolution}, {"dot", ImportDot},
    {"dot_general", ImportDotGeneral},  {"dynamic_conv", ImportDynamicConvolution},
    {"einsum", ImportEinsum},           {"unary_einsum", ImportUnaryEinsum},
};

}  // namespace

const ImportRow* FindProduct(std::string_view name) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const ImportRow& r) { return r.name == name; });
  return row != std::end(kRows) ? row : nullptr;
}

}  // namespace tessera::ir::stablehlo
