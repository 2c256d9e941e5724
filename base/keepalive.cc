// Makes the keepalive arguments of gRPC channels and servers from the options. Clients, workers and
// the coordinator pass them to gRPC when they connect or listen.
#include "base/keepalive.h"

#include <algorithm>

namespace tessera {
namespace {

// The names come from grpc/impl/codegen/grpc_types.h.
constexpr char kTime[] = "grpc.keepalive_time_ms";
constexpr char kTimeout[] = "grpc.keepalive_timeout_ms";
constexpr char kWithoutCalls[] = "grpc.keepalive_permit_without_calls";
constexpr char kPingsWithoutData[] = "grpc.http2.max_pings_without_data";
constexpr char kReceiveInterval[] = "grpc.http2.min_ping_interval_without_data_ms";

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

}  // namespace

Keepalive KeepaliveFrom(const Options& options) {
  return {absl::Milliseconds(options.keepalive_ms),
          absl::Milliseconds(options.keepalive_timeout_ms)};
}

std::vector<ChannelArgument> ClientArguments(const Keepalive& keepalive, bool without_calls) {
  return {{kTime, Millis(std::max(keepalive.time, kKeepaliveTimeMin))},
          {kTimeout, Millis(keepalive.timeout)},
          {kWithoutCalls, without_calls ? 1 : 0},
          // A call may wait minutes for a result without data in either direction.
          {kPingsWithoutData, 0}};
}

std::vector<ChannelArgument> ServerArguments(const Keepalive& keepalive) {
  return {{kTime, Millis(keepalive.time)},
          {kTimeout, Millis(keepalive.timeout)},
          {kWithoutCalls, 1},
          {kPingsWithoutData, 0},
          // Half of the clients' minimum, because delays in the network can bring two pings closer
          // together.
          {kReceiveInterval, Millis(kKeepaliveTimeMin / 2)}};
}

}  // namespace tessera
