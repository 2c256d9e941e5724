// Listening sockets.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tessera::worker {

struct Listener {
  UniqueFd fd;
  UniqueFd claim;  // of a reserved port: released when this process ends
  std::string host;
  int port = 0;
  std::string endpoint() const;
  // `advertised` is empty, a host, or host:port.
  std::string AdvertisedAs(const std::string& advertised) const;
  // Whether it listens on every address of the machine.
  bool everywhere() const;
};

// "host:port" with `more` added to a port that is not 0; other text as it is.
std::string PortPlus(const std::string& address, int more);

// Binds "host:port", port 0 for any; listens. VALUE_ERROR says what is wrong with the address,
// ALREADY_EXISTS that the port is taken.
absl::StatusOr<Listener> Listen(const std::string& address);
// Binds and does not listen: keeps the port for a process that listens on it with SO_REUSEPORT, as
// the same user. ALREADY_EXISTS also while nobody listens yet on what another has reserved.
absl::StatusOr<Listener> Reserve(const std::string& address);

}  // namespace tessera::worker
