// Forwards to client/transform/shard_map.h, for programs that include this path.
#pragma once
#include "client/transform/shard_map.h"  // IWYU pragma: export
