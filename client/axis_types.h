// Forwards to client/transform/axis_types.h, for programs that include this path.
#pragma once
#include "client/transform/axis_types.h"  // IWYU pragma: export
