// Makes the calls of the host for a run of a program. A call without results is made when the run
// has ended, with operands that are results of the run. A call whose results the program goes on
// with is made before the program runs: a part of the program that computes the operands of the
// call runs first (calls.h).
//
// References: docs/decisions/0026, 0028.
#pragma once
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/array.h"
#include "client/pjrt/event.h"
#include "client/pjrt/executable.h"

namespace tessera::pjrt {

// Makes the calls that come before a run with the arguments `args`, one after the other. Returns
// their results as arrays that lie where the program takes them, or the error of the first call
// that fails.
absl::StatusOr<std::vector<tessera::Array>> MakeCallsBeforeRun(
    const CompiledProgram& compiled, absl::Span<const tessera::Array> args);

// Reads `arrays` once their run has ended, and makes the calls of the program, which take them, on
// the client's thread for calls. Settles `outcome` when all calls have returned.
void MakeCallsAfterRun(std::shared_ptr<const CompiledProgram> compiled,
                       std::vector<tessera::Array> arrays, std::shared_ptr<Outcome> outcome);

}  // namespace tessera::pjrt
