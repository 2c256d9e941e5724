// The planner's request and reply. Planning is a pure function of the request. The coordinator is
// given a planner as a PlanFn, because the folders of server/ may not include each other
// (server/README.md, Parts).
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

// Speed of the links between devices. 0 means unknown.
struct LinkFigures {
  double bytes_per_s = 0;  // bytes that one device sends per second
  double latency_s = 0;    // latency of one round of an exchange
  bool operator==(const LinkFigures&) const = default;
};

// The devices of a plan, in mesh order (row-major): devices[k] is at the k-th mesh coordinate.
struct ClusterSnapshot {
  struct Device {
    int64_t id = 0;
    std::string kind;  // "cpu" or "gpu"
    std::string host, executor;
    int64_t memory_bytes = 0;  // size of the memory; 0 if unknown
    // The device's speed as its worker has measured it: f32 operations, and bytes of memory read
    // and written, per second. 0 means unknown.
    double flops_per_s = 0, bytes_per_s = 0;
    // The speed of the links to devices of its own executor and of other executors, as exchanges
    // have shown it.
    LinkFigures in_executor = {}, between_executors = {};
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices;
  // If positive, `devices` is empty and the plan is for absent devices with this much memory each.
  int64_t absent_device_memory_bytes = 0;
};

struct PlanOptions {
  bool explain = true;  // whether to make explain_text, explain_json and the prediction
};

// The program after a stage of the planner, as text that ir::ParseProgram reads. Decisions of the
// stage that have no form in a program are comments in the text.
struct PlanStage {
  std::string name;  // name of the stage, such as "partition"
  std::string text;
};

struct PlanRequest {
  ir::Program program;  // the verified program
  std::string name;
  std::string tenant;       // owner of the program
  ClusterSnapshot cluster;  // one device per mesh coordinate, or absent devices
  PlanOptions options;
  // Receives each stage when it is done, even if a later stage fails. If on_stage is null, the
  // planner prints no stages. The plan is the same with and without it.
  std::function<void(PlanStage)> on_stage = nullptr;
};

// The global type of an argument or a result, and its sharding over the plan's mesh.
struct PlanValue {
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;          // global shape
  ir::PartitionSpec spec;  // sharding, which divides every dim evenly
};

// The sum over all collectives of a device program that have the same op and axes.
struct CollectiveSummary {
  std::string op;  // name of the op, such as "psum"
  ir::AxisList axes;
  int64_t count = 0;
  int64_t bytes_per_device = 0;  // bytes that each device sends
};

struct Plan {
  // The program of one device. The params and results are shards, all mesh axes are Manual, and
  // check_vma is false: types do not record along which axes a value varies.
  ir::FunctionRef device_program;
  ir::Mesh mesh;  // device_program->scope.mesh has the same shape
  std::vector<PlanValue> in, out;
  std::vector<CollectiveSummary> collectives;
  int64_t memory_bound_bytes = 0;  // upper bound of what a run needs on each device
  double predicted_seconds = 0;    // predicted time of a run; 0 without `explain`
  std::string explain_text, explain_json;
  // The call sites of the ops of device_program, in order. The site of an op is that of the op in
  // PlanRequest::program for which it was made.
  std::vector<Site> source_lines;
};

using PlanFn = std::function<absl::StatusOr<Plan>(const PlanRequest&)>;

}  // namespace tessera::server::core
