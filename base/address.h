// Reads network addresses that are given as text: "host", "host:port", "[::1]:8470", "unix:/path".
// Stateless; thread-safe.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

struct HostPort {
  std::string host;  // without the brackets of IPv6
  std::string port;  // a number from 1 to 65535, in decimal
};
// Parses "HOST:PORT" or "[::1]:8470", with or without the prefix "dns:///". The message of a
// VALUE_ERROR says what is wrong with the address.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// Checks that the address has a form to which a client can connect: one that ParseHostPort accepts,
// or "unix:/path". Call it before the address is passed to gRPC, which reads a port modulo 65536
// (74006 as 8470) and uses port 443 if the port is missing.
absl::Status CheckAddress(absl::string_view address);

// Returns the host of "host", "host:port", "[v6]" or "[v6]:port", with the brackets if there are
// any. An IPv6 address without brackets is returned whole: it cannot have a port. Returns an empty
// string if the text has none of these forms.
absl::string_view WithoutPort(absl::string_view address);
// WithBrackets adds the brackets that an IPv6 address needs before a port; WithoutBrackets removes
// them. Both return other hosts unchanged.
std::string WithBrackets(absl::string_view host);
absl::string_view WithoutBrackets(absl::string_view host);

// Returns whether only this machine can reach the address: 127.0.0.0/8, ::1, localhost, or a Unix
// socket. Names are not resolved; every name other than localhost counts as remote.
bool IsLoopback(absl::string_view address);

}  // namespace tessera
