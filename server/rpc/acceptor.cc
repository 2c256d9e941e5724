// The listening sockets of the coordinator's gRPC server. server.cc creates an Acceptor and hands
// each accepted connection to gRPC.
#include "server/rpc/acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread_name.h"

namespace tessera::server::rpc {
namespace {

// How long the thread waits before it tries again when there is no descriptor or memory for a
// connection.
constexpr int kRetryMillis = 50;
// A lack of descriptors or memory is logged at most once in this interval.
constexpr absl::Duration kWarnInterval = absl::Minutes(1);

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "0", &hints, &found) != 0) return nullptr;
  return Addresses(found);
}

void SetOption(int fd, int level, int option, int value) {
  // Errors are ignored: a socket without the option is only slower, or notices later that its peer
  // is gone.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof(value)));
}

// Returns the port of a bound socket, or 0 if the socket has none.
int PortOf(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  // IPv4 and IPv6 addresses have the port at the same offset.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

// Returns a socket that listens on the address at `port`. Returns a closed UniqueFd if the address
// cannot be bound. Accepted sockets inherit the options of the listening socket.
UniqueFd ListenOn(const addrinfo& at, int port, bool both_families, absl::Duration peer_timeout) {
  UniqueFd fd(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return {};
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(absl::ToInt64Milliseconds(peer_timeout)));
  if (at.ai_family == AF_INET6)
    SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1);
  sockaddr_storage address = {};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), at.ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0)
    return {};
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(absl::string_view host, int port,
                                                           absl::Duration peer_timeout) {
  const std::string bare(WithoutBrackets(host));
  std::vector<UniqueFd> listeners;
  const auto listen_on_all = [&](const std::string& name, bool both_families) {
    const Addresses addresses = Resolve(name);
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      UniqueFd fd = ListenOn(*at, port, both_families, peer_timeout);
      if (!fd.ok()) continue;
      port = PortOf(fd.get());
      listeners.push_back(std::move(fd));
    }
  };
  // On a machine without IPv6 this binds nothing. Then 0.0.0.0 itself is bound below.
  if (bare == "::" || bare == "0.0.0.0") listen_on_all("::", /*both_families=*/true);
  if (listeners.empty()) listen_on_all(bare, /*both_families=*/false);
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (listeners.empty() || !stop.ok())
    return absl::UnavailableError(absl::StrCat("listen: ", std::string(host), ":", port,
                                               " cannot be bound; is the port taken?"));
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(listeners), port, std::move(stop)));
}

Acceptor::Acceptor(std::vector<UniqueFd> listeners, int port, UniqueFd stop)
    : listeners_(std::move(listeners)), port_(port), stop_(std::move(stop)) {}

Acceptor::~Acceptor() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  static_cast<void>(write(stop_.get(), &one, sizeof(one)));
  thread_.join();
}

void Acceptor::Start(ConnectionFn on_connection) {
  on_connection_ = std::move(on_connection);
  thread_ = std::thread([this] { Run(); });
}

// The thread's main function. Waits for connections on all listeners and for the stop signal. A
// failed accept() is tried again after a short wait, because descriptors become free when other
// connections end.
void Acceptor::Run() {
  NameThread("accept");
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  for (const UniqueFd& listener : listeners_) polled.push_back({listener.get(), POLLIN, 0});
  absl::Time last_warned = absl::InfinitePast();
  while (true) {
    poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const int fd = accept4(polled[i].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        on_connection_(fd);
      } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        // The connection stays in the backlog, so poll would return at once. The thread waits on
        // `stop_` alone for a moment.
        const int error_number = errno;
        if (SteadyNow() - last_warned >= kWarnInterval) {
          TESSERA_LOG(WARNING) << "no connection can be accepted"
                               << Field("why", strerror(error_number));
          last_warned = SteadyNow();
        }
        poll(polled.data(), 1, kRetryMillis);
      }
    }
  }
}

}  // namespace tessera::server::rpc
