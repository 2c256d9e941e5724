#include "server/rpc/cluster_service.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "server/rpc/paging.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::ToProto;
using scheduler::ExecutorPlace;
using scheduler::MeshInfo;
using scheduler::Page;
using scheduler::WorkerInfo;

constexpr char kVersion[] = "0.1.0";

v1::WorkerState StateOf(scheduler::WorkerState state) {
  switch (state) {
    case scheduler::WorkerState::kReady:
      return v1::WORKER_STATE_READY;
    case scheduler::WorkerState::kSuspect:
      return v1::WORKER_STATE_SUSPECT;
    case scheduler::WorkerState::kCordoned:
      return v1::WORKER_STATE_CORDONED;
    case scheduler::WorkerState::kDraining:
      return v1::WORKER_STATE_DRAINING;
    case scheduler::WorkerState::kLost:
      return v1::WORKER_STATE_LOST;
  }
  return v1::WORKER_STATE_UNSPECIFIED;
}

void FillMesh(const MeshInfo& info, v1::NamedMesh* out) {
  out->set_name(info.name);
  *out->mutable_mesh() = ToProto(info.mesh);
  out->mutable_devices()->Assign(info.devices.begin(), info.devices.end());
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
}

std::vector<Row> ClusterService::Rows() {
  return {Unary(Method::kClusterService_ListDevices, this, &ClusterService::ListDevices),
          Unary(Method::kClusterService_ListWorkers, this, &ClusterService::ListWorkers),
          Unary(Method::kClusterService_GetWorker, this, &ClusterService::GetWorker),
          Unary(Method::kClusterService_GetTopology, this, &ClusterService::GetTopology),
          Unary(Method::kClusterService_GetCapabilities, this, &ClusterService::GetCapabilities),
          Unary(Method::kClusterService_CreateMesh, this, &ClusterService::CreateMesh),
          Unary(Method::kClusterService_GetMesh, this, &ClusterService::GetMesh),
          Unary(Method::kClusterService_ListMeshes, this, &ClusterService::ListMeshes),
          Unary(Method::kClusterService_DeleteMesh, this, &ClusterService::DeleteMesh),
          Unary(Method::kClusterService_ListTopPrograms, this, &ClusterService::ListTopPrograms)};
}

void ClusterService::ListDevices(
    const CallRef<v1::ListDevicesRequest, v1::ListDevicesResponse>& call) {
  scheduler::ListDevices event{{0, call->caller()}};
  const std::string scope = absl::StrCat("devices|", call->caller().tenant);
  if (absl::Status s = ReadPage(scope, call->request(), &event.page); !s.ok())
    return call->Finish(s);
  coordinator_->Ask<Page<api::Device>>(
      std::move(event), Then<Page<api::Device>>(call, [scope](const Page<api::Device>& page,
                                                              v1::ListDevicesResponse* out) {
        for (const api::Device& d : page.items) *out->add_devices() = ToProto(d);
        if (page.more)
          out->set_next_page_token(PageToken(scope, absl::StrCat(page.items.back().id)));
      }));
}

void ClusterService::ListWorkers(
    const CallRef<v1::ListWorkersRequest, v1::ListWorkersResponse>& call) {
  scheduler::ListWorkers event{{0, call->caller()}, {}};
  const std::string scope = absl::StrCat("workers|", call->caller().tenant);
  if (absl::Status s = ReadPage(scope, call->request(), &event.page); !s.ok())
    return call->Finish(s);
  coordinator_->Ask<Page<WorkerInfo>>(
      std::move(event), Then<Page<WorkerInfo>>(call, [scope](const Page<WorkerInfo>& page,
                                                             v1::ListWorkersResponse* out) {
        for (const WorkerInfo& w : page.items) FillWorker(w, out->add_workers());
        if (page.more) out->set_next_page_token(PageToken(scope, page.items.back().name));
      }));
}

void ClusterService::GetWorker(const CallRef<v1::GetWorkerRequest, v1::Worker>& call) {
  coordinator_->Ask<WorkerInfo>(scheduler::GetWorker{{0, call->caller()}, call->request().worker()},
                                Then<WorkerInfo>(call, FillWorker));
}

void ClusterService::GetTopology(const CallRef<v1::GetTopologyRequest, v1::Topology>& call) {
  coordinator_->Ask<std::vector<ExecutorPlace>>(
      scheduler::GetTopology{{0, call->caller()}},
      Then<std::vector<ExecutorPlace>>(
          call, [](const std::vector<ExecutorPlace>& places, v1::Topology* out) {
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
          }));
}

