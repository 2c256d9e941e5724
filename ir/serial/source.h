// Programs as clients give them, to programs and descriptions. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "ir/api/program_source.h"
#include "ir/program.h"
#include "ir/verify.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::ir::serial {

// The program, not verified yet. Errors: MALFORMED_PROGRAM, LIMIT_EXCEEDED, UNKNOWN_OP,
// NOT_IMPLEMENTED and those of ops' rules.
absl::StatusOr<Program> ReadSource(const api::ProgramSource& source, const Limits& limits);

// What the program is: an error only if there is nothing to say of it; why it would be refused is a
// field.
absl::StatusOr<v1::InspectProgramResponse> InspectSource(const api::ProgramSource& source,
                                                         const Limits& limits);
v1::InspectProgramResponse Inspect(const Program& program);

}  // namespace tessera::ir::serial
