// Row tiles: kernel steps that follow one another and share rows, such as those of a softmax or a
// layer norm. A host runs all of them on a block of rows before the next block, so that what one
// writes is still in the cache when another reads it.
//
// A kernel that is in a tile of `rows` rows does the same number of iterations for each row, in the
// order of the rows. Of memory that a kernel of the tile writes and another one reads or writes,
// each row uses its own part alone. So any blocks of rows may run in any order, and concurrently,
// and give the bits of the steps one by one. Pure functions; deterministic; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// With fewer rows there would be too few for many threads.
inline constexpr int64_t kTileRowsMin = 32;
// Puts kernel steps into tiles of at least so many rows: sets KernelStep::tile and
// StepProgram::tiles. Requires that no step is in a tile.
void PlanRowTiles(StepProgram* program, int64_t rows_min = kTileRowsMin);

// The kernel steps from steps[first] on that are in one tile; none if that step is in no tile.
std::vector<const KernelStep*> TileFrom(const std::vector<Step>& steps, size_t first);

// Checks the rules above. INTERNAL says which step breaks one. Requires that the steps' slots and
// kernels are valid.
absl::Status CheckRowTiles(const StepProgram& program);

// How a kernel runs on at most `block` of its rows, from row r on.
struct RowKernel {
  codegen::Kernel kernel;
  std::vector<int64_t> moves;  // by param: the buffer begins r times as many elements later
  int64_t iterations_per_row = 0;
  // The kernel has `block` rows and begins at iteration 0; else it has all rows and begins at the
  // first iteration of row r, and nothing moves.
  bool moves_by_params = false;
};
// Nothing if the kernel does not consist of so many rows. Requires 0 < block <= rows.
std::optional<RowKernel> RowsOf(const codegen::Kernel& kernel, int64_t rows, int64_t block);

}  // namespace tessera::worker::program