void ClusterService::GetCapabilities(
    const CallRef<v1::GetCapabilitiesRequest, v1::GetCapabilitiesResponse>& call) {
  const Options& o = coordinator_->options();
  const scheduler::Config& c = coordinator_->config();
  v1::GetCapabilitiesResponse& out = call->response();
  out.set_version(kVersion);
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
  out.set_ticket_ms(absl::ToInt64Milliseconds(c.write_wait));
  out.set_collective_timeout_ms(o.collective_timeout_ms);
  out.set_programs_max(o.programs_max);
  out.set_programs_bytes_max(o.programs_bytes_max);
  out.set_compile_timeout_ms(absl::ToInt64Milliseconds(c.load_wait));
  out.set_session_grace_ms(absl::ToInt64Milliseconds(c.session_grace));
  for (const std::string& feature : features_) out.add_features(feature);
  coordinator_->Ask<std::vector<ExecutorPlace>>(
      scheduler::GetTopology{{0, call->caller()}},
      Then<std::vector<ExecutorPlace>>(
          call, [](const std::vector<ExecutorPlace>& places, v1::GetCapabilitiesResponse* to) {
            const bool files = std::any_of(places.begin(), places.end(), [](const auto& place) {
              return place.healthy && place.files;
            });
            if (files) to->add_features("files");
          }));
}

void ClusterService::CreateMesh(const CallRef<v1::CreateMeshRequest, v1::NamedMesh>& call) {
  const v1::CreateMeshRequest& q = call->request();
  absl::StatusOr<ir::Mesh> mesh = ir::serial::FromProto(q.mesh().mesh(), coordinator_->limits());
  if (!mesh.ok()) return call->Finish(Annotate(mesh.status(), "mesh"));
  if (q.mesh().devices_size() > coordinator_->limits().mesh_devices)
    return call->Finish(MakeError(ErrorKind::kValueError,
                                  absl::StrCat("mesh: ", q.mesh().devices_size(),
                                               " devices, at most max_mesh_devices are accepted")));
  coordinator_->Ask<MeshInfo>(
      scheduler::CreateMesh{{0, call->caller()},
                            q.mesh().name(),
                            *std::move(mesh),
                            {q.mesh().devices().begin(), q.mesh().devices().end()},
                            q.validate_only()},
      Then<MeshInfo>(call, FillMesh));
}

void ClusterService::GetMesh(const CallRef<v1::GetMeshRequest, v1::NamedMesh>& call) {
  coordinator_->Ask<MeshInfo>(scheduler::GetMesh{{0, call->caller()}, call->request().name()},
                              Then<MeshInfo>(call, FillMesh));
}

void ClusterService::ListMeshes(
    const CallRef<v1::ListMeshesRequest, v1::ListMeshesResponse>& call) {
  scheduler::ListMeshes event{{0, call->caller()}, {}};
  const std::string scope = absl::StrCat("meshes|", call->caller().tenant);
  if (absl::Status s = ReadPage(scope, call->request(), &event.page); !s.ok())
    return call->Finish(s);
  coordinator_->Ask<Page<MeshInfo>>(
      std::move(event),
      Then<Page<MeshInfo>>(call, [scope](const Page<MeshInfo>& page, v1::ListMeshesResponse* out) {
        for (const MeshInfo& m : page.items) FillMesh(m, out->add_meshes());
        if (page.more) out->set_next_page_token(PageToken(scope, page.items.back().name));
      }));
}

void ClusterService::DeleteMesh(
    const CallRef<v1::DeleteMeshRequest, v1::DeleteMeshResponse>& call) {
  coordinator_->Ask<std::monostate>(
      scheduler::DeleteMesh{{0, call->caller()}, call->request().name()},
      Then<std::monostate>(call, [](const std::monostate&, v1::DeleteMeshResponse*) {}));
}

namespace {

v1::TopProgram ToProto(const core::ProgramUse& use) {
  v1::TopProgram out;
  out.set_name(use.program.empty() ? "other" : use.program);
  out.set_runs(use.steps + use.failures);
  out.set_step_seconds_p50(absl::ToDoubleSeconds(use.step_p50));
  out.set_step_seconds_p99(absl::ToDoubleSeconds(use.step_p99));
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

void ClusterService::ListTopPrograms(
    const CallRef<v1::ListTopProgramsRequest, v1::ListTopProgramsResponse>& call) {
  if (absl::Status s = CheckPageSize(call->request().page_size()); !s.ok()) return call->Finish(s);
  const int size = call->request().page_size();
  if (top_programs_)
    for (const core::ProgramUse& use : top_programs_(call->caller())) {
      if (size > 0 && call->response().programs_size() >= size) break;
      *call->response().add_programs() = ToProto(use);
    }
  call->Finish(absl::OkStatus());
}

}  // namespace tessera::server::rpc
