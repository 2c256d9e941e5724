// The network checks of `doctor` that need no gRPC: a TCP connection and an HTTP GET.
//
// The functions block, at most for the timeout; resolving a name may take longer. Thread-safe.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/address.h"

namespace tessera::cli {

// Connects, and closes the connection. Fails with UNAVAILABLE and the system's message.
absl::Status TryConnect(const HostPort& target, absl::Duration timeout);

struct HttpResponse {
  int code = 0;
  std::string body;
};
// Gets "http://HOST:PORT/PATH" by HTTP/1.0. Reads at most 64 KiB of the response.
absl::StatusOr<HttpResponse> HttpGet(const std::string& url, absl::Duration timeout);

}  // namespace tessera::cli
