// Implements the proxy with one thread that accepts connections and two threads per connection, one
// for each direction. Tests put it between a client and the coordinator or a worker. The sockets of
// a connection are closed only after both of its threads have ended, so that no descriptor is
// reused while a thread still reads from it.
#include "tests/service/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace tessera::service {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

// Makes a later close of `fd` send a reset instead of an ordinary end of the stream.
void Reset(int fd) {
  const linger now = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

bool ReadAddress(const std::string& text, sockaddr_in* address) {
  const size_t colon = text.rfind(':');
  int port = 0;
  address->sin_family = AF_INET;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      inet_pton(AF_INET, text.substr(0, colon).c_str(), &address->sin_addr) != 1) {
    return false;
  }
  address->sin_port = htons(static_cast<uint16_t>(port));
  return true;
}

int ConnectTo(const std::string& target) {
  sockaddr_in address = {};
  if (!ReadAddress(target, &address)) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

struct FaultProxy::Connection {
  int client = -1, server = -1;
  std::thread up, down;
  // number of pumps that still run; the pumps write it while they hold mu_
  int pumps = 2;

  int from(Direction direction) const { return direction == Direction::kUp ? client : server; }
  int to(Direction direction) const { return direction == Direction::kUp ? server : client; }
  // Shuts down both sockets; any thread may call it. The sockets are closed later, when the pumps
  // have ended.
  void Shut() const {
    shutdown(client, SHUT_RDWR);
    shutdown(server, SHUT_RDWR);
  }
};

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(const std::string& target,
                                                              const std::string& listen) {
  std::unique_ptr<FaultProxy> proxy(new FaultProxy);
  TESSERA_RETURN_IF_ERROR(proxy->Listen(listen));
  proxy->SetTarget(target);
  proxy->acceptor_ = std::thread([p = proxy.get()] { p->Accept(); });
  return proxy;
}

absl::Status FaultProxy::Listen(const std::string& text) {
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!ReadAddress(text, &address)) {
    return MakeError(ErrorKind::kValueError, absl::StrCat("proxy: '", text, "' is no IPv4:PORT"));
  }
  if (bind(listen_fd_, generic, size) != 0 || listen(listen_fd_, SOMAXCONN) != 0 ||
      getsockname(listen_fd_, generic, &size) != 0) {
    return MakeError(ErrorKind::kInternal, absl::StrCat("proxy: ", std::strerror(errno)));
  }
  address_ = absl::StrCat(text.substr(0, text.rfind(':')), ":", ntohs(address.sin_port));
  return absl::OkStatus();
}

FaultProxy::~FaultProxy() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& connection : connections_) connection->Shut();
  }
  const uint64_t one = 1;
  static_cast<void>(!write(stop_fd_, &one, sizeof(one)));
  if (acceptor_.joinable()) acceptor_.join();
  std::vector<std::unique_ptr<Connection>> left;
  {
    absl::MutexLock lock(&mu_);
    left.swap(connections_);
  }
  for (const auto& connection : left) {
    connection->up.join();
    connection->down.join();
    close(connection->client);
    close(connection->server);
  }
  close(listen_fd_);
  close(stop_fd_);
}

void FaultProxy::SetTarget(const std::string& target) {
  absl::MutexLock lock(&mu_);
  target_ = target;
}

void FaultProxy::SetFault(Direction direction, Fault fault, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  std::vector<Pending>& faults = faults_[direction];
  faults.push_back({fault, passed_[direction] + bytes});
  std::sort(faults.begin(), faults.end(),
            [](const Pending& a, const Pending& b) { return a.at < b.at; });
}
void FaultProxy::CutAfter(Direction direction, int64_t bytes) {
  SetFault(direction, Fault::kCut, bytes);
}
void FaultProxy::CorruptAfter(Direction direction, int64_t bytes) {
  SetFault(direction, Fault::kCorrupt, bytes);
}
void FaultProxy::CloseHalfAfter(Direction direction, int64_t bytes) {
  SetFault(direction, Fault::kCloseHalf, bytes);
}

void FaultProxy::Blackhole(bool on) {
  absl::MutexLock lock(&mu_);
  blackhole_ = on;
}

void FaultProxy::Delay(absl::Duration delay) {
  absl::MutexLock lock(&mu_);
  delay_ = delay;
}

void FaultProxy::CutAll() {
  absl::MutexLock lock(&mu_);
  for (const auto& connection : connections_) {
    Reset(connection->client);
    Reset(connection->server);
    connection->Shut();
  }
}

int64_t FaultProxy::bytes(Direction direction) const {
  absl::MutexLock lock(&mu_);
  const auto it = passed_.find(direction);
  return it == passed_.end() ? 0 : it->second;
}

int64_t FaultProxy::connections() const {
  absl::MutexLock lock(&mu_);
  return accepted_;
}

