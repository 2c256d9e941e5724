// Waits for operations, for commands that start one.
//
// Used on the main thread.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/context.h"

namespace tessera::cli {

bool HasEnded(const Json& operation);

// Waits until the operation has ended, and returns the operation or its error. Cancels the
// operation at the deadline or at Ctrl-C. `what` is the prefix of the deadline's error.
absl::StatusOr<Json> AwaitOperation(Context& context, const std::string& what, Json operation);

}  // namespace tessera::cli
