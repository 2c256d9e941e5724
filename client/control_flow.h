// Forwards to client/transform/control_flow.h, for programs that include this path.
#pragma once
#include "client/transform/control_flow.h"  // IWYU pragma: export
