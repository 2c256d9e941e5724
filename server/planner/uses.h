// The collectives of a device program, with the bytes that they send, and the ops of the program
// that the host runs. The plan lists the collectives, its explanation lists both, and the
// prediction of times (cost.h) counts the bytes that collectives send. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

namespace tessera::server::planner {

// Returns the most bytes that one device of a group of `n` sends in one run of the collective `op`,
// by the formula at CollectiveUse.
int64_t BytesSent(const ir::Function& f, const ir::Op& op, int64_t n);

// A collective of the device program. `bytes` is the most that one device sends for it per run of
// the program, over all `runs` runs of the collective in loops. In a group of n devices, the ring
// algorithm sends 2(n-1)/n of the shard for psum, the whole shard for ppermute, and (n-1)/n of the
// gathered or scattered array for the others.
struct CollectiveUse {
  std::string op;
  ir::AxisList axes;
  // number of devices that take part together
  int64_t group = 1;
  int64_t bytes = 0;
  int64_t runs = 1;
  Site site;
};
std::vector<CollectiveUse> CollectivesOf(const ir::Function& device_program);

// An op of the device program that workers cannot compile, so that the reference evaluator runs it
// on the host, or that they can compile for CPUs only (`cpu_code`). The reason is the op's
// Lowering, its computation, a dtype without kernels (ir::HasKernels), or its size (ir::ScanSize).
// `bytes` is the size of its operands and results, which an accelerator copies to the host and
// back, per run of the program.
struct HostOp {
  std::string op;
  int64_t bytes = 0;
  int64_t runs = 1;
  Site site;
  bool cpu_code = false;
};
std::vector<HostOp> HostOpsOf(const ir::Function& device_program);

}  // namespace tessera::server::planner
