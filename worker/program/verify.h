// The check of a finished step program. Backends run it on each program that they compile, before
// they rely on the rules. Stateless; thread-safe.
#pragma once
#include "absl/status/status.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// Checks every rule of step_program.h, and codegen::Verify for each kernel. A broken rule is a bug
// of Build, and is returned as INTERNAL.
absl::Status Verify(const StepProgram& program);

}  // namespace tessera::worker::program
