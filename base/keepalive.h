// The keepalive settings of both ends of a gRPC connection, as names and values of channel
// arguments. They stand in one place, since a server disconnects clients that ping too often.
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
  absl::Duration time = absl::Seconds(20);     // of silence, after which a ping is sent
  absl::Duration timeout = absl::Seconds(10);  // for the answer to a ping
};
Keepalive KeepaliveFrom(const Options& options);

// The shortest interval between pings that our clients use and our servers accept.
inline constexpr absl::Duration kKeepaliveTimeMin = absl::Seconds(1);

// Pings as long as calls are open, or always when `without_calls`: for links that must learn early.
std::vector<ChannelArgument> ClientArguments(const Keepalive& keepalive,
                                             bool without_calls = false);
std::vector<ChannelArgument> ServerArguments(const Keepalive& keepalive);

}  // namespace tessera
