// Listening sockets of a worker.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tessera::worker {

struct Listener {
  UniqueFd fd;
  UniqueFd claim;  // claim on a reserved port; released when this process ends
  std::string host;
  int port = 0;
  std::string endpoint() const;
  // The endpoint that others are told. `advertised` is empty, a host, or host:port; a missing part
  // is filled in from this listener.
  std::string AdvertisedEndpoint(const std::string& advertised) const;
  // Returns whether it listens on every address of the machine.
  bool listens_everywhere() const;
};

// Returns "host:port" with `more` added to the port, unless the port is 0. Other text is returned
// unchanged.
std::string AddToPort(const std::string& address, int more);

// Binds "host:port" and listens; port 0 stands for any free port. Returns VALUE_ERROR if the
// address is wrong, and ALREADY_EXISTS if the port is taken.
absl::StatusOr<Listener> Listen(const std::string& address);
// Binds without listening: keeps the port for a process of the same user that listens on it with
// SO_REUSEPORT. Returns ALREADY_EXISTS also if another process has reserved the port and nobody
// listens on it yet.
absl::StatusOr<Listener> Reserve(const std::string& address);

}  // namespace tessera::worker
