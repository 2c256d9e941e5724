// Quantized numbers: integers, each of which stands for (integer - zero point) * scale.
//
// In a program they are these integers. Only the artifact's types say what the integers stand for,
// and the import of an op looks at these types. Functions throw StatusException, as those of
// values.h do. Internal to this folder; stateless.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/dtype.h"
#include "ir/stablehlo/artifact.h"

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
// Returns whether the number, rounded to `dtype`, is finite and above 0, as a scale must be.
bool IsScale(DType dtype, double scale);

}  // namespace tessera::ir::stablehlo
