// Forwards to client/transform/filters.h, for programs that include this path.
#pragma once
#include "client/transform/filters.h"  // IWYU pragma: export
