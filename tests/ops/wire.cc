// Sends a program through its protobuf form, in builds with gRPC. wire_absent.cc takes the place of
// this file in builds without it.
#include "tests/ops/wire.h"

#include "ir/serial/program.h"

namespace tessera::ir::samples {

std::optional<absl::StatusOr<Program>> ThroughTheWire(const Program& program) {
  return serial::FromProto(serial::ToProto(program));
}

}  // namespace tessera::ir::samples
