// The transforms of functions: jit, grad, vmap and others. They can be nested.
//
// Each takes a callable and returns a callable. The callable is traced: it sees types, not
// contents, and runs once per trace. Arguments and results are trees (client/tree.h); leaves that
// are not arrays are static. A jitted function is thread-safe. Tracing runs on the caller's thread.
#pragma once
#include "client/transform/autodiff.h"         // IWYU pragma: export
#include "client/transform/axis_types.h"       // IWYU pragma: export
#include "client/transform/closure_convert.h"  // IWYU pragma: export
#include "client/transform/control_flow.h"     // IWYU pragma: export
#include "client/transform/custom_rules.h"     // IWYU pragma: export
#include "client/transform/jacobian.h"         // IWYU pragma: export
#include "client/transform/jit.h"              // IWYU pragma: export
#include "client/transform/pmap.h"             // IWYU pragma: export
#include "client/transform/shard_map.h"        // IWYU pragma: export
#include "client/transform/vmap.h"             // IWYU pragma: export
