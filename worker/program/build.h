// The way from a function at local types to a step program, through all stages of this folder. The
// backends call Build for each device program that they compile. Stateless; deterministic;
// thread-safe.
#pragma once
#include "absl/status/statusor.h"
#include "base/dump_folder.h"
#include "ir/program.h"
#include "worker/program/build_options.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// Builds the step program of a function. Errors name the op and its call site. Unless it is null,
// `dump` receives the step program after each stage that makes or changes it.
absl::StatusOr<StepProgram> Build(const ir::Function& function, const BuildOptions& options,
                                  ProgramDump* dump = nullptr);

}  // namespace tessera::worker::program
