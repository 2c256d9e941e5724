// The import of ops on quantized numbers (quantization.h). Sums of products are computed on
// integers and are exact. All other computation is done on floats and rounded once. Internal to
// this folder; stateless.
#pragma once
#include <string_view>
#include <vector>

#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {

// Imports an op that has a quantized operand or result. `row` is its row for ordinary numbers.
std::vector<Value> ImportQuantized(const OpReader& op, const ImportRow& row);
// Finds the rows of uniform_quantize and uniform_dequantize for operands and results of which none
// is quantized. An op without any quantized type is malformed.
const ImportRow* FindQuantize(std::string_view name);

}  // namespace tessera::ir::stablehlo
