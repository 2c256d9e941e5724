// Bounds the memory of a device program: bytes of arguments, results and the most that is alive at
// once between them, were every op's results allocated and nothing shared.
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
