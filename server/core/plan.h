// The planner's request and reply.  Planning is a pure function of the request. It is injected into
// the coordinator, because the folders of server/ do not include one another.
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

// Of the links between devices; 0: unknown.
struct LinkFigures {
  double bytes_per_s = 0;  // that a device sends
  double latency_s = 0;    // of one round of an exchange
  bool operator==(const LinkFigures&) const = default;
};

// The devices of a plan, in mesh order (row-major): devices[k] is at coordinate k.
struct ClusterSnapshot {
  struct Device {
    int64_t id = 0;
    std::string kind;  // "cpu", "gpu"
    std::string host, executor;
    int64_t memory_bytes = 0;  // 0: unknown
    // As its worker has measured: f32 arithmetic, and memory read and written. 0: unknown.
    double flops_per_s = 0, bytes_per_s = 0;
    // As its exchanges have shown.
    LinkFigures in_executor = {}, between_executors = {};
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices;
  // > 0: there are no devices; the plan is for hypothetical ones with this much memory each.
  int64_t hypothetical_memory_bytes = 0;
};

struct PlanOptions {
  bool explain = true;  // fill in the texts
};

// The program after a stage of the planner, as text that ir::ParseProgram reads. Comments in it say
// what the stage has decided and no program can express.
struct PlanStage {
  std::string name;  // "partition"
  std::string text;
};

struct PlanRequest {
  ir::Program program;  // verified
  std::string name;
  std::string tenant;       // whose program it is
  ClusterSnapshot cluster;  // as many devices as program.mesh() has, or hypothetical ones
  PlanOptions options;
  // Receives each stage when it is done, also where a later one fails; null: no stage is written as
  // text. The plan does not depend on it.
  std::function<void(PlanStage)> on_stage = nullptr;
};

// The type and sharding, over the plan's mesh, of an argument or a result.
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
  // The program of one device: params and results are shards; all mesh axes are Manual, check_vma
  // is false.
  ir::FunctionRef device_program;
  ir::Mesh mesh;  // device_program->scope.mesh has the same shape
  std::vector<PlanValue> in, out;
  std::vector<CollectiveSummary> collectives;
  int64_t memory_bound_bytes = 0;  // per device
  double predicted_seconds = 0;    // of a run on the devices; only with `explain`
  std::string explain_text, explain_json;
  // Per op of device_program: the source location of the op that it came from.
  std::vector<Site> source_lines;
};

using PlanFn = std::function<absl::StatusOr<Plan>(const PlanRequest&)>;

}  // namespace tessera::server::core
