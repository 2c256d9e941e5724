// Calls the coordinator's methods by name, with requests and responses as JSON by protobuf's
// mapping: int64 is a string and field names are lowerCamelCase.
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

// A program as a field of requests, with the call sites of its ops.
std::string JsonOf(const ir::Program& program);

class JsonClient {
 public:
  // Connects at the first call. Errors are those of CredentialsFor.
  static absl::StatusOr<std::unique_ptr<JsonClient>> Make(const std::string& address,
                                                          const ConnectOptions& options);
  ~JsonClient();

  // `method` is a unary method of tessera.v1 or of grpc.health.v1: "ClusterService/ListDevices",
  // "grpc.health.v1.Health/Check". Fails with CANCELLED once `give_up`, which is called
  // about ten times a second, returns true.
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
