// ClusterService: workers, devices, named meshes, limits.
#pragma once
#include <string>
#include <vector>

#include "server/coordinator.h"
#include "server/rpc/call.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera::server::rpc {

// Also AdminService's answer.
void FillWorker(const scheduler::WorkerInfo& info, v1::Worker* out);

// The most device time first, at most `count` (0: all); "other" for the rest.
// Those that the caller sees, the busiest first; of "" are the others together.
using TopProgramsFn = std::function<std::vector<core::ProgramUse>(const core::Caller& caller)>;

// Thread-safe; the coordinator outlives it.
class ClusterService {
 public:
  // `features`: what GetCapabilities says is on.
  ClusterService(Coordinator* coordinator, std::vector<std::string> features,
                 TopProgramsFn top_programs)
      : coordinator_(coordinator),
        features_(std::move(features)),
        top_programs_(std::move(top_programs)) {}
  std::vector<Row> Rows();
  // Before the first call.
  void AddFeature(std::string feature) { features_.push_back(std::move(feature)); }

 private:
  template <class Q, class R>
  using CallRef = std::shared_ptr<Call<Q, R>>;
  void ListDevices(const CallRef<v1::ListDevicesRequest, v1::ListDevicesResponse>& call);
  void ListWorkers(const CallRef<v1::ListWorkersRequest, v1::ListWorkersResponse>& call);
  void GetWorker(const CallRef<v1::GetWorkerRequest, v1::Worker>& call);
  void GetTopology(const CallRef<v1::GetTopologyRequest, v1::Topology>& call);
  void GetCapabilities(
      const CallRef<v1::GetCapabilitiesRequest, v1::GetCapabilitiesResponse>& call);
  void CreateMesh(const CallRef<v1::CreateMeshRequest, v1::NamedMesh>& call);
  void GetMesh(const CallRef<v1::GetMeshRequest, v1::NamedMesh>& call);
  void ListMeshes(const CallRef<v1::ListMeshesRequest, v1::ListMeshesResponse>& call);
  void DeleteMesh(const CallRef<v1::DeleteMeshRequest, v1::DeleteMeshResponse>& call);
  void ListTopPrograms(
      const CallRef<v1::ListTopProgramsRequest, v1::ListTopProgramsResponse>& call);

  Coordinator* const coordinator_;
  std::vector<std::string> features_;
  const TopProgramsFn top_programs_;
};

}  // namespace tessera::server::rpc