int64_t FaultProxy::num_faults_struck() const {
  absl::MutexLock lock(&mu_);
  return num_faults_struck_;
}

void FaultProxy::Reap() {
  std::vector<std::unique_ptr<Connection>> over;
  {
    absl::MutexLock lock(&mu_);
    for (auto& connection : connections_)
      if (connection->pumps == 0) over.push_back(std::move(connection));
    std::erase_if(connections_, [](const auto& c) { return c == nullptr; });
  }
  for (const auto& connection : over) {
    connection->up.join();
    connection->down.join();
    close(connection->client);
    close(connection->server);
  }
}

// Accepts connections until the proxy stops. It polls with a timeout, so that connections that are
// over are also joined and closed while no new ones come.
void FaultProxy::Accept() {
  while (true) {
    pollfd fds[] = {{stop_fd_, POLLIN, 0}, {listen_fd_, POLLIN, 0}};
    // Wakes up now and then to clean up connections that are over.
    poll(fds, 2, 200);
    if (fds[0].revents != 0) return;
    Reap();
    if (fds[1].revents == 0) continue;
    std::string target;
    {
      // While the proxy is blackholed, and before it has a target, connections wait in the listen
      // backlog.
      absl::MutexLock lock(&mu_);
      const auto open = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || (!blackhole_ && !target_.empty());
      };
      mu_.Await(absl::Condition(&open));
      if (stopping_) return;
      target = target_;
    }
    const int client = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    const int server = ConnectTo(target);
    if (server < 0) {
      Reset(client);
      close(client);
      continue;
    }
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    absl::MutexLock lock(&mu_);
    ++accepted_;
    Connection* connection = connections_.emplace_back(std::make_unique<Connection>()).get();
    connection->client = client;
    connection->server = server;
    connection->up = std::thread([this, connection] { Pump(*connection, Direction::kUp); });
    connection->down = std::thread([this, connection] { Pump(*connection, Direction::kDown); });
    if (stopping_) connection->Shut();
  }
}

bool FaultProxy::AwaitFlow() {
  absl::MutexLock lock(&mu_);
  const auto flows = [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !blackhole_; };
  mu_.Await(absl::Condition(&flows));
  return !stopping_;
}

void FaultProxy::Pump(Connection& connection, Direction direction) {
  std::vector<char> buffer(kBufferBytes);
  while (AwaitFlow()) {
    const ssize_t got = recv(connection.from(direction), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      // A pulled cable would not carry the end of the stream either.
      if (!AwaitFlow()) break;
      // Pass the end on in the same form: a reset as a reset, an orderly end as an orderly end.
      if (got < 0) {
        Reset(connection.to(direction));
        connection.Shut();
      } else {
        shutdown(connection.to(direction), SHUT_WR);
      }
      break;
    }
    if (!Forward(connection, direction, buffer.data(), static_cast<size_t>(got))) break;
  }
  absl::MutexLock lock(&mu_);
  --connection.pumps;
}

// Applies the faults that fall into this piece of data, then sends what is left of it. A cut or a
// half-close shortens the piece to the bytes before the fault, so that the receiver gets exactly
// those. The sending happens without the lock, because a slow receiver must not block other
// connections.
bool FaultProxy::Forward(Connection& connection, Direction direction, char* data, size_t size) {
  bool close_half = false, cut = false;
  {
    absl::MutexLock lock(&mu_);
    const auto flows = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !blackhole_; };
    mu_.Await(absl::Condition(&flows));
    if (delay_ > absl::ZeroDuration()) {
      const auto stops = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
      mu_.AwaitWithTimeout(absl::Condition(&stops), delay_);
    }
    if (stopping_) return false;
    int64_t& passed = passed_[direction];
    std::vector<Pending>& faults = faults_[direction];
    while (!faults.empty() && faults.front().at < passed + static_cast<int64_t>(size)) {
      const size_t at = static_cast<size_t>(std::max<int64_t>(faults.front().at - passed, 0));
      const Fault fault = faults.front().fault;
      faults.erase(faults.begin());
      ++num_faults_struck_;
      if (fault == Fault::kCorrupt) {
        data[at] = static_cast<char>(data[at] ^ 0x10);
        continue;
      }
      (fault == Fault::kCut ? cut : close_half) = true;
      size = at;
      break;
    }
    passed += static_cast<int64_t>(size);
  }
  for (size_t sent = 0; sent < size;) {
    const ssize_t put = send(connection.to(direction), data + sent, size - sent, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      Reset(connection.from(direction));
      connection.Shut();
      return false;
    }
    sent += static_cast<size_t>(put);
  }
  if (cut) {
    Reset(connection.client);
    Reset(connection.server);
    connection.Shut();
  } else if (close_half) {
    shutdown(connection.to(direction), SHUT_WR);
  }
  return !cut && !close_half;
}

}  // namespace tessera::service
