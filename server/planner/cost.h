// What a run of a device program takes, from the costs of its ops in the op table and figures of
// devices and links: a roofline for each op, latency and bandwidth for each exchange.
//
// Pure. The figures are those that workers have measured, where they have, and else assumed for
// their kind; which of them is said. What is predicted is the time on the devices: not what a
// client waits for. It knows nothing of caches, and an exchange that runs beside other work counts
// in full.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/program.h"
#include "server/core/plan.h"

namespace tessera::server::planner {

struct AxisLink {
  core::LinkFigures figures;
  bool measured = false;  // both, or one of them, and the other is assumed
};
struct Figures {
  std::string kind;  // whose figures are assumed where none are measured: "cpu", "gpu"
  double flops_per_s = 0;
  double bytes_per_s = 0;     // of memory, read and written
  double narrow_speedup = 1;  // of contractions of at most 16 bits an element
  double op_s = 0;            // to start a kernel
  bool measured = false;      // flops_per_s and bytes_per_s
  std::map<std::string, AxisLink, std::less<>> links;  // by mesh axis
};
// The slowest device's; the links along an axis are the slowest between neighbours: in an executor,
// between those of a host, or between hosts. What executors have measured of links to others is of
// no use where some of these are on their host and some are not. Devices that are absent are gpus
// of one host.
Figures FiguresOf(const core::ClusterSnapshot& cluster, const ir::Mesh& mesh);

// The ops of one source line.
struct OpTime {
  std::string op;
  Site site;
  int64_t runs = 0;  // loops' iterations included
  double seconds = 0;
  bool is_exchange = false;
};
struct PredictedTime {
  double compute_s = 0, exchange_s = 0;
  double flops = 0, bytes = 0;  // of a device: arithmetic, and what it reads and writes of memory
  // A loop whose number of iterations the program does not say counts as one.
  bool has_unknown_loops = false;
  std::vector<OpTime> largest;  // those that take longest, in that order

  double seconds() const { return compute_s + exchange_s; }
};
// Of ops: max(flops / flops_per_s, bytes / bytes_per_s) + op_s; what a kernel computes only for the
// kernel that reads it is not written to memory. Of exchanges: the bytes that a device sends by the
// ring (CollectiveUse) / bytes_per_s + latency_s for each of log2(n) rounds, twice as many where
// all devices get what is reduced. Of branches: the longest.
PredictedTime PredictTime(const ir::Function& device_program, const Figures& figures,
                          size_t num_largest = 5);

}  // namespace tessera::server::planner
