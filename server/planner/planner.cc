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
    s.count += u.runs;
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
                                " has ", want, " devices, but the cluster has ", have));
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
absl::Status Hoist(int64_t device_memory, PartitionedProgram* partitioned, MemoryBound* memory) {
  for (const Hoisting which : {Hoisting::kAll, Hoisting::kNoLarger}) {
    TESSERA_ASSIGN_OR_RETURN(const ir::FunctionRef hoisted,
                             HoistCollectives(partitioned->fn, which));
    if (hoisted == partitioned->fn) return absl::OkStatus();
    const MemoryBound bound = BoundMemory(*hoisted);
    if (device_memory > 0 && bound.peak > device_memory) continue;
    partitioned->fn = hoisted;
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
  const StageReporter stages(request);
  // The caller has verified the program.
  stages.Report("verify", request.program);
  TESSERA_RETURN_IF_ERROR(CheckCluster(request));
  ir::Program program = request.program;
  TESSERA_ASSIGN_OR_RETURN(program.entry, ir::DropRules(ir::Dce(*program.entry)));
  FunctionShardings shardings;
  TESSERA_RETURN_IF_ERROR(Seed(program, &shardings));
  Propagate(*program.entry, &shardings);
  if (stages.wanted())
    stages.Report("propagate", program, ShardingsText(*program.entry, shardings));
  std::string cut_lines;
  absl::StatusOr<PartitionedProgram> result = Partition(program, shardings, request.options.explain,
                                                        stages.wanted() ? &cut_lines : nullptr);
  stages.Report("cuts", program, cut_lines);
  TESSERA_RETURN_IF_ERROR(result.status());
  PartitionedProgram& partitioned = *result;
  stages.Report("partition", partitioned.fn);
  MemoryBound memory = BoundMemory(*partitioned.fn);
  TESSERA_RETURN_IF_ERROR(Hoist(DeviceMemory(request.cluster), &partitioned, &memory));
  stages.Report("hoist", partitioned.fn);
  if (stages.wanted()) stages.Report("memory", partitioned.fn, MemoryText(*partitioned.fn, memory));

  core::Plan plan;
  plan.device_program = partitioned.fn;
  plan.mesh = program.mesh();
  plan.in = ValuesOf(program.entry->param_types(), partitioned.in);
  plan.out = ValuesOf(program.entry->result_types(), partitioned.out);
  plan.collectives = Summarize(CollectivesOf(*partitioned.fn));
  plan.memory_bound_bytes = memory.peak;
  plan.source_lines = partitioned.fn->sites;
  if (request.options.explain) {
    const Speeds speeds = SpeedsOf(request.cluster, plan.mesh);
    const PredictedTime time = PredictTime(*partitioned.fn, speeds);
    plan.predicted_seconds = time.seconds();
    const ExplainedPlan explained{program, partitioned, memory,
                                  speeds,  time,        request.cluster.absent_device_memory_bytes};
    plan.explain_text = ExplainText(explained);
    plan.explain_json = ExplainJson(explained);
    stages.Report("explain", partitioned.fn, plan.explain_text);
  }
  return plan;
}

}  // namespace tessera::server::planner
