// The handlers of ClusterService: what the cluster consists of, named meshes, and the limits that
// this server sets. Only CreateMesh and DeleteMesh change anything.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/build.h"
#include "base/status.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "ir/serial/worker_fields.h"
#include "server/rpc/handlers.h"
#include "server/rpc/paging.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::ToProto;
using scheduler::ExecutorPlace;
using scheduler::MeshInfo;
using scheduler::WorkerInfo;

v1::WorkerState StateOf(scheduler::WorkerState state) {
  constexpr v1::WorkerState kStates[] = {v1::WORKER_STATE_READY, v1::WORKER_STATE_SUSPECT,
                                         v1::WORKER_STATE_CORDONED, v1::WORKER_STATE_DRAINING,
                                         v1::WORKER_STATE_LOST};
  return kStates[static_cast<int>(state)];
}

void FillMesh(const MeshInfo& info, v1::NamedMesh* out) {
  out->set_name(info.name);
  *out->mutable_mesh() = ToProto(info.mesh);
  out->mutable_devices()->Assign(info.devices.begin(), info.devices.end());
}

v1::TopProgram TopProgramOf(const core::ProgramUse& use) {
  v1::TopProgram out;
  out.set_name(use.program.empty() ? "other" : use.program);
  out.set_runs(use.runs_succeeded + use.failures);
  out.set_step_seconds_p50(absl::ToDoubleSeconds(use.run_p50));
  out.set_step_seconds_p99(absl::ToDoubleSeconds(use.run_p99));
  out.set_device_busy_seconds(absl::ToDoubleSeconds(use.device_busy));
  absl::Duration longest;
  for (const auto& [time, cause] : {std::pair(use.idle_input, "waiting_input"),
                                    {use.idle_peer, "waiting_peer"},
                                    {use.idle_compile, "compile"}}) {
    if (time <= longest) continue;
    longest = time;
    out.set_idle_cause(cause);
  }
  out.set_bytes_moved(use.bytes_moved);
  return out;
}

}  // namespace

void FillWorker(const WorkerInfo& info, v1::Worker* out) {
  out->set_name(info.name);
  out->set_state(StateOf(info.state));
  out->set_reason(info.reason);
  out->set_host(info.host);
  out->mutable_devices()->Assign(info.devices.begin(), info.devices.end());
  if (info.heartbeat_age < absl::InfiniteDuration())
    *out->mutable_heartbeat_age() = ToProto(info.heartbeat_age);
  out->set_operations(info.operations);
  out->set_arrays(info.arrays);
  out->mutable_data_endpoints()->Assign(info.data_endpoints.begin(), info.data_endpoints.end());
  if (!info.build.version.empty()) ir::serial::WriteFields(info.build, out->mutable_build());
  out->set_protocol(info.protocol);
  out->set_executors_not_adopted(info.executors_not_adopted);
}

void ListDevices(const CallRef<v1::ListDevicesRequest, v1::ListDevicesResponse>& call) {
  AnswerPage<api::Device>(
      call, scheduler::ListDevices{{0, call->caller()}}, /*filter=*/"",
      [](const api::Device& device, auto* out) { *out->add_devices() = ToProto(device); },
      [](const api::Device& device) { return device.id; });
}

void ListWorkers(const CallRef<v1::ListWorkersRequest, v1::ListWorkersResponse>& call) {
  AnswerPage<WorkerInfo>(
      call, scheduler::ListWorkers{{0, call->caller()}, {}}, /*filter=*/"",
      [](const WorkerInfo& worker, auto* out) { FillWorker(worker, out->add_workers()); },
      [](const WorkerInfo& worker) { return worker.name; });
}

void GetWorker(const CallRef<v1::GetWorkerRequest, v1::Worker>& call) {
  Answer<WorkerInfo>(call, scheduler::GetWorker{{0, call->caller()}, call->request().worker()},
                     FillWorker);
}

void GetTopology(const CallRef<v1::GetTopologyRequest, v1::Topology>& call) {
  Answer<std::vector<ExecutorPlace>>(
      call, scheduler::GetTopology{{0, call->caller()}},
      [](const std::vector<ExecutorPlace>& places, v1::Topology* out) {
        std::map<std::string, v1::Host*> hosts;
        for (const ExecutorPlace& p : places) hosts[p.host] = nullptr;
        for (auto& [name, host] : hosts) {
          host = out->add_hosts();
          host->set_name(name);
        }
        for (const ExecutorPlace& p : places) {
          v1::Executor* executor = hosts.at(p.host)->add_executors();
          executor->set_name(p.name);
          executor->set_device_kind(p.device_kind);
          executor->mutable_devices()->Assign(p.devices.begin(), p.devices.end());
          executor->set_memory_bytes(p.memory_bytes);
          executor->set_healthy(p.healthy);
        }
      });
}

