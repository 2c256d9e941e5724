// Forwards to client/transform/flat.h, for programs that include this path.
#pragma once
#include "client/transform/flat.h"  // IWYU pragma: export
