// Forwards to client/transform/stages.h, for programs that include this path.
#pragma once
#include "client/transform/stages.h"  // IWYU pragma: export
