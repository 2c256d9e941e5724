// Draws a plan for a terminal: its mesh with the shards on each device, its sharded arrays, its
// collectives with their bytes, its memory, its time. Draws arrays as SVG too.
//
// Stateless; thread-safe; the text depends on the arguments alone. Used by the SDK and the command
// line.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/display.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::internal {

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
  // The ops in the order of the program, those of regions after their op.
  struct Op {
    std::string op, site, decided_by;
    std::string name;                 // of a checkpoint_name
    int depth = 0;                    // of regions
    std::vector<std::string> manual;  // the axes of the shard_maps that it stands in
    std::vector<PlanArray> values;    // its results; what they vary over is in their types
    // What it needs on Explicit axes to give the same: operands and results, by index, to be
    // resharded, or an out_sharding.
    std::vector<std::pair<int, ir::PartitionSpec>> reshard_operands, reshard_results;
    std::optional<ir::PartitionSpec> out_sharding;
  };
  std::vector<Op> ops;
  std::vector<PlanArray> inspected;  // values that are drawn with the arguments and results
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

// `explain_json` is the planner's, for `program`.
absl::StatusOr<PlanView> MakePlanView(const ir::Program& program, const std::string& explain_json);

std::string DrawPlan(const PlanView& plan, const Display& display);
// Draws which device holds which shard of an array. Empty for an array that is not sharded.
std::vector<std::string> DrawArray(const PlanView& plan, const PlanArray& array,
                                   const Display& display);
// The same for any array. Two dims fit into a picture: of an array that is cut along more of them
// each block along the others has its own.
std::string DrawPlacement(const PlanView& plan, const PlanArray& array, const Display& display);
// The same of several arrays, one below the other, as an SVG document.
std::string SvgOf(const PlanView& plan, const std::vector<PlanArray>& arrays);
// All that DrawPlan draws of arrays.
std::string SvgOf(const PlanView& plan);

}  // namespace tessera::internal
