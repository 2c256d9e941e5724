// The handlers of ArrayService. Large arrays are read and written at the executors with tickets;
// the methods here only hand out the tickets. ReadArray and WriteArray relay small arrays through
// the coordinator.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/api/placement.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "server/rpc/handlers.h"
#include "server/rpc/json.h"
#include "server/rpc/paging.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::FromProto;
using ir::serial::ToProto;
using scheduler::ArrayInfo;
using scheduler::PendingArrays;

void FillTickets(const std::vector<ShardTicket>& tickets,
                 google::protobuf::RepeatedPtrField<v1::ShardTicket>* out) {
  for (const ShardTicket& t : tickets) {
    v1::ShardTicket* ticket = out->Add();
    ticket->set_ordinal(t.ordinal);
    ticket->set_endpoint(t.endpoint);
    ticket->set_ticket(t.ticket);
  }
}

void FillArray(const ArrayInfo& info, v1::Array* out) {
  out->set_id(info.array);
  *out->mutable_spec() = ToProto(*info.spec);
  out->set_state(NameOf(info.state));
  out->set_name(
      absl::StrCat("tenants/", info.tenant, "/sessions/", info.session, "/arrays/", info.array));
  out->set_session(info.session);
  const ir::Dims local = api::LocalShape(info.spec->placement, info.spec->shape);
  out->set_bytes(ir::MakeType(info.spec->dtype, local).num_bytes() *
                 static_cast<int64_t>(info.num_held));
}

// Returns the value in a WriteArray request. Returns an error if its size is not that of `spec`, or
// is more than `bytes_max`.
absl::StatusOr<ir::Array> ValueOf(const v1::WriteArrayRequest& request, const api::ArraySpec& spec,
                                  int64_t bytes_max) {
  const int64_t bytes = ir::MakeType(spec.dtype, spec.shape).num_bytes();
  if (bytes > bytes_max)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("array: it has ", bytes, " bytes, at most ", bytes_max,
                                  " are relayed (relay_bytes_max); write it by tickets"));
  switch (request.value_case()) {
    case v1::WriteArrayRequest::kJson:
      return ArrayFromJson(request.json(), spec.dtype, spec.shape);
    case v1::WriteArrayRequest::kData: {
      if (static_cast<int64_t>(request.data().size()) != bytes)
        return MakeError(ErrorKind::kValueError,
                         absl::StrCat("array: ", request.data().size(), " bytes were sent for ",
                                      ir::MakeType(spec.dtype, spec.shape).ToString(),
                                      ", which has ", bytes, " bytes"));
      ir::Array value(spec.dtype, spec.shape);
      if (bytes > 0) std::memcpy(value.MutableData(), request.data().data(), request.data().size());
      return value;
    }
    case v1::WriteArrayRequest::VALUE_NOT_SET:
      break;
  }
  return MakeError(ErrorKind::kValueError, "array: there is no value; set `data` or `json`");
}

}  // namespace

void CreateArray(const CallRef<v1::CreateArrayRequest, v1::CreateArrayResponse>& call) {
  const v1::CreateArrayRequest& q = call->request();
  absl::StatusOr<api::ArraySpec> spec = FromProto(q.spec(), call->coordinator()->limits());
  if (!spec.ok()) return call->Finish(spec.status());
  call->coordinator()->CreateArrayAsync(
      call->identity(), q.session(), *std::move(spec), q.validate_only(),
      AnswerWith<TicketedArray>(call, [](const TicketedArray& a, auto* out) {
        out->set_array(a.array);
        FillTickets(a.tickets, out->mutable_tickets());
      }));
}

void GetArray(const CallRef<v1::GetArrayRequest, v1::Array>& call) {
  Answer<ArrayInfo>(call, scheduler::DescribeArray{{0, call->caller()}, call->request().array()},
                    FillArray);
}

void ListArrays(const CallRef<v1::ListArraysRequest, v1::ListArraysResponse>& call) {
  const uint64_t session = call->request().session();
  AnswerPage<ArrayInfo>(
      call, scheduler::ListArrays{{0, call->caller()}, session, {}}, absl::StrCat(session),
      [](const ArrayInfo& info, auto* out) { FillArray(info, out->add_arrays()); },
      [](const ArrayInfo& info) { return info.array; });
}

void CreateWriteTickets(
    const CallRef<v1::CreateWriteTicketsRequest, v1::CreateWriteTicketsResponse>& call) {
  const v1::CreateWriteTicketsRequest& q = call->request();
  call->coordinator()->WriteTicketsAsync(
      call->caller(), q.array(), {q.ordinals().begin(), q.ordinals().end()},
      AnswerWith<TicketedArray>(call, [](const TicketedArray& a, auto* out) {
        FillTickets(a.tickets, out->mutable_tickets());
      }));
}

void CreateReadTickets(
    const CallRef<v1::CreateReadTicketsRequest, v1::CreateReadTicketsResponse>& call) {
  const v1::CreateReadTicketsRequest& q = call->request();
  call->coordinator()->ReadTicketsAsync(
      call->caller(), q.array(), {q.ordinals().begin(), q.ordinals().end()},
      call->WaitTime(q.has_timeout(), q.timeout()),
      AnswerWith<TicketedArray>(call, [](const TicketedArray& a, auto* out) {
        *out->mutable_spec() = ToProto(a.spec);
        FillTickets(a.tickets, out->mutable_tickets());
      }));
}

