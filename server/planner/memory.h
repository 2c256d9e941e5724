// Bounds the memory of a device program: the bytes of its arguments, of its results, and of what is
// live at once, which is never less than what a worker takes: each value has memory of its own
// while it may be read, copies that ops need included (operands that are packed for a product,
// blocks that are made contiguous for an exchange), each result from the beginning.
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
