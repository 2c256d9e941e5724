// Predicts the time of a run of a device program. The prediction uses the costs of the ops
// (arithmetic and bytes of memory, from the op table) and the speeds of devices and links, called
// figures. The time of an op is the longer of its arithmetic and its memory traffic (a roofline);
// the time of an exchange follows from latency and bandwidth.
//
// Pure. A figure is measured by workers or, if there is no measurement, assumed for the kind of
// device; the result says which. The prediction is the time on the devices, not the time that a
// client waits. It ignores caches, and it counts an exchange in full even if the exchange runs
// beside other work.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/program.h"
#include "server/core/plan.h"

namespace tessera::server::planner {

struct AxisLink {
  core::LinkFigures figures;
  bool measured = false;  // true if at least one of the two figures is measured
};
struct Figures {
  std::string kind;  // kind of device whose figures are assumed: "cpu" or "gpu"
  double flops_per_s = 0;
  double bytes_per_s = 0;     // bytes of memory read and written per second
  double narrow_speedup = 1;  // speed-up of contractions with at most 16 bits per element
  double op_s = 0;            // time to start a kernel
  bool measured = false;      // whether flops_per_s and bytes_per_s are measured
  std::map<std::string, AxisLink, std::less<>> links;  // key: mesh axis
};
// Returns the figures of the slowest device. The figures of an axis are those of the slowest link
// between neighbours along the axis: inside an executor, between executors of a host, or between
// hosts. An executor measures a single figure for its links to all other executors. So measurements
// between executors are not used if some of those links are within a host and others between hosts.
// Absent devices count as GPUs of one host.
Figures FiguresOf(const core::ClusterSnapshot& cluster, const ir::Mesh& mesh);

// The time of all ops with the same name on one source line.
struct OpTime {
  std::string op;
  Site site;
  int64_t runs = 0;  // number of runs, iterations of loops included
  double seconds = 0;
  bool is_exchange = false;
};
struct PredictedTime {
  double compute_s = 0, exchange_s = 0;
  // Arithmetic of one device, and bytes of memory that it reads and writes.
  double flops = 0, bytes = 0;
  // True if the program does not say how often some loop iterates. The loop then counts as one
  // iteration.
  bool has_unknown_loops = false;
  std::vector<OpTime> largest;  // ops that take longest, the longest first

  double seconds() const { return compute_s + exchange_s; }
};
// Predicts the time of the program. An op takes max(flops / flops_per_s, bytes / bytes_per_s) +
// op_s. A value whose only reader computes it in the same kernel counts as not written to memory.
// An exchange among n devices takes the bytes that a device sends (see CollectiveUse) /
// bytes_per_s, plus latency_s for each of its log2(n) rounds; there is one round if the devices are
// paired, and there are twice as many if all devices get the whole reduced value. Of several
// branches, the longest one counts.
PredictedTime PredictTime(const ir::Function& device_program, const Figures& figures,
                          size_t num_largest = 5);

}  // namespace tessera::server::planner
