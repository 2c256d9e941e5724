// Network addresses as text: "host", "host:port", "[::1]:8470", "unix:/path". Pure functions.
#pragma once
#include "absl/strings/string_view.h"

namespace tessera {

// Whether the address can be reached from this machine only: one of 127.0.0.0/8, ::1, localhost, or
// a Unix socket. Names are not looked up: any but localhost may be anywhere.
bool IsLoopback(absl::string_view address);

}  // namespace tessera
