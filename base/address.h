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

// What stands before the port of "host", "host:port", "[v6]" and "[v6]:port", brackets included; a
// version 6 address without brackets has no port. Empty when the text is none of these.
absl::string_view WithoutPort(absl::string_view address);
// A host with the brackets that version 6 needs before a port, and without them.
std::string WithBrackets(absl::string_view host);
absl::string_view WithoutBrackets(absl::string_view host);

// Whether the address can be reached from this machine only: one of 127.0.0.0/8, ::1, localhost, or
// a Unix socket. Names are not looked up: any but localhost may be anywhere.
bool IsLoopback(absl::string_view address);

}  // namespace tessera
