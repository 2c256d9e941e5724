// What a planner is asked and what it answers.  Planning is a pure function of these, injected into
// the coordinator, so that server roles do not see one another.  Values; any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/site.h"
#include "ir/api/service.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::server::core {

// The devices a plan may count on, in mesh order (row-major): devices[k] stands at coordinate k.
struct ClusterSnapshot {
  struct Device {
    int64_t id = 0;
    std::string kind;  // "cpu", "gpu"
    std::string host, executor;
    int64_t memory_bytes = 0;  // 0: unknown
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices;
  // > 0: there are no devices; the plan is for such as would each have so much memory.
  int64_t absent_memory_bytes = 0;
};

struct PlanOptions {
  bool explain = true;  // fill in the texts
};

struct PlanRequest {
  ir::Program program;  // verified
  std::string name;
  ClusterSnapshot cluster;  // as many devices as program.mesh() has, or absent ones
  PlanOptions options;
};

// How an argument is wanted or a result left: a block of `spec` of the plan's mesh.
struct PlanValue {
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;          // global
  ir::PartitionSpec spec;  // divides every dim evenly
};

// Collectives of a device program, summed by (op, axes).
struct CollectiveSummary {
  std::string op;  // "psum"
  ir::AxisList axes;
  int64_t count = 0;
  int64_t bytes_per_device = 0;  // sent
};

struct Plan {
  // One lane of the device program: params and results are local blocks; all mesh axes are Manual,
  // check_vma is false.
  ir::FunctionRef device_program;
  ir::Mesh mesh;  // device_program->scope.mesh has the same shape
  std::vector<PlanValue> in, out;
  std::vector<CollectiveSummary> collectives;
  int64_t memory_bound_bytes = 0;  // per device
  std::string explain_text, explain_json;
  // Per op of device_program: where the user wrote what it came from.
  std::vector<Site> source_lines;
};

using PlanFn = std::function<absl::StatusOr<Plan>(const PlanRequest&)>;

}  // namespace tessera::server::core
