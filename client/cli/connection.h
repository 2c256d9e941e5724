// Calls the coordinator's unary methods by name, with requests and responses as JSON. Programs and
// array bytes go through Context::Connect instead.
//
// Connects at the first call. Used on the main thread.
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

class Connection {
 public:
  Connection(std::string address, ConnectOptions options)
      : address_(std::move(address)), options_(std::move(options)) {}

  const std::string& address() const { return address_; }
  const ConnectOptions& options() const { return options_; }

  // Calls a method, such as "ClusterService/ListDevices" or "grpc.health.v1.Health/Check". Takes at
  // most `timeout`. Fails with CANCELLED once `give_up` returns true. The error for an invalid
  // address carries the exit code kExitUsage.
  absl::StatusOr<Json> Call(
      const std::string& method, const Json& request, absl::Duration timeout,
      const std::function<bool()>& give_up = [] { return false; });

 private:
  const std::string address_;
  const ConnectOptions options_;
  std::unique_ptr<remote::JsonClient> client_;  // null until the first call
};

// Returns a unique value for the field requestId of a call that changes something.
std::string NewRequestId();

}  // namespace tessera::cli
