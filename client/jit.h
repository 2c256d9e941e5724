// Forwards to client/transform/jit.h, for programs that include this path.
#pragma once
#include "client/transform/jit.h"  // IWYU pragma: export
