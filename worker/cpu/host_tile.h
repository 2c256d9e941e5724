// How a row tile (program/row_tile.h) runs on the host: in blocks of rows that stay in the caches.
// Stateless; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/codegen/host_code.h"
#include "worker/codegen/kernel.h"
#include "worker/program/step_program.h"

namespace tessera::worker {

struct HostTile {
  // A kernel step of the tile. For `n` rows from row r on its function runs iterations_per_row * n
  // iterations on buffers that begin r * moves[i] bytes into the step's slots.
  struct Part {
    std::vector<int> slots;
    std::vector<int64_t> moves;
    int64_t iterations_per_row = 0;
    bool begins_at_0 = true;  // else at the iteration where row r begins
    codegen::HostCode::Fn function = nullptr;
  };
  std::vector<Part> parts;  // none: the steps run one by one
  int64_t rows = 0;
  int64_t block = 0;         // rows at a time
  int64_t work_per_row = 0;  // in the unit of kKernelGrain
  int label = 0;             // of the step that does the most
};

// Makes the parts, without functions, of the tile whose steps begin at steps[first], and appends
// the kernel of each to `kernels`. No parts if one of the program's kernels that `is_cut` names, as
// they run in an order of their own (tile.h), is in it, or one that would sum in another order.
HostTile MakeHostTile(const program::StepProgram& program, const std::vector<bool>& is_cut,
                      const std::vector<program::Step>& steps, size_t first,
                      std::vector<codegen::Kernel>* kernels);

}  // namespace tessera::worker
