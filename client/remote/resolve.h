// Looks up the host name of an address before gRPC does. gRPC would retry a name that does not
// exist until the caller's timeout.
//
// Thread-safe.
#pragma once
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tessera::remote {

// Returns OK if the host name of `address` is known, or if `address` has none: "127.0.0.1:8470",
// "unix:/path". Returns UNREACHABLE with the resolver's message if the name is not known, or if the
// resolver has no answer within `timeout`. Calls `keep_waiting` about every 100 ms meanwhile; if it
// returns false, returns CANCELLED.
absl::Status ResolveHost(const std::string& address, absl::Duration timeout,
                         const std::function<bool()>& keep_waiting);

}  // namespace tessera::remote
