// Runs the planner's passes. The scheduler's planner threads call MakePlan, in the coordinator's
// process or in a jailed one (server/jail); the plan that it returns is cached and launched.
#include "server/planner/planner.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/program_hash.h"
#include "ir/transform/transform.h"
#include "server/planner/cost.h"
#include "server/planner/explain.h"
#include "server/planner/hoist.h"
#include "server/planner/memory.h"
#include "server/planner/partition.h"
#include "server/planner/propagate.h"
#include "server/planner/stages.h"
#include "server/planner/uses.h"

namespace tessera::server::planner {
namespace {

std::vector<core::PlanValue> ValuesOf(const std::vector<ir::Type>& types,
                                      const std::vector<ir::PartitionSpec>& specs) {
  std::vector<core::PlanValue> values;
  for (size_t i = 0; i < types.size(); ++i)
    values.push_back({types[i].dtype, types[i].shape, specs[i]});
  return values;
}

std::vector<core::CollectiveSummary> Summarize(const std::vector<CollectiveUse>& uses) {
  std::map<std::pair<std::string, ir::AxisList>, core::CollectiveSummary> by_key;
  for (const CollectiveUse& u : uses) {
    core::CollectiveSummary& s = by_key[{u.op, u.axes}];
    s.op = u.op;
    s.axes = u.axes;
    s.count += u.times;
    s.bytes_per_device += u.bytes;
  }
  std::vector<core::CollectiveSummary> out;
  for (auto& [key, summary] : by_key) out.push_back(std::move(summary));
  return out;
}

absl::Status CheckCluster(const core::PlanRequest& request) {
  if (request.cluster.absent_device_memory_bytes > 0) return absl::OkStatus();
  const int64_t want = request.program.mesh().num_devices();
  const int64_t have = static_cast<int64_t>(request.cluster.devices.size());
  if (want == have) return absl::OkStatus();
  return MakeError(ErrorKind::kNotEnoughDevices,
                   absl::StrCat("plan ", request.name, ": mesh ", request.program.mesh().ToString(),
                                " has ", want, " devices, ", have, " were given"));
}

// Returns the smallest known memory of the devices. Returns 0 if no memory is known, which counts
// as enough for every plan.
int64_t DeviceMemory(const core::ClusterSnapshot& cluster) {
  int64_t least = cluster.absent_device_memory_bytes;
  for (const core::ClusterSnapshot::Device& d : cluster.devices)
    if (d.memory_bytes > 0 && (least == 0 || d.memory_bytes < least)) least = d.memory_bytes;
  return least;
}

// Moves collectives out of loops if the plan still fits the memory. The results are then live for
// as long as the loop runs. If the plan does not fit with all of them, only those move whose
// results are no larger than their operands.
absl::Status Hoist(int64_t device_memory, PartitionedProgram* device, MemoryBound* memory) {
  for (const Hoisting which : {Hoisting::kAll, Hoisting::kNoLarger}) {
    TESSERA_ASSIGN_OR_RETURN(const ir::FunctionRef hoisted, HoistCollectives(device->fn, which));
    if (hoisted == device->fn) return absl::OkStatus();
    const MemoryBound bound = BoundMemory(*hoisted);
    if (device_memory > 0 && bound.peak > device_memory) continue;
    device->fn = hoisted;
    *memory = bound;
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Returns the remarks of the stage "memory". The names of the workers' dumps contain the same hash.
std::string MemoryText(const ir::Function& device_program, const MemoryBound& memory) {
  return absl::StrCat("device program ", ir::StructuralHash(device_program), "\nat most ",
                      memory.peak, " B on a device, arguments ", memory.arguments,
                      " B and results ", memory.results, " B included");
}

}  // namespace

// Runs the passes one after the other, and reports each stage before the next pass may fail, so
// that a dump shows how far planning came. The stage "cuts" is therefore reported even if the
// partition fails. The explanation and the prediction are made only on request, because they take
// about as long as the plan.
absl::StatusOr<core::Plan> MakePlan(const core::PlanRequest& request) {
  const Stages stages(request);
  // The caller has verified the program.
  stages.Add("verify", request.program);
  TESSERA_RETURN_IF_ERROR(CheckCluster(request));
  ir::Program program = request.program;
  TESSERA_ASSIGN_OR_RETURN(program.entry, ir::DropRules(ir::Dce(*program.entry)));
  FunctionShardings shardings;
  TESSERA_RETURN_IF_ERROR(Seed(program, &shardings));
  Propagate(*program.entry, &shardings);
  if (stages.wanted()) stages.Add("propagate", program, ShardingsText(*program.entry, shardings));
  std::string cuts;
  absl::StatusOr<PartitionedProgram> partitioned =
      Partition(program, shardings, request.options.explain, stages.wanted() ? &cuts : nullptr);
  stages.Add("cuts", program, cuts);
  TESSERA_RETURN_IF_ERROR(partitioned.status());
  PartitionedProgram& device = *partitioned;
  stages.Add("partition", device.fn);
  MemoryBound memory = BoundMemory(*device.fn);
  TESSERA_RETURN_IF_ERROR(Hoist(DeviceMemory(request.cluster), &device, &memory));
  stages.Add("hoist", device.fn);
  if (stages.wanted()) stages.Add("memory", device.fn, MemoryText(*device.fn, memory));

  core::Plan plan;
  plan.device_program = device.fn;
  plan.mesh = program.mesh();
  plan.in = ValuesOf(program.entry->param_types(), device.in);
  plan.out = ValuesOf(program.entry->result_types(), device.out);
  plan.collectives = Summarize(CollectivesOf(*device.fn));
  plan.memory_bound_bytes = memory.peak;
  plan.source_lines = device.fn->sites;
  if (request.options.explain) {
    const Figures figures = FiguresOf(request.cluster, plan.mesh);
    const PredictedTime time = PredictTime(*device.fn, figures);
    plan.predicted_seconds = time.seconds();
    const Explained explained{program, device, memory,
                              figures, time,   request.cluster.absent_device_memory_bytes};
    plan.explain_text = ExplainText(explained);
    plan.explain_json = ExplainJson(explained);
    stages.Add("explain", device.fn, plan.explain_text);
  }
  return plan;
}

}  // namespace tessera::server::planner
