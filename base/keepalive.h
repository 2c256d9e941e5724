// The keepalive settings of both ends of a gRPC connection, as names and values of channel
// arguments. Client and server are together, since a server disconnects clients that ping too
// often.
//
// Stateless; thread-safe. The gRPC code applies them: base does not depend on gRPC.
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
  absl::Duration time = absl::Seconds(20);     // without data, after which a ping is sent
  absl::Duration timeout = absl::Seconds(10);  // for the reply to a ping
};
Keepalive KeepaliveFrom(const Options& options);

// The shortest interval between pings that our clients use and our servers accept.
inline constexpr absl::Duration kKeepaliveTimeMin = absl::Seconds(1);

// Pings while calls are open, or always if `without_calls`: for connections that must fail early.
std::vector<ChannelArgument> ClientArguments(const Keepalive& keepalive,
                                             bool without_calls = false);
std::vector<ChannelArgument> ServerArguments(const Keepalive& keepalive);

}  // namespace tessera
