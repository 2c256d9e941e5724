// The end of operations, awaited.
//
// Used on the main thread.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/context.h"

namespace tessera::cli {

bool HasEnded(const Json& operation);

// The operation once it is done, or its error; cancelled at the deadline or Ctrl-C. `what` begins
// the error of one that takes too long.
absl::StatusOr<Json> AwaitOperation(Context& context, const std::string& what, Json operation);

}  // namespace tessera::cli
