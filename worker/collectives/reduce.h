// The arithmetic of reductions over plain memory. Stateless; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/collective.h"
#include "ir/dtype.h"

namespace tessera::worker {

// Combines `bytes` bytes of all `inputs`, in their order, and writes the result to each of
// `outputs`. The memory need not be aligned. An output may be the same memory as an input, but must
// not overlap one partly. `bytes` is a multiple of the element's width.
using Reducer = void (*)(absl::Span<const std::byte* const> inputs,
                         absl::Span<std::byte* const> outputs, int64_t bytes);

// Returns TYPE_ERROR if the reduction is undefined (max of complex numbers), and NOT_IMPLEMENTED
// for f8, for dtypes of fewer than 8 bits, and for reductions that are not collectives (argmax).
absl::StatusOr<Reducer> FindReducer(ir::ReduceKind reduce, ir::DType dtype);

}  // namespace tessera::worker
