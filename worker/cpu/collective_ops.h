// The collective ops of a program as calls of Collectives, on blocks in host memory.
#pragma once
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/program.h"
#include "worker/runtime/backend.h"

namespace tessera::worker {

// Runs `op`, of Lowering::kCollective and with operands `in`, as the lane that `context` says.
// Blocks until the group has met, at most for the communicator's timeout. `sequence` counts the
// lane's collectives in this launch.
absl::StatusOr<ir::Array> RunCollective(const RunContext& context, const ir::Function& f,
                                        const ir::Op& op, absl::Span<const ir::Array> in,
                                        uint32_t sequence, const std::string& label);

}  // namespace tessera::worker
