// Network addresses as text: "host", "host:port", "[::1]:8470", "unix:/path". Pure functions.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

struct HostPort {
  std::string host;  // without the brackets of version 6
  std::string port;  // 1 to 65535
};
// Of "HOST:PORT" and "[::1]:8470", also behind "dns:///". VALUE_ERROR says what is missing or too
// much.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// Whether a server can be called by it: HOST:PORT as ParseHostPort reads it, or "unix:/path".
// Whoever calls checks first: gRPC takes port 74006 for 8470, and a host alone for its port 443.
absl::Status CheckAddress(absl::string_view address);

// Whether the address can be reached from this machine only: one of 127.0.0.0/8, ::1, localhost, or
// a Unix socket. Names are not looked up: any but localhost may be anywhere.
bool IsLoopback(absl::string_view address);

}  // namespace tessera
