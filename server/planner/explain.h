// Explains a plan as text and as JSON. For every op, the explanation has the shardings of the
// results, what decided these shardings, the reshards of operands and results, and the call site.
// It also has the collectives with the bytes that they send, the memory that a device needs, and
// the predicted time of a run with the speeds of devices and links that the prediction uses.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"
#include "server/planner/cost.h"
#include "server/planner/memory.h"
#include "server/planner/partition.h"

namespace tessera::server::planner {

// Returns the most bytes that one device of a group of `n` sends in one run of the collective `op`,
// by the formula at CollectiveUse.
int64_t BytesSent(const ir::Function& f, const ir::Op& op, int64_t n);

// A collective of the device program. `bytes` is the most that one device sends for it per run of
// the program, over all `times` times that the collective runs in loops. In a group of n devices,
// the ring algorithm sends 2(n-1)/n of the shard for psum, the whole shard for ppermute, and
// (n-1)/n of the gathered or scattered array for the others.
struct CollectiveUse {
  std::string op;
  ir::AxisList axes;
  // number of devices that take part together
  int64_t group = 1;
  int64_t bytes = 0;
  int64_t times = 1;
  Site site;
};
std::vector<CollectiveUse> CollectivesOf(const ir::Function& device_program);

// An op of the device program that workers cannot compile, so that the reference evaluator runs it
// on the host, or that they can compile for CPUs only (`cpu_code`). The reason is the op's
// Lowering, its computation, a dtype without kernels (ir::HasKernels), or its size (ir::ScanSize).
// `bytes` is the size of its operands and results, which an accelerator copies to the host and
// back, per run of the program.
struct HostUse {
  std::string op;
  int64_t bytes = 0;
  int64_t times = 1;
  Site site;
  bool cpu_code = false;
};
std::vector<HostUse> HostOpsOf(const ir::Function& device_program);

// The parts of a plan that the explanation needs. In the text, arguments with the same type and
// sharding share a line, and so do such results. The line has the bytes that each of them takes on
// a device:
//
//   args[0].blocks[0..3].w (4): f32[8] P('x') 16 B a device
//   argument 0..2,7 (4): f32[8] P('x') 16 B a device         (without names)
//
// In JSON each has an entry of its own.
struct Explained {
  const ir::Program& program;
  const PartitionedProgram& device;
  const MemoryBound& memory;
  const Figures& figures;
  const PredictedTime& time;
  // If positive, the devices are absent ones with this much memory each.
  int64_t hypothetical_memory_bytes = 0;
};
std::string ExplainText(const Explained& plan);
std::string ExplainJson(const Explained& plan);

}  // namespace tessera::server::planner
