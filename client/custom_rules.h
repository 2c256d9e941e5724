// Forwards to client/transform/custom_rules.h, for programs that include this path.
#pragma once
#include "client/transform/custom_rules.h"  // IWYU pragma: export
