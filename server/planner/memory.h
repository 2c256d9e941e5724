// Bounds the memory of a device program: the bytes of its arguments, of its results, and of all
// values that are live at once. A worker never takes more than the bound. The bound assumes that
// each value has memory of its own as long as it may be read, and that each result of the program
// has its memory from the beginning. The bound includes the copies that ops need, such as operands
// that are packed for a product and blocks that are made contiguous for an exchange.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::server::planner {

struct MemoryBound {
  int64_t arguments = 0, results = 0;
  int64_t peak = 0;  // most bytes that are live at once, arguments and results included
};
MemoryBound BoundMemory(const ir::Function& device_program);

}  // namespace tessera::server::planner
