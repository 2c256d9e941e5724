// How both ends of a gRPC connection notice that the other is gone, as names and values of channel
// arguments: one place, since a server that thinks the client's pings too many hangs up on it.
//
// Pure; any thread.  The carriers set them: base knows no gRPC.
#pragma once
#include <vector>

#include "absl/time/time.h"
#include "base/options.h"

namespace tessera {

struct ChannelArgument {
  const char* name;
  int value;
};

struct Keepalive {
  absl::Duration time = absl::Seconds(20);     // of silence, after which the other is asked
  absl::Duration timeout = absl::Seconds(10);  // for the answer
};
Keepalive KeepaliveFrom(const Options& options);

// What no client of ours goes below, and no server of ours takes for abuse.
inline constexpr absl::Duration kKeepaliveTimeMin = absl::Seconds(1);

// Pings as long as calls are open, or always when `without_calls`: for links that must learn early.
std::vector<ChannelArgument> ClientArguments(const Keepalive& keepalive,
                                             bool without_calls = false);
std::vector<ChannelArgument> ServerArguments(const Keepalive& keepalive);

}  // namespace tessera
