// Binds the ports of a worker. The daemon listens on or reserves each port
// (worker/rpc/worker_daemon.cc) before it starts an executor, so that the addresses are known when
// the worker registers and outlive a process that dies.
#include "worker/daemon/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/status.h"

namespace tessera::worker {

std::string Listener::endpoint() const { return absl::StrCat(host, ":", port); }

std::string Listener::AdvertisedEndpoint(const std::string& advertised) const {
  if (advertised.empty()) return endpoint();
  return WithoutPort(advertised) == advertised ? absl::StrCat(advertised, ":", port) : advertised;
}

bool Listener::listens_everywhere() const { return host == "0.0.0.0" || host == "[::]"; }

std::string AddToPort(const std::string& address, int more) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const bool has_port = colon != std::string::npos && !absl::EndsWith(address, "]") &&
                        absl::SimpleAtoi(address.substr(colon + 1), &port) && port != 0;
  return has_port ? absl::StrCat(address.substr(0, colon + 1), port + more) : address;
}

namespace {

absl::Status PortTakenError(const std::string& address) {
  return MakeError(
      ErrorKind::kAlreadyExists,
      absl::StrCat("cannot listen on '", address,
                   "': the port is taken; give every worker of a machine its own ports"));
}

// Claims an address for this process, for as long as the result is open. The kernel lets two
// sockets with SO_REUSEADDR bind one port while neither listens, so binding alone is no claim. The
// claim is therefore a Unix socket with an abstract name that contains the address: in a network
// namespace only one socket can have that name. Returns a descriptor that is not open if another
// process has the name.
UniqueFd Claim(const std::string& address) {
  UniqueFd claim(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string text = absl::StrCat("tessera-reserved/", address);
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  // The first byte of an abstract name is zero.
  const size_t length = std::min(text.size(), sizeof(name.sun_path) - 1);
  std::memcpy(name.sun_path + 1, text.data(), length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (claim.ok() && bind(claim.get(), reinterpret_cast<sockaddr*>(&name), size) != 0)
    claim = UniqueFd();
  return claim;
}

// Binds the address, and listens on it unless the port is `shared` with the process that will
// listen. A shared port is claimed by a name first, because two sockets that do not listen may be
// bound to the same port. The reuse options are set in an order that lets a restarted worker have
// its port back, but no second worker.
absl::StatusOr<Listener> Bind(const std::string& address, bool shared) {
  const auto bad = [&](absl::string_view why) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("cannot listen on '", address, "': ", why));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return bad("expected host:port");
  const bool any_port = address.substr(colon + 1) == "0";
  Listener listener;
  if (shared && !any_port) {
    listener.claim = Claim(address);
    if (!listener.claim.ok()) return PortTakenError(address);
  }
  listener.host = address.substr(0, colon);
  const std::string node(WithoutBrackets(listener.host));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(node.empty() ? nullptr : node.c_str(),
                                address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) return bad(gai_strerror(error));
  listener.fd = UniqueFd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, found->ai_protocol));
  const int one = 1;
  // SO_REUSEADDR: past connections must not keep a given port busy. If any port will do, the kernel
  // must choose one that nobody has bound.
  if (!any_port) setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  auto* generic = reinterpret_cast<sockaddr*>(&bound);
  const bool listens = listener.fd.ok() &&
                       bind(listener.fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                       (shared || listen(listener.fd.get(), SOMAXCONN) == 0) &&
                       getsockname(listener.fd.get(), generic, &size) == 0;
  const int failure = errno;
  freeaddrinfo(found);
  // SO_REUSEPORT is set only after the bind. Set before, it would let this socket bind a port on
  // which a process of another worker listens with SO_REUSEPORT. Set now, it lets the process that
  // will listen bind the port, too.
  if (shared) setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
  if (!listens && failure == EADDRINUSE) return PortTakenError(address);
  if (!listens) return bad(std::strerror(failure));
  listener.port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  return listener;
}

}  // namespace

absl::StatusOr<Listener> Listen(const std::string& address) {
  return Bind(address, /*shared=*/false);
}

absl::StatusOr<Listener> Reserve(const std::string& address) {
  return Bind(address, /*shared=*/true);
}

}  // namespace tessera::worker
