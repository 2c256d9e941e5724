// Carries statuses over gRPC. Servers convert their results with ToGrpc, clients and workers
// convert back, so that reason and details survive.
#include "ir/serial/grpc_status.h"

#include "absl/strings/str_cat.h"
#include "ir/serial/status.h"

namespace tessera::ir::serial {
namespace {

// A longer message would not fit into HTTP/2 trailers.
constexpr size_t kMessageMax = 3000;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details = ToProto(status);
  if (details.message().size() > kMessageMax)
    details.set_message(absl::StrCat(details.message().substr(0, kMessageMax), " ..."));
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (std::optional<absl::Status> details = DetailsOf(status)) return *std::move(details);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::optional<absl::Status> DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details()) ||
      details.code() == 0)
    return std::nullopt;
  return FromProto(details);
}

}  // namespace tessera::ir::serial
