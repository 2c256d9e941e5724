// How the coordinator reads the programs of clients. It is injected into the RPCs, because the
// folders of server/ do not include one another.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/program_source.h"
#include "ir/program.h"

namespace tessera::server::core {

// Thread-safe. Every call may take its thread for seconds; `deadline` is by SteadyNow().
class ProgramReader {
 public:
  virtual ~ProgramReader() = default;
  // The program; not verified yet. Errors: MALFORMED_PROGRAM, LIMIT_EXCEEDED, UNKNOWN_OP,
  // NOT_IMPLEMENTED and those of ops' rules, and those of the reader itself.
  virtual absl::StatusOr<ir::Program> Read(const std::string& tenant,
                                           const api::ProgramSource& source,
                                           absl::Time deadline) = 0;
  // What the program is: the bytes of a tessera.v1.InspectProgramResponse. An error only if there
  // is nothing to say of it.
  virtual absl::StatusOr<std::string> Inspect(const std::string& tenant,
                                              const api::ProgramSource& source,
                                              absl::Time deadline) = 0;
};

}  // namespace tessera::server::core
