// Forwards to client/show/visualize.h, for programs that include this path.
#pragma once
#include "client/show/visualize.h"  // IWYU pragma: export
