// The network checks of `doctor` that need no gRPC: a TCP connection and an HTTP GET.
//
// Blocking, at most for the timeout; thread-safe.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/address.h"

namespace tessera::cli {

// Connects and closes the connection. UNAVAILABLE with the system's message.
absl::Status TryConnect(const HostPort& target, absl::Duration timeout);

struct HttpResponse {
  int code = 0;
  std::string body;
};
// GET "http://HOST:PORT/PATH" by HTTP/1.0. Reads at most 64 KiB of the body.
absl::StatusOr<HttpResponse> HttpGet(const std::string& url, absl::Duration timeout);

}  // namespace tessera::cli
