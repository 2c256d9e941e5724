// Forwards to client/transform/closure_convert.h, for programs that include this path.
#pragma once
#include "client/transform/closure_convert.h"  // IWYU pragma: export
