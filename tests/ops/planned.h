// A program under shardings: planned, its arguments cut into blocks.  Throws StatusException.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/eval/eval.h"
#include "ir/program.h"
#include "server/core/plan.h"

namespace tessera::ir::samples {

// Device `device`'s block of `whole`.
Array BlockOf(const Array& whole, const PartitionSpec& spec, const Mesh& mesh, int64_t device);

struct Planned {
  server::core::Plan plan;
  std::vector<int64_t> devices;  // of the mesh, row-major
  std::vector<Shards> args;      // [argument][device]: blocks
};
// `args[i]` is whole.
Planned PlanOf(const Program& program, const std::vector<Array>& args);

}  // namespace tessera::ir::samples
