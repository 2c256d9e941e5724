// Accepts the connections of a server, on a thread of its own.
//
// gRPC 1.51 stops listening when accept() finds no free file descriptor, and never listens again.
// Open connections then stay open, but no new client gets in until the process is started again. An
// Acceptor tries again instead, and connections wait in the kernel's backlog meanwhile.
//
// Thread-compatible. The destructor stops listening; it leaves accepted connections alone.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace tessera::server::rpc {

class Acceptor {
 public:
  // Called for each accepted connection, on the acceptor's thread. Takes ownership of `fd`, a
  // non-blocking socket.
  using ConnectionFn = std::function<void(int fd)>;

  // Binds every address of `host` and listens. Port 0 stands for any free port, the same one for
  // all addresses. A wildcard host (0.0.0.0 or [::]) stands for all IPv4 and IPv6 addresses of the
  // machine. A connection whose peer does not acknowledge bytes for `peer_timeout` is closed.
  // Returns UNAVAILABLE if no address can be bound.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(absl::string_view host, int port,
                                                          absl::Duration peer_timeout);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  ~Acceptor();

  int port() const { return port_; }
  // Begins to accept connections. Call once.
  void Start(ConnectionFn on_connection);

 private:
  Acceptor(std::vector<UniqueFd> listeners, int port, UniqueFd stop);
  void Run();

  const std::vector<UniqueFd> listeners_;
  const int port_;
  const UniqueFd stop_;  // eventfd that becomes readable when the thread must end
  ConnectionFn on_connection_;
  std::thread thread_;
};

}  // namespace tessera::server::rpc
