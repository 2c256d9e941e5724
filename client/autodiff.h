// Forwards to client/transform/autodiff.h, for programs that include this path.
#pragma once
#include "client/transform/autodiff.h"  // IWYU pragma: export
