// Prepares a row tile (program/row_tile.h) to run on the host in blocks of rows that stay in the
// caches. Stateless; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/codegen/host_code.h"
#include "worker/codegen/kernel.h"
#include "worker/program/step_program.h"

namespace tessera::worker {

struct HostTile {
  // A kernel step of the tile. To run `n` rows from row r on, its function runs n *
  // iterations_per_row iterations. Buffer i begins r * row_strides[i] bytes into slots[i].
  struct Part {
    std::vector<int> slots;
    std::vector<int64_t> row_strides;
    int64_t iterations_per_row = 0;
    // If true, the function's iterations begin at 0, since the buffers have moved to row r. If
    // false, the strides are 0, and the iterations begin at the first one of row r.
    bool moves_buffers = true;
    codegen::HostCode::Fn function = nullptr;
  };
  std::vector<Part> parts;  // empty if the steps run one by one
  int64_t rows = 0;
  int64_t block_rows = 0;    // number of rows at a time
  int64_t work_per_row = 0;  // in the unit of kKernelGrain
  // The label of the step that does the most work.
  int heaviest_label = 0;
};

// Makes the tile whose steps begin at steps[first], with parts that have no functions yet, and
// appends the kernel of each part to `kernels`. The tile has no parts if one of its kernels is
// marked in `has_blocked_loops`, because such a kernel runs in an order of its own
// (loop_blocking.h), or if a kernel of a block of rows would sum in another order than the whole
// kernel. `has_blocked_loops` has an entry for each kernel of the program.
HostTile MakeHostTile(const program::StepProgram& program,
                      const std::vector<bool>& has_blocked_loops,
                      const std::vector<program::Step>& steps, size_t first,
                      std::vector<codegen::Kernel>* kernels);

}  // namespace tessera::worker
