// The interface through which the RPC server (server/rpc) reads the programs of clients. main.cc
// passes an implementation to it (server/jail/jailed_reader.h is one), because the folders of
// server/ may not include each other (server/README.md, Parts).
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/program_source.h"
#include "ir/program.h"

namespace tessera::server::core {

// Thread-safe. Every call may block for seconds. `deadline` is a time of SteadyNow().
class ProgramReader {
 public:
  virtual ~ProgramReader() = default;
  // Returns the program, which is not verified yet. Errors are MALFORMED_PROGRAM, LIMIT_EXCEEDED,
  // UNKNOWN_OP, NOT_IMPLEMENTED, errors of the rules of the program's ops, and errors of the
  // implementation.
  virtual absl::StatusOr<ir::Program> Read(const std::string& tenant,
                                           const api::ProgramSource& source,
                                           absl::Time deadline) = 0;
  // Describes the program: returns the bytes of a tessera.v1.InspectProgramResponse. Returns an
  // error only if nothing can be said about the source.
  virtual absl::StatusOr<std::string> Inspect(const std::string& tenant,
                                              const api::ProgramSource& source,
                                              absl::Time deadline) = 0;
};

}  // namespace tessera::server::core
