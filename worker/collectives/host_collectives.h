// The collectives that run on the host, for the interface in collectives.h. Blocks pass between the
// devices of one executor through its memory, and between executors over TCP.
#pragma once
#include <memory>

#include "worker/collectives/collectives.h"

namespace tessera::worker {

// Makes the collectives of one executor. `listen_fd` is one of three: a bound, listening TCP
// socket, which must serve only one Collectives at a time; a descriptor from PeerPort::Open, by
// which several generations share one socket; or -1 if every rank is local. It is borrowed, must
// outlive the result, and is made non-blocking. Connections are made in the background, and a call
// waits for the connections that it needs. If the configuration is invalid, every call returns the
// error.
std::unique_ptr<Collectives> MakeCollectives(CommunicatorConfig config, int listen_fd);

}  // namespace tessera::worker
