// Sends programs through their wire form. wire.cc implements it in builds that have the wire form,
// wire_absent.cc in the others.
#pragma once
#include <optional>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::ir::samples {

// Writes a program in the wire form and reads it back. Returns nullopt in builds without gRPC and
// protobuf.
std::optional<absl::StatusOr<Program>> ThroughTheWire(const Program& program);

}  // namespace tessera::ir::samples
