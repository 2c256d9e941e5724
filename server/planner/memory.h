// Bounds the memory of a device program: the bytes of its arguments, of its results, and the
// maximum that is live at once, as if every op's results were allocated and no buffer were reused
// in place.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::server::planner {

struct MemoryBound {
  int64_t arguments = 0, results = 0;
  int64_t peak = 0;  // includes both
};
MemoryBound BoundMemory(const ir::Function& device_program);

}  // namespace tessera::server::planner
