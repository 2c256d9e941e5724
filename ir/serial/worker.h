// Messages of ir/api/worker_link.h to their wire form and back.  Pure functions; any thread.
#pragma once
#include <cstdint>

#include "absl/status/statusor.h"
#include "ir/api/worker_link.h"
#include "ir/verify.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::ir::serial {

// Commands for one executor incarnation; a Welcome is not a Command (below).
v1::WorkerCommand ToProto(int32_t executor, uint64_t incarnation, const api::Command& command);
// Errors: the command is absent or unknown (VALUE_ERROR), or its content does not read.  A program
// that does not read is answered with ProgramLoaded by the caller.
absl::StatusOr<api::Command> FromProto(const v1::WorkerCommand& proto, const Limits& limits = {});

v1::WorkerReport ToProto(const api::Report& report);
absl::StatusOr<api::Report> FromProto(const v1::WorkerReport& proto, const Limits& limits = {});

v1::Registration ToProto(const api::Registration& registration);
// VALUE_ERROR or LIMIT_EXCEEDED: names are printable and at most 128 bytes, at most 1024 executors,
// each index once, 1 to 65536 devices.
absl::StatusOr<api::Registration> FromProto(const v1::Registration& proto);

v1::Welcome ToProto(const api::Welcome& welcome);
api::Welcome FromProto(const v1::Welcome& proto);

}  // namespace tessera::ir::serial