// Publishes every limit that a client may run into, so that clients need not guess or hard-code
// them. A test compares each number with the bound that is enforced. Whether files work depends on
// the executors, so the feature "files" is added when the scheduler has described them.
void GetCapabilities(const CallRef<v1::GetCapabilitiesRequest, v1::GetCapabilitiesResponse>& call) {
  const Options& o = call->coordinator()->options();
  const scheduler::Config& c = call->coordinator()->config();
  v1::GetCapabilitiesResponse& out = call->response();
  out.set_version(ThisBuild().version);
  ir::serial::WriteFields(ThisBuild(), out.mutable_build());
  out.set_opset(ir::kOpset);
  out.set_max_program_bytes(o.max_program_bytes);
  out.set_max_message_bytes(o.max_message_bytes);
  out.set_max_ops(o.max_ops);
  out.set_max_mesh_devices(o.max_mesh_devices);
  out.set_queue_bound(c.queue_bound);
  out.set_result_wait_ms_max(absl::ToInt64Milliseconds(c.result_wait_max));
  out.set_lease_ms(absl::ToInt64Milliseconds(c.lease));
  out.set_session_lease_ms(absl::ToInt64Milliseconds(c.session_lease));
  out.set_session_lease_ms_max(absl::ToInt64Milliseconds(c.session_lease_max));
  out.set_arrays_max(c.arrays_max);
  out.set_sessions_max(c.sessions_max);
  out.set_meshes_max(c.meshes_max);
  out.set_relay_bytes_max(o.relay_bytes_max);
  out.set_inline_results_bytes_max(api::kInlineBytesMax);
  out.set_request_id_ms(o.request_id_ms);
  out.set_request_ids_max(o.request_ids_max);
  out.set_page_size_max(static_cast<int32_t>(c.page_size_max));
  out.set_operations_kept(c.operations_kept);
  out.set_ticket_ms(absl::ToInt64Milliseconds(c.ticket_lifetime));
  out.set_collective_timeout_ms(o.collective_timeout_ms);
  out.set_programs_max(o.programs_max);
  out.set_programs_bytes_max(o.programs_bytes_max);
  out.set_compile_timeout_ms(absl::ToInt64Milliseconds(c.compile_timeout));
  out.set_session_grace_ms(absl::ToInt64Milliseconds(c.session_grace));
  for (const std::string& feature : call->context().features) out.add_features(feature);
  Answer<std::vector<ExecutorPlace>>(
      call, scheduler::GetTopology{{0, call->caller()}},
      [](const std::vector<ExecutorPlace>& places, v1::GetCapabilitiesResponse* to) {
        const bool files = std::any_of(places.begin(), places.end(), [](const auto& place) {
          return place.healthy && place.has_files_folder;
        });
        if (files) to->add_features("files");
      });
}

void CreateMesh(const CallRef<v1::CreateMeshRequest, v1::NamedMesh>& call) {
  const v1::CreateMeshRequest& q = call->request();
  absl::StatusOr<ir::Mesh> mesh =
      ir::serial::FromProto(q.mesh().mesh(), call->coordinator()->limits());
  if (!mesh.ok()) return call->Finish(Annotate(mesh.status(), "mesh"));
  if (q.mesh().devices_size() > call->coordinator()->limits().mesh_devices)
    return call->Finish(MakeError(ErrorKind::kValueError,
                                  absl::StrCat("mesh: ", q.mesh().devices_size(),
                                               " devices, at most max_mesh_devices are accepted")));
  Answer<MeshInfo>(call,
                   scheduler::CreateMesh{call->identity(),
                                         q.mesh().name(),
                                         *std::move(mesh),
                                         {q.mesh().devices().begin(), q.mesh().devices().end()},
                                         q.validate_only()},
                   FillMesh);
}

void GetMesh(const CallRef<v1::GetMeshRequest, v1::NamedMesh>& call) {
  Answer<MeshInfo>(call, scheduler::GetMesh{{0, call->caller()}, call->request().name()}, FillMesh);
}

void ListMeshes(const CallRef<v1::ListMeshesRequest, v1::ListMeshesResponse>& call) {
  AnswerPage<MeshInfo>(
      call, scheduler::ListMeshes{{0, call->caller()}, {}}, /*filter=*/"",
      [](const MeshInfo& mesh, auto* out) { FillMesh(mesh, out->add_meshes()); },
      [](const MeshInfo& mesh) { return mesh.name; });
}

void DeleteMesh(const CallRef<v1::DeleteMeshRequest, v1::DeleteMeshResponse>& call) {
  AnswerEmpty(call, scheduler::DeleteMesh{call->identity(), call->request().name()});
}

void ListTopPrograms(const CallRef<v1::ListTopProgramsRequest, v1::ListTopProgramsResponse>& call) {
  if (absl::Status s = CheckPageSize(call->request().page_size()); !s.ok()) return call->Finish(s);
  const int size = call->request().page_size();
  if (const TopProgramsFn& top_programs = call->context().top_programs)
    for (const core::ProgramUse& use : top_programs(call->caller())) {
      if (size > 0 && call->response().programs_size() >= size) break;
      *call->response().add_programs() = TopProgramOf(use);
    }
  call->Finish(absl::OkStatus());
}

}  // namespace tessera::server::rpc
