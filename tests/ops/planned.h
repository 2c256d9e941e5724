// Plans a program with shardings and cuts its arguments into blocks, for tests that run the device
// program of the plan. The functions throw StatusException.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/eval/eval.h"
#include "ir/program.h"
#include "server/core/plan.h"

namespace tessera::ir::samples {

// Returns the block of the array `whole` that `device` holds under the sharding `spec`.
Array BlockOf(const Array& whole, const PartitionSpec& spec, const Mesh& mesh, int64_t device);

struct Planned {
  server::core::Plan plan;
  std::vector<int64_t> devices;  // devices of the mesh in row-major order
  std::vector<Shards> args;      // blocks of the arguments: [argument][device]
};
// Plans `program` for a cluster with as many devices as its mesh has. `args` are whole arrays.
Planned PlanOf(const Program& program, const std::vector<Array>& args);

}  // namespace tessera::ir::samples
