// What `doctor` asks of the network without gRPC: whether a port takes connections, and a page by
// HTTP.
//
// Blocking, within the bound; any thread.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/address.h"

namespace tessera::cli {

// Whether the port takes connections. UNAVAILABLE with the message of the system.
absl::Status TryConnect(const HostPort& target, absl::Duration limit);

struct HttpAnswer {
  int code = 0;
  std::string body;
};
// "http://HOST:PORT/PATH" by HTTP/1.0. At most 64 KiB of body are read.
absl::StatusOr<HttpAnswer> HttpGet(const std::string& url, absl::Duration limit);

}  // namespace tessera::cli
