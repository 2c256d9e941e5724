// Row tiles: consecutive kernel steps that share rows, such as the steps of a softmax or a layer
// norm. A host runs all of them on a block of rows before it goes to the next block, so that the
// data which one step writes is still in the cache when another one reads it.
//
// A kernel in a tile of `rows` rows does the same number of iterations for each row, in the order
// of the rows. If one kernel of the tile writes memory that another one reads or writes, each row
// of both uses only the row's own part of that memory. So blocks of rows may run in any order and
// concurrently, and give the same bits as the steps one by one. Pure functions; deterministic;
// thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// The least number of rows of a tile. Fewer rows would give too little work to many threads.
inline constexpr int64_t kTileRowsMin = 32;
// Puts kernel steps into tiles of at least `rows_min` rows: sets KernelStep::tile and
// StepProgram::tiles. Requires that no step is in a tile.
void PlanRowTiles(StepProgram* program, int64_t rows_min = kTileRowsMin);

// Returns the kernel steps from steps[first] on that are in one tile, or none if that step is in no
// tile.
std::vector<const KernelStep*> TileStepsFrom(const std::vector<Step>& steps, size_t first);

// Checks the rules above. Returns INTERNAL, which names the tile, if one is broken. Requires that
// the steps' slots and kernels are valid.
absl::Status CheckRowTiles(const StepProgram& program);

// Describes how a kernel runs on at most `block` of its rows, from row r on.
struct RowKernel {
  codegen::Kernel kernel;
  // By param: for row r, the buffer begins r * row_stride elements later.
  std::vector<int64_t> row_strides;
  int64_t iterations_per_row = 0;
  // If true, the caller moves the buffers to row r, and the kernel has `block` rows and begins at
  // iteration 0. If false, the buffers stay, and the kernel has all rows and begins at the first
  // iteration of row r.
  bool moves_buffers = false;
};
// Returns how to run the kernel, which has `rows` rows, on blocks of at most `block` rows. Returns
// nullopt if the kernel does not consist of `rows` rows. Requires 0 < block <= rows.
std::optional<RowKernel> RowKernelOf(const codegen::Kernel& kernel, int64_t rows, int64_t block);

}  // namespace tessera::worker::program
