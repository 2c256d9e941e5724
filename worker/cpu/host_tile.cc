// MakeHostTile: chooses the block of rows of a row tile and makes the kernels that compute one
// block. program_run.cc calls it for each tile of a program, and runs the blocks.
#include "worker/cpu/host_tile.h"

#include <algorithm>
#include <utility>

#include "worker/codegen/host_plan.h"
#include "worker/cpu/grain.h"
#include "worker/program/row_tile.h"

namespace tessera::worker {
namespace {

using codegen::Kernel;
using program::KernelStep;
using program::Step;

// A block has as many rows as fit into kBlockBytes, which fits into the second-level cache of any
// processor of the last years. Even if its rows are long, a block has at least two of them, since a
// kernel of one row would have no dim of rows, and therefore another HostPlan.
constexpr int64_t kBlockBytes = 1 << 16, kBlockRowsMin = 2;

// Returns the number of bytes of one row of all slots together.
int64_t RowBytes(const program::StepProgram& p, const std::vector<const KernelStep*>& kernels,
                 int64_t rows) {
  std::vector<int> slots;
  for (const KernelStep* k : kernels) slots.insert(slots.end(), k->slots.begin(), k->slots.end());
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  int64_t bytes = 0;
  for (const int slot : slots) bytes += p.slots[slot].bytes();
  return std::max<int64_t>(bytes / rows, 1);
}

}  // namespace

// Makes the parts of a tile. Each kernel of the tile is rewritten for a block of rows
// (RowKernelOf). The tile is given up, and its steps run one by one, if a rewritten kernel would
// sum in another order: a tile must not change a bit of a result.
HostTile MakeHostTile(const program::StepProgram& program,
                      const std::vector<bool>& has_blocked_loops, const std::vector<Step>& steps,
                      size_t first, std::vector<Kernel>* kernels) {
  HostTile tile;
  const std::vector<const KernelStep*> tiled = program::TileStepsFrom(steps, first);
  for (const KernelStep* k : tiled)
    if (has_blocked_loops[k->kernel]) return tile;
  tile.rows = program.tiles[tiled[0]->tile].rows;
  if (tile.rows < kBlockRowsMin) return tile;
  tile.block_rows = std::clamp<int64_t>(kBlockBytes / RowBytes(program, tiled, tile.rows),
                                        kBlockRowsMin, tile.rows);
  std::vector<program::RowKernel> parts;
  for (const KernelStep* k : tiled) {
    const Kernel& kernel = program.kernels[k->kernel];
    parts.push_back(*program::RowKernelOf(kernel, tile.rows, tile.block_rows));
    if (!codegen::ReduceInTheSameOrder(codegen::Canonical(kernel),
                                       codegen::Canonical(parts.back().kernel)))
      return tile;
  }
  int64_t most_work = 0;
  for (size_t i = 0; i < tiled.size(); ++i) {
    const KernelStep& step = *tiled[i];
    const Kernel& kernel = program.kernels[step.kernel];
    program::RowKernel& part = parts[i];
    for (size_t p = 0; p < part.row_strides.size(); ++p)
      part.row_strides[p] *= ir::ByteWidth(kernel.params[p].dtype);
    const int64_t work = WorkOfIteration(kernel) * part.iterations_per_row;
    tile.work_per_row += work;
    if (work > most_work) tile.heaviest_label = steps[first + i].label;
    most_work = std::max(most_work, work);
    tile.parts.push_back({step.slots, std::move(part.row_strides), part.iterations_per_row,
                          part.moves_buffers, nullptr});
    kernels->push_back(std::move(part.kernel));
  }
  return tile;
}

}  // namespace tessera::worker
