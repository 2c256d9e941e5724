// Makes the calls of the host for a run of a program. A call without results is made when the run
// has ended, with operands from the record that the run returns. A call whose results the program
// goes on with is made before the program runs: a part of the program that computes the operands of
// the call runs first (calls.h).
//
// References: docs/decisions/0026, 0028, 0042.
#pragma once
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/array.h"
#include "client/pjrt/event.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/live_runs.h"

namespace tessera::pjrt {

// Makes the calls that come before a run with the arguments `args`, one after the other. Returns
// their results as arrays that lie where the program takes them, or the error of the first call
// that fails.
absl::StatusOr<std::vector<tessera::Array>> MakeCallsBeforeRun(
    const CompiledProgram& compiled, absl::Span<const tessera::Array> args);

// Waits until the run that returned the record `arrays` has ended. Fails with its error, or with
// CALLBACKS_DROPPED if the run made more calls than the record holds. Returns at once if the record
// has room for all calls that the program can make.
absl::Status CheckNoCallDropped(const CompiledProgram& compiled,
                                absl::Span<const tessera::Array> arrays);

// Reads the record `arrays` once `run`, which makes it, has ended, and makes the calls that it
// lists, on the client's thread for calls. Settles `outcome` when all calls have returned.
void MakeCallsAfterRun(std::shared_ptr<const CompiledProgram> compiled,
                       std::vector<tessera::Array> arrays, LiveRunRef run,
                       std::shared_ptr<Outcome> outcome);

}  // namespace tessera::pjrt
