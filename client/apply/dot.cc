// Products by an algorithm: converts the factors to the dtypes that the algorithm takes, and
// chooses the dtype of the sums. All products of numpy.h, lax.h and products.h go through
// DotWithPrecision.
#include "client/apply/dot.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "client/error.h"

namespace tessera::internal {
namespace {

using lax::DotAlgorithmPreset;
using lax::Precision;

constexpr std::string_view kAlgorithmNames[] = {
#define TESSERA_NAME(name) #name,
    TESSERA_DOT_ALGORITHMS(TESSERA_NAME)
#undef TESSERA_NAME
};

// Returns an operand in the form in which the algorithm takes it.
ir::Value ConvertFactor(ir::Value x, DotAlgorithmPreset algorithm, const Site& site) {
  const DType dtype = x.dtype();
  const std::string_view name = kAlgorithmNames[static_cast<size_t>(algorithm)];
  if (!ir::IsFloat(dtype)) {
    ThrowError(ErrorKind::kTypeError, site, "The dot algorithm '", std::string(name),
               "' requires floats, got ", x.type().ToString());
  }
  switch (algorithm) {
    case DotAlgorithmPreset::kDEFAULT:
      return x;
    case DotAlgorithmPreset::kANY_F8_ANY_F8_F32:
    case DotAlgorithmPreset::kANY_F8_ANY_F8_F32_FAST_ACCUM:
    case DotAlgorithmPreset::kANY_F8_ANY_F8_ANY:
    case DotAlgorithmPreset::kANY_F8_ANY_F8_ANY_FAST_ACCUM:
      if (ir::BitWidth(dtype) != 8) {
        ThrowError(ErrorKind::kValueError, site, "The dot algorithm '", std::string(name),
                   "' requires both inputs to have float8 dtypes, got ", x.type().ToString());
      }
      return x;
    case DotAlgorithmPreset::kF16_F16_F16:
    case DotAlgorithmPreset::kF16_F16_F32:
      return ir::Convert(x, DType::kF16);
    case DotAlgorithmPreset::kBF16_BF16_BF16:
      return ir::Convert(x, DType::kBF16);
    case DotAlgorithmPreset::kBF16_BF16_F32:
      return dtype == DType::kF32 ? x : ir::Convert(x, DType::kBF16);
    case DotAlgorithmPreset::kTF32_TF32_F32:
      return ir::ReducePrecision(ir::Convert(x, DType::kF32), /*exponent_bits=*/8,
                                 /*mantissa_bits=*/10);
    case DotAlgorithmPreset::kF64_F64_F64:
      return ir::Convert(x, DType::kF64);
    case DotAlgorithmPreset::kBF16_BF16_F32_X3:
    case DotAlgorithmPreset::kBF16_BF16_F32_X6:
    case DotAlgorithmPreset::kBF16_BF16_F32_X9:
    case DotAlgorithmPreset::kTF32_TF32_F32_X3:
    case DotAlgorithmPreset::kF32_F32_F32:
      return ir::Convert(x, DType::kF32);
  }
  return x;
}
// Returns the dtype in which the algorithm sums products.
DType SumDType(DotAlgorithmPreset algorithm) {
  switch (algorithm) {
    case DotAlgorithmPreset::kF16_F16_F16:
      return DType::kF16;
    case DotAlgorithmPreset::kBF16_BF16_BF16:
      return DType::kBF16;
    case DotAlgorithmPreset::kF64_F64_F64:
      return DType::kF64;
    default:
      return DType::kF32;
  }
}
// Returns a precision that is at least as exact as the algorithm. TF32 is exact enough for one
// product of bf16 numbers, but not for the algorithms that split a factor into several bf16
// numbers.
Precision PrecisionOf(DotAlgorithmPreset algorithm) {
  switch (algorithm) {
    case DotAlgorithmPreset::kBF16_BF16_F32_X3:
    case DotAlgorithmPreset::kBF16_BF16_F32_X6:
    case DotAlgorithmPreset::kBF16_BF16_F32_X9:
    case DotAlgorithmPreset::kTF32_TF32_F32_X3:
    case DotAlgorithmPreset::kF32_F32_F32:
      return Precision::kHighest;
    default:
      return Precision::kDefault;
  }
}

}  // namespace

ir::Value DotWithPrecision(ir::Value lhs, ir::Value rhs, const ir::DotDims& dims,
                           const PartitionSpec* out_sharding, std::optional<DType> preferred,
                           const lax::PrecisionLike& precision, const Site& site) {
  if (precision.algorithm == DotAlgorithmPreset::kDEFAULT)
    return ir::DotGeneral(lhs, rhs, dims, out_sharding, preferred,
                          PrecisionOr(precision.precision));
  const DType result = preferred.value_or(lhs.dtype());
  const ir::Value left = ConvertFactor(lhs, precision.algorithm, site);
  const ir::Value right = ConvertFactor(rhs, precision.algorithm, site);
  const ir::Value product =
      ir::DotGeneral(left, right, dims, out_sharding, SumDType(precision.algorithm),
                     PrecisionOf(precision.algorithm));
  return ir::Convert(product, result);
}

}  // namespace tessera::internal
