// Calls any method with any bytes over one connection. It serves to fuzz a whole server without its
// protos. Thread-compatible.
#pragma once
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tessera::server::rpc {

class RawCaller {
 public:
  explicit RawCaller(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}
  // Writes one message, half-closes the stream, and discards the responses. Only the code of the
  // returned status is meaningful.
  absl::Status Call(const std::string& method, absl::string_view bytes, absl::Duration bound);

 private:
  grpc::GenericStub stub_;
};

// Returns the name of every row of methods.def, such as "tessera.v1.ArrayService/GetArray".
std::vector<std::string> AllMethods();

}  // namespace tessera::server::rpc
