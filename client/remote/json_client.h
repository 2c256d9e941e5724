// The coordinator's methods called by name, with JSON for requests and responses: protobuf's own
// mapping, so int64 is a text and names are in lowerCamelCase.
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

// A program as a field of requests, with the source lines of its ops.
std::string JsonOf(const ir::Program& program);

class JsonClient {
 public:
  // Connects at the first call. VALUE_ERROR for an address and TLS_MISMATCH for options that cannot
  // work, as CredentialsFor.
  static absl::StatusOr<std::unique_ptr<JsonClient>> Make(const std::string& address,
                                                          const ConnectOptions& options);
  ~JsonClient();

  // `method` is a unary one of tessera.v1 or of grpc.health.v1: "ClusterService/ListDevices",
  // "grpc.health.v1.Health/Check". Ends early, with CANCELLED, once `give_up` returns true; it is
  // called about ten times a second.
  absl::StatusOr<std::string> Call(
      const std::string& method, const std::string& request, absl::Duration limit,
      const std::function<bool()>& give_up = [] { return false; }) const;

 private:
  struct Channel;
  JsonClient(std::string address, const ConnectOptions& options, std::unique_ptr<Channel> channel);

  const std::string address_, token_;
  const bool tls_;
  const std::unique_ptr<Channel> channel_;
};

}  // namespace tessera::remote
