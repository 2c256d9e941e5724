// Calls the coordinator's methods by name, with requests and responses as JSON. The JSON follows
// protobuf's mapping: an int64 is a string, and field names are lowerCamelCase.
//
// Thread-safe. Every call has a deadline.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/session.h"
#include "ir/program.h"

namespace tessera::remote {

// Returns the program as JSON, for a field of a request, with the call sites of its ops.
std::string JsonOf(const ir::Program& program);

class JsonClient {
 public:
  // Returns a client, which connects at its first call. Fails as CredentialsFor does.
  static absl::StatusOr<std::unique_ptr<JsonClient>> Make(const std::string& address,
                                                          const ConnectOptions& options);
  ~JsonClient();

  // Calls a unary method of tessera.v1 or of grpc.health.v1, such as "ClusterService/ListDevices"
  // or "grpc.health.v1.Health/Check". `give_up` is called about ten times a second; once it returns
  // true, the call fails with CANCELLED.
  absl::StatusOr<std::string> Call(
      const std::string& method, const std::string& request, absl::Duration timeout,
      const std::function<bool()>& give_up = [] { return false; }) const;

 private:
  struct Channel;
  JsonClient(std::string address, const ConnectOptions& options, std::unique_ptr<Channel> channel);

  const std::string address_, token_;
  const bool tls_;
  const std::unique_ptr<Channel> channel_;
};

}  // namespace tessera::remote
