// Predicts the time of a run of a device program. The prediction uses the costs of the ops
// (arithmetic and bytes of memory, from the op table) and the speeds of devices and links. The time
// of an op is the longer of the time for its arithmetic and the time for its memory traffic (a
// roofline); the time of a collective follows from latency and bandwidth.
//
// Pure. A speed is measured by workers or, if there is no measurement, assumed for the kind of
// device; the result says which. The prediction is the time on the devices, not the time that a
// client waits. It ignores caches, and it counts a collective in full even if the collective runs
// beside other work.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/program.h"
#include "server/core/plan.h"

namespace tessera::server::planner {

// The link between neighbours along a mesh axis.
struct AxisLink {
  core::LinkFigures figures;
  bool measured = false;  // true if the bandwidth, the latency or both are measured
};
// The speeds of the devices and links on which a program runs.
struct Speeds {
  std::string kind;  // kind of device whose speeds are assumed: "cpu" or "gpu"
  double flops_per_s = 0;
  double bytes_per_s = 0;     // bytes of memory read and written per second
  double narrow_speedup = 1;  // speed-up of contractions with at most 16 bits per element
  double kernel_start_s = 0;  // time to start a kernel
  bool measured = false;      // whether flops_per_s and bytes_per_s are measured
  std::map<std::string, AxisLink, std::less<>> links;  // key: mesh axis
};
// Returns the speeds of the slowest device. The link of an axis is the slowest link between
// neighbours along the axis: inside an executor, between executors of a host, or between hosts. An
// executor measures its links to all other executors as one link. So measurements between executors
// are not used if some of those links are within a host and others between hosts. Absent devices
// count as GPUs of one host.
Speeds SpeedsOf(const core::ClusterSnapshot& cluster, const ir::Mesh& mesh);

// The time of all ops with the same name on one source line.
struct OpTime {
  std::string op;
  Site site;
  int64_t runs = 0;  // number of runs, iterations of loops included
  double seconds = 0;
  bool is_collective = false;
};
struct PredictedTime {
  double compute_s = 0, collective_s = 0;
  // Arithmetic of one device, and bytes of memory that it reads and writes.
  double flops = 0, bytes = 0;
  // True if the program has a loop whose number of iterations is unknown (a while loop). Each run
  // of such a loop counts as one iteration.
  bool has_unknown_loops = false;
  std::vector<OpTime> largest;  // ops that take longest, the longest first

  double seconds() const { return compute_s + collective_s; }
};
// Predicts the time of the program. An op takes max(flops / flops_per_s, bytes / bytes_per_s) +
// kernel_start_s. A value whose only reader computes it in the same kernel counts as not written to
// memory. A collective among n devices takes the bytes that a device sends (see CollectiveUse) /
// bytes_per_s, plus latency_s for each of its rounds. There is one round if the devices are paired.
// Otherwise there are log2(n) rounds, or twice as many if all devices get the whole reduced value.
// If the program has a branch, the longest case counts.
PredictedTime PredictTime(const ir::Function& device_program, const Speeds& speeds,
                          size_t num_largest = 5);

}  // namespace tessera::server::planner
