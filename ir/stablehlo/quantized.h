// Quantized numbers: integers, each of which stands for (it - zero point) * scale.
//
// Here they are these integers; what they stand for is said by the artifact's types alone, which
// ops look at.  Sums of products are of integers, and exact; all else that computes is done as
// floats, and rounded once.  Internal to this folder.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {

struct Quantization {
  DType storage = DType::kS8, expressed = DType::kF32;
  // One of each; or one for each index along `dim`.
  std::vector<double> scales;
  std::vector<int64_t> zero_points;
  int64_t dim = -1;
  int64_t min = 0, max = 0;
};
bool operator==(const Quantization& a, const Quantization& b);

// Of a tensor's type; nullopt for one that is not quantized.
std::optional<Quantization> QuantizationOf(const Artifact& artifact, uint32_t type,
                                           std::string_view what);
// The same question of whether there is one, fast.
bool IsQuantized(const Artifact& artifact, uint32_t type);

// An op of which an operand or a result is quantized, `row` being how it becomes ours otherwise.
std::vector<Value> ImportQuantized(const OpReader& op, const ImportRow& row);
// uniform_quantize and uniform_dequantize of what is not quantized at all, which is malformed.
const ImportRow* FindQuantize(std::string_view name);

}  // namespace tessera::ir::stablehlo
