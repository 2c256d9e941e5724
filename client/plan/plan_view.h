// The parts of a plan that people see, and the function that reads them from the planner's
// explanation.
//
// Values, and a function without state; thread-safe. Used by the SDK and the command line.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/mesh.h"
#include "ir/program.h"
#include "ir/type.h"

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
    int64_t bytes_sent = 0, repeats = 1;
  };
  std::vector<Collective> collectives;
  struct Reshard {
    std::string op, change, site;
  };
  std::vector<Reshard> reshards;
  int64_t peak_bytes = 0, argument_bytes = 0, result_bytes = 0;
  int64_t absent_device_bytes = 0;  // memory of each absent device; 0 if the devices are real
  // Times of a run on the devices. 0 means not predicted, or no run yet.
  absl::Duration compute_time, collective_time, last_run;
  bool measured_devices = false;  // whether the speed of the devices was measured
};

// Reads a plan from the planner's `explain_json` for `program`. Returns INTERNAL for a malformed
// plan.
absl::StatusOr<PlanView> MakePlanView(const ir::Program& program, const std::string& explain_json);

}  // namespace tessera::internal
