// Programs through their wire form, where the build has it.
#pragma once
#include <optional>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::ir::samples {

// The program written and read again; nullopt in builds without gRPC and protobuf.
std::optional<absl::StatusOr<Program>> ThroughTheWire(const Program& program);

}  // namespace tessera::ir::samples
