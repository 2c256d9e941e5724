// Forwards to client/transform/call.h, for programs that include this path.
#pragma once
#include "client/transform/call.h"  // IWYU pragma: export
