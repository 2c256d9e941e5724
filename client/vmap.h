// Forwards to client/transform/vmap.h, for programs that include this path.
#pragma once
#include "client/transform/vmap.h"  // IWYU pragma: export
