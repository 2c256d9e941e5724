// Quantized numbers: integers, each of which stands for (integer - zero point) * scale.
//
// In a program they are these integers. Only the artifact's types say what the integers stand for,
// and the import of an op looks at these types. Sums of products are computed on integers and are
// exact. All other computation is done on floats and rounded once. Internal to this folder;
// stateless.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {

struct Quantization {
  DType storage = DType::kS8, expressed = DType::kF32;
  // There is one scale and one zero point, or one of each for each index along `dim`.
  std::vector<double> scales;
  std::vector<int64_t> zero_points;
  int64_t dim = -1;
  int64_t min = 0, max = 0;
};
bool operator==(const Quantization& a, const Quantization& b);

// Returns the quantization of a tensor's type, or nullopt if it is not quantized.
std::optional<Quantization> QuantizationOf(const Artifact& artifact, uint32_t type,
                                           std::string_view what);
// Returns whether there is a quantization, which is faster than QuantizationOf.
bool IsQuantized(const Artifact& artifact, uint32_t type);

// Imports an op that has a quantized operand or result. `row` is its row for ordinary numbers.
std::vector<Value> ImportQuantized(const OpReader& op, const ImportRow& row);
// Finds the rows of uniform_quantize and uniform_dequantize for operands and results of which none
// is quantized. An op without any quantized type is malformed.
const ImportRow* FindQuantize(std::string_view name);

}  // namespace tessera::ir::stablehlo
