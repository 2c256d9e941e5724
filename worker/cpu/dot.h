// dot_general as batched matrix products: the operand's dims grouped to batch, free and contracted,
// copied only where no strides can express the grouping. Pure; any thread.
#pragma once
#include <optional>

#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/program.h"
#include "worker/cpu/onednn_matmul.h"

namespace tessera::worker {

// nullopt: not for oneDNN (another dtype, an empty array); the evaluator does it.
std::optional<ir::Array> DotGeneral(OneDnnMatmul& matmul, const ir::Op& op, const ir::Type& out,
                                    absl::Span<const ir::Array> in);

}  // namespace tessera::worker
