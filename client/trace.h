// Forwards to client/trace/trace.h, for programs that include this path.
#pragma once
#include "client/trace/trace.h"  // IWYU pragma: export
