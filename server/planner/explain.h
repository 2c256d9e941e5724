// Explains a plan as text and as JSON. For every op, the explanation has the shardings of the
// results, what decided these shardings, the reshards of operands and results, and the call site.
// It also has the collectives with the bytes that they send, the memory that a device needs, and
// the predicted time of a run with the speeds of devices and links that the prediction uses.
#pragma once
#include <cstdint>
#include <string>

#include "ir/program.h"
#include "server/planner/cost.h"
#include "server/planner/memory.h"
#include "server/planner/partition.h"

namespace tessera::server::planner {

// The parts of a plan that the explanation needs. In the text, arguments with the same type and
// sharding share a line, and so do results with the same type and sharding. The line has the bytes
// that each argument or result takes on a device:
//
//   args[0].blocks[0..3].w (4): f32[8] P('x') 16 B a device
//   argument 0..2,7 (4): f32[8] P('x') 16 B a device         (without names)
//
// In JSON each argument and each result has an entry of its own.
struct ExplainedPlan {
  const ir::Program& program;
  const PartitionedProgram& partitioned;
  const MemoryBound& memory;
  const Speeds& speeds;
  const PredictedTime& time;
  // If positive, the devices are absent ones with this much memory each.
  int64_t absent_device_memory_bytes = 0;
};
std::string ExplainText(const ExplainedPlan& plan);
std::string ExplainJson(const ExplainedPlan& plan);

}  // namespace tessera::server::planner
