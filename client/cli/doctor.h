// The checks of `tessera doctor`, for use by other commands. Used on the main thread.
#pragma once
#include "client/cli/context.h"
#include "client/cli/json.h"

namespace tessera::cli {

// Runs the checks and returns {"checks": [{"name", "verdict", "detail", "fix"}], "ok": true}. Ends
// at the context's deadline.
Json RunDoctor(Context& context);

}  // namespace tessera::cli
