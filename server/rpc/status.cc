#include "server/rpc/status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "ir/serial/status.h"

namespace tessera::server::rpc {
namespace {

constexpr size_t kMessageMax = 3000;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details = ir::serial::ToProto(status);
  if (details.message().size() > kMessageMax)
    details.set_message(absl::StrCat(details.message().substr(0, kMessageMax), " ..."));
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.SerializeAsString());
}

}  // namespace tessera::server::rpc
