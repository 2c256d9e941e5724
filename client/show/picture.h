// Draws a plan for a terminal: its mesh with the shards on each device, its sharded arrays, its
// collectives with their bytes, its memory and its time. Can draw arrays as SVG, too.
//
// Stateless; thread-safe. The text depends on the arguments alone. Used by the SDK and the command
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
#include "client/show/display.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::internal {

// An array, or several arrays with equal placements.
struct PlanArray {
  std::string name;  // "%x", "args[0].blocks[0..3].w", "result 0"
  ir::Type type;
  ir::PartitionSpec spec;
  bool is_result = false;
  size_t count = 1;
};

// The parts of a plan that are drawn.
struct PlanView {
  std::string program;
  ir::Mesh mesh;
  std::vector<int64_t> devices;  // device ids in the order of the mesh; empty if not chosen
  std::map<int64_t, std::string> worker_of;  // worker of each device id
  std::vector<PlanArray> arguments, results;
  // The ops in the order of the program. The ops of a region follow the op that has the region.
  struct Op {
    std::string op, site, decided_by;
    std::string name;                 // name of a checkpoint_name
    int depth = 0;                    // number of regions around the op
    std::vector<std::string> manual;  // axes of the shard_maps around the op
    std::vector<PlanArray> values;    // results of the op; the types have the axes they vary along
    // The changes that the op needs on Explicit axes to compute the same values: operands and
    // results to be resharded, by index, or an out_sharding.
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
  int64_t absent_device_bytes = 0;  // > 0: planned for absent devices with this much memory each
  // Times of a run on the devices. 0 means not predicted, or no run yet.
  absl::Duration compute_time, collective_time, last_run;
  bool measured_devices = false;  // whether the speed of the devices was measured
};

// Reads a plan from the planner's `explain_json` for `program`. Returns INTERNAL for a malformed
// plan.
absl::StatusOr<PlanView> MakePlanView(const ir::Program& program, const std::string& explain_json);

// Draws the whole plan as text.
std::string DrawPlan(const PlanView& plan, const Display& display);
// Draws which device holds which shard of an array. Returns nothing for an array that is not
// sharded.
std::vector<std::string> DrawArray(const PlanView& plan, const PlanArray& array,
                                   const Display& display);
// Like DrawArray, for any array. A picture has two dims. An array that is cut along more dims has
// one picture for each block along the others.
std::string DrawPlacement(const PlanView& plan, const PlanArray& array, const Display& display);
// Draws several arrays, one below the other, as an SVG document.
std::string SvgOf(const PlanView& plan, const std::vector<PlanArray>& arrays);
// Draws the arrays that DrawPlan draws.
std::string SvgOf(const PlanView& plan);

}  // namespace tessera::internal
