// Forwards to client/transform/jacobian.h, for programs that include this path.
#pragma once
#include "client/transform/jacobian.h"  // IWYU pragma: export
