// Forwards to client/transform/pmap.h, for programs that include this path.
#pragma once
#include "client/transform/pmap.h"  // IWYU pragma: export
