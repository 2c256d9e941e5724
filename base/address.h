// Network addresses as text: "host", "host:port", "[::1]:8470", "unix:/path". Stateless;
// thread-safe.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

struct HostPort {
  std::string host;  // without the brackets of IPv6
  std::string port;  // 1 to 65535
};
// Parses "HOST:PORT" and "[::1]:8470", also after "dns:///". VALUE_ERROR says what is wrong.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// Checks that a client can connect to the address: HOST:PORT for ParseHostPort, or "unix:/path".
// Callers check before gRPC does: it reads port 74006 as 8470, and a host alone as its port 443.
absl::Status CheckAddress(absl::string_view address);

// The host of "host", "host:port", "[v6]" and "[v6]:port", brackets included; an IPv6 address
// without brackets has no port. Empty if the text is none of these.
absl::string_view WithoutPort(absl::string_view address);
// Adds the brackets that IPv6 needs before a port, and removes them.
std::string WithBrackets(absl::string_view host);
absl::string_view WithoutBrackets(absl::string_view host);

// Whether only this machine can reach the address: 127.0.0.0/8, ::1, localhost, or a Unix socket.
// Names are not resolved; any other than localhost counts as remote.
bool IsLoopback(absl::string_view address);

}  // namespace tessera
