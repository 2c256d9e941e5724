// A plan drawn for a terminal: its mesh with what lies on each device, its arrays cut into blocks,
// its collectives with their bytes, its memory.
//
// Pure functions; the same plan and the same looks give the same text.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

struct Plan {
  std::string program;
  ir::Mesh mesh;
  std::vector<int64_t> devices;              // per mesh device; empty: not chosen
  std::map<int64_t, std::string> worker_of;  // of the devices
  std::vector<PlanArray> arguments, results;
  struct Collective {
    std::string op, site;
    std::vector<std::string> axes;
    int64_t bytes = 0, times = 1;
  };
  std::vector<Collective> collectives;
  struct Move {
    std::string op, what, site;
  };
  std::vector<Move> moves;  // arrays that are resharded
  int64_t peak_bytes = 0, argument_bytes = 0, result_bytes = 0;
  int64_t absent_device_bytes = 0;  // > 0: for absent devices of so much memory
};

// `explain` is the planner's JSON for `program`.
absl::StatusOr<Plan> PlanOf(const ir::Program& program, const Json& explain);

std::string DrawPlan(const Plan& plan, const Looks& looks);
// One array: which device holds which block. Empty for an array that is whole on every device.
std::vector<std::string> DrawArray(const Plan& plan, const PlanArray& array, const Looks& looks);

}  // namespace tessera::cli
