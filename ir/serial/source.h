// Reads and describes programs in the forms in which clients send them (api::ProgramSource).
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "ir/api/program_source.h"
#include "ir/program.h"
#include "ir/verify.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::ir::serial {

// Returns the program, which is not verified yet. Errors: MALFORMED_PROGRAM, LIMIT_EXCEEDED,
// UNKNOWN_OP, NOT_IMPLEMENTED and the errors of ops' rules.
absl::StatusOr<Program> ReadSource(const api::ProgramSource& source, const Limits& limits);

// Describes the program. Fails only if nothing can be said about the program. If the program would
// be refused, the reason is a field of the description.
absl::StatusOr<v1::InspectProgramResponse> InspectSource(const api::ProgramSource& source,
                                                         const Limits& limits);
v1::InspectProgramResponse Inspect(const Program& program);

}  // namespace tessera::ir::serial
