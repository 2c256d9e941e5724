// The keepalive settings of both ends of a gRPC connection, as names and values of channel
// arguments. The settings of client and server are in one file because they must fit: a server
// disconnects clients that ping too often.
//
// Stateless; thread-safe. The callers pass the arguments to gRPC, because base does not depend on
// gRPC.
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
  absl::Duration time = absl::Seconds(20);     // time without data after which a ping is sent
  absl::Duration timeout = absl::Seconds(10);  // time limit for the reply to a ping
};
Keepalive KeepaliveFrom(const Options& options);

// The shortest interval between pings that our clients use and our servers accept.
inline constexpr absl::Duration kKeepaliveTimeMin = absl::Seconds(1);

// Returns arguments with which a client pings while calls are open. With `without_calls` the client
// pings also while no call is open; use that for connections whose failure must be noticed early.
std::vector<ChannelArgument> ClientArguments(const Keepalive& keepalive,
                                             bool without_calls = false);
// Returns arguments with which a server pings its clients, and accepts pings as frequent as our
// clients send them.
std::vector<ChannelArgument> ServerArguments(const Keepalive& keepalive);

}  // namespace tessera