void ReadArray(const CallRef<v1::ReadArrayRequest, v1::ReadArrayResponse>& call) {
  const v1::ReadArrayRequest& q = call->request();
  call->coordinator()->GetAsync(
      call->caller(), q.array(), call->WaitTime(q.has_timeout(), q.timeout()),
      call->coordinator()->options().relay_bytes_max, [call](absl::StatusOr<ir::Array> value) {
        if (!value.ok()) return call->Finish(value.status());
        v1::ReadArrayResponse& out = call->response();
        out.set_type(ir::MakeType(value->dtype(), value->shape()).ToString());
        if (!call->request().json()) {
          *out.mutable_literal() = ToProto(*value);
          return call->Finish(absl::OkStatus());
        }
        absl::StatusOr<google::protobuf::Value> json = JsonFromArray(*value);
        if (json.ok()) *out.mutable_json() = *std::move(json);
        call->Finish(json.status());
      });
}

void WriteArray(const CallRef<v1::WriteArrayRequest, v1::WriteArrayResponse>& call) {
  const v1::WriteArrayRequest& q = call->request();
  absl::StatusOr<api::ArraySpec> spec = FromProto(q.spec(), call->coordinator()->limits());
  if (!spec.ok()) return call->Finish(spec.status());
  const absl::StatusOr<ir::Array> value =
      ValueOf(q, *spec, call->coordinator()->options().relay_bytes_max);
  if (!value.ok()) return call->Finish(value.status());
  call->coordinator()->PutAsync(
      call->identity(), q.session(), *value, spec->placement, absl::InfiniteDuration(),
      AnswerWith<uint64_t>(call, [](uint64_t array, auto* out) { out->set_array(array); }));
}

void SaveArrays(const CallRef<v1::SaveArraysRequest, v1::Operation>& call) {
  const v1::SaveArraysRequest& q = call->request();
  scheduler::SaveArrays event{call->identity(), {}, q.path(), q.overwrite()};
  for (const v1::NamedArray& a : q.arrays()) event.arrays.push_back({a.name(), a.array()});
  Answer<api::Operation>(
      call, std::move(event),
      [](const api::Operation& operation, v1::Operation* out) { *out = ToProto(operation); });
}

void LoadArrays(const CallRef<v1::LoadArraysRequest, v1::LoadArraysResponse>& call) {
  const v1::LoadArraysRequest& q = call->request();
  scheduler::LoadArrays event{call->identity(), q.session(), q.path(), {}};
  for (const v1::LoadArray& a : q.arrays()) {
    absl::StatusOr<api::Placement> placement =
        FromProto(a.placement(), call->coordinator()->limits());
    if (!placement.ok()) return call->Finish(placement.status());
    event.arrays.push_back({a.name(), *std::move(placement)});
  }
  Answer<PendingArrays>(call, std::move(event),
                        [](const PendingArrays& pending, v1::LoadArraysResponse* out) {
                          *out->mutable_operation() = ToProto(pending.operation);
                          for (const ArrayInfo& info : pending.arrays)
                            FillArray(info, out->add_arrays());
                        });
}

void GetFile(const CallRef<v1::GetFileRequest, v1::File>& call) {
  using Arrays = std::vector<api::FileArrayInfo>;
  Answer<Arrays>(call, scheduler::DescribeFile{{0, call->caller()}, call->request().path()},
                 [path = call->request().path()](const Arrays& arrays, v1::File* out) {
                   out->set_path(path);
                   for (const api::FileArrayInfo& a : arrays) {
                     v1::FileEntry* entry = out->add_arrays();
                     entry->set_name(a.name);
                     entry->set_dtype(std::string(ir::DTypeName(a.dtype)));
                     entry->mutable_shape()->Assign(a.shape.begin(), a.shape.end());
                   }
                 });
}

void ReshardArray(const CallRef<v1::ReshardArrayRequest, v1::ReshardArrayResponse>& call) {
  const v1::ReshardArrayRequest& q = call->request();
  absl::StatusOr<api::Placement> placement =
      FromProto(q.placement(), call->coordinator()->limits());
  if (!placement.ok()) return call->Finish(placement.status());
  Answer<PendingArrays>(
      call,
      scheduler::ReshardArray{call->identity(), q.session(), q.array(), *std::move(placement)},
      [](const PendingArrays& pending, v1::ReshardArrayResponse* out) {
        *out->mutable_operation() = ToProto(pending.operation);
        for (const ArrayInfo& info : pending.arrays) FillArray(info, out->mutable_array());
      });
}

void DeleteArrays(const CallRef<v1::DeleteArraysRequest, v1::DeleteArraysResponse>& call) {
  const v1::DeleteArraysRequest& q = call->request();
  call->coordinator()->DeleteAsync(
      call->identity(), {q.arrays().begin(), q.arrays().end()},
      AnswerWith<scheduler::MissingArrays>(
          call, [](const scheduler::MissingArrays& missing, auto* out) {
            out->mutable_missing()->Add(missing.arrays.begin(), missing.arrays.end());
          }));
}

}  // namespace tessera::server::rpc
