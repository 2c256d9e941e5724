// ArrayService: arrays made, described, relayed when small, deleted.
#pragma once
#include <vector>

#include "server/coordinator.h"
#include "server/rpc/call.h"
#include "tessera/v1/array.pb.h"

namespace tessera::server::rpc {

// Thread-safe; the coordinator outlives it.
class ArrayService {
 public:
  explicit ArrayService(Coordinator* coordinator) : coordinator_(coordinator) {}
  std::vector<Row> Rows();

 private:
  template <class Q, class R>
  using CallRef = std::shared_ptr<Call<Q, R>>;
  void CreateArray(const CallRef<v1::CreateArrayRequest, v1::CreateArrayResponse>& call);
  void GetArray(const CallRef<v1::GetArrayRequest, v1::Array>& call);
  void ListArrays(const CallRef<v1::ListArraysRequest, v1::ListArraysResponse>& call);
  void CreateWriteTickets(
      const CallRef<v1::CreateWriteTicketsRequest, v1::CreateWriteTicketsResponse>& call);
  void CreateReadTickets(
      const CallRef<v1::CreateReadTicketsRequest, v1::CreateReadTicketsResponse>& call);
  void ReadArray(const CallRef<v1::ReadArrayRequest, v1::ReadArrayResponse>& call);
  void WriteArray(const CallRef<v1::WriteArrayRequest, v1::WriteArrayResponse>& call);
  void SaveArrays(const CallRef<v1::SaveArraysRequest, v1::Operation>& call);
  void GetFile(const CallRef<v1::GetFileRequest, v1::File>& call);
  void ReshardArray(const CallRef<v1::ReshardArrayRequest, v1::ReshardArrayResponse>& call);
  void LoadArrays(const CallRef<v1::LoadArraysRequest, v1::LoadArraysResponse>& call);
  void DeleteArrays(const CallRef<v1::DeleteArraysRequest, v1::DeleteArraysResponse>& call);

  Coordinator* const coordinator_;
};

}  // namespace tessera::server::rpc
