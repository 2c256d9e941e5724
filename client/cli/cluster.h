// A cluster as commands speak with it: the coordinator's unary methods, by name and with JSON. For
// programs and bytes of arrays there is Context::service beside it.
//
// Connects when it is used; used on the main thread.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/json.h"
#include "client/remote/json_client.h"
#include "client/session.h"

namespace tessera::cli {

class Cluster {
 public:
  Cluster(std::string address, ConnectOptions options)
      : address_(std::move(address)), options_(std::move(options)) {}

  const std::string& address() const { return address_; }
  const ConnectOptions& options() const { return options_; }

  // "ClusterService/ListDevices", "grpc.health.v1.Health/Check". Takes at most `limit`, and ends
  // with CANCELLED once `give_up` is true. An address that cannot be one exits with kExitUsage.
  absl::StatusOr<Json> Call(
      const std::string& method, const Json& request, absl::Duration limit,
      const std::function<bool()>& give_up = [] { return false; });

 private:
  const std::string address_;
  const ConnectOptions options_;
  std::unique_ptr<remote::JsonClient> client_;  // null until the first call
};

// For one call that changes something, in its field requestId.
std::string RequestId();

}  // namespace tessera::cli
