// Draws a plan for a terminal: its mesh with the shards on each device, its sharded arrays, its
// collectives with their bytes, its memory, its time.
//
// Stateless; thread-safe; the text depends on the arguments alone.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/json.h"
#include "client/cli/terminal.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::cli {

// An array, or several with equal placements.
struct PlanArray {
  std::string name;  // "%x", "args[0].blocks[0..3].w", "result 0"
  ir::Type type;
  ir::PartitionSpec spec;
  bool is_result = false;
  size_t count = 1;
};

// What is drawn of a plan.
struct PlanView {
  std::string program;
  ir::Mesh mesh;
  std::vector<int64_t> devices;              // by mesh device; empty: not chosen
  std::map<int64_t, std::string> worker_of;  // by device
  std::vector<PlanArray> arguments, results;
  struct Collective {
    std::string op, site;
    std::vector<std::string> axes;
    int64_t bytes = 0, times = 1;
  };
  std::vector<Collective> collectives;
  struct Reshard {
    std::string op, change, site;
  };
  std::vector<Reshard> reshards;
  int64_t peak_bytes = 0, argument_bytes = 0, result_bytes = 0;
  int64_t absent_device_bytes = 0;  // > 0: planned for absent devices with this much memory
  // Of a run on the devices; 0: not predicted, and not run.
  absl::Duration compute_time, collective_time, last_run;
  bool measured_devices = false;  // the devices' figures are their own
};

// `explain` is the planner's JSON for `program`.
absl::StatusOr<PlanView> MakePlanView(const ir::Program& program, const Json& explain);

std::string DrawPlan(const PlanView& plan, const Display& display);
// Draws which device holds which shard of an array. Empty for an array that is not sharded.
std::vector<std::string> DrawArray(const PlanView& plan, const PlanArray& array,
                                   const Display& display);

}  // namespace tessera::cli
