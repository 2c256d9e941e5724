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
void ResetOnClose(int fd) {
  const linger reset_at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset_at_once, sizeof(reset_at_once));
}

bool ParseAddress(const std::string& text, sockaddr_in* address) {
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
  if (!ParseAddress(target, &address)) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

struct FaultProxy::Connection {
  int client_fd = -1, server_fd = -1;
  std::thread up, down;
  // number of pumps that still run; the pumps write it while they hold mu_
  int num_pumps = 2;

  int from(Direction direction) const {
    return direction == Direction::kUp ? client_fd : server_fd;
  }
  int to(Direction direction) const { return direction == Direction::kUp ? server_fd : client_fd; }
  // Shuts down both sockets; any thread may call it. The sockets are closed later, when the pumps
  // have ended.
  void Shut() const {
    shutdown(client_fd, SHUT_RDWR);
    shutdown(server_fd, SHUT_RDWR);
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
  if (!ParseAddress(text, &address)) {
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
  std::vector<std::unique_ptr<Connection>> remaining;
  {
    absl::MutexLock lock(&mu_);
    remaining.swap(connections_);
  }
  for (const auto& connection : remaining) {
    connection->up.join();
    connection->down.join();
    close(connection->client_fd);
    close(connection->server_fd);
  }
  close(listen_fd_);
  close(stop_fd_);
}

void FaultProxy::SetTarget(const std::string& target) {
  absl::MutexLock lock(&mu_);
  target_ = target;
}

void FaultProxy::AddFault(Direction direction, Fault fault, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  std::vector<PendingFault>& faults = faults_[direction];
  faults.push_back({fault, bytes_passed_[direction] + bytes});
  std::sort(faults.begin(), faults.end(),
            [](const PendingFault& a, const PendingFault& b) { return a.position < b.position; });
}
void FaultProxy::CutAfter(Direction direction, int64_t bytes) {
  AddFault(direction, Fault::kCut, bytes);
}
void FaultProxy::CorruptAfter(Direction direction, int64_t bytes) {
  AddFault(direction, Fault::kCorrupt, bytes);
}
void FaultProxy::CloseHalfAfter(Direction direction, int64_t bytes) {
  AddFault(direction, Fault::kCloseHalf, bytes);
}

void FaultProxy::SetBlackhole(bool on) {
  absl::MutexLock lock(&mu_);
  blackhole_ = on;
}

void FaultProxy::SetRefusing(bool on) {
  {
    absl::MutexLock lock(&mu_);
    refusing_ = on;
  }
  if (on) CutAll();
}

void FaultProxy::SetDelay(absl::Duration delay) {
  absl::MutexLock lock(&mu_);
  delay_ = delay;
}

void FaultProxy::CutAll() {
  absl::MutexLock lock(&mu_);
  for (const auto& connection : connections_) {
    ResetOnClose(connection->client_fd);
    ResetOnClose(connection->server_fd);
    connection->Shut();
  }
}

int64_t FaultProxy::bytes_passed(Direction direction) const {
  absl::MutexLock lock(&mu_);
  const auto it = bytes_passed_.find(direction);
  return it == bytes_passed_.end() ? 0 : it->second;
}

int64_t FaultProxy::num_accepted() const {
  absl::MutexLock lock(&mu_);
  return num_accepted_;
}

int64_t FaultProxy::num_faults_struck() const {
  absl::MutexLock lock(&mu_);
  return num_faults_struck_;
}

void FaultProxy::CloseEndedConnections() {
  std::vector<std::unique_ptr<Connection>> ended;
  {
    absl::MutexLock lock(&mu_);
    for (auto& connection : connections_)
      if (connection->num_pumps == 0) ended.push_back(std::move(connection));
    std::erase_if(connections_, [](const auto& c) { return c == nullptr; });
  }
  for (const auto& connection : ended) {
    connection->up.join();
    connection->down.join();
    close(connection->client_fd);
    close(connection->server_fd);
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
    CloseEndedConnections();
    if (fds[1].revents == 0) continue;
    std::string target;
    bool refusing = false;
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
      refusing = refusing_;
    }
    const int client_fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client_fd < 0) continue;
    const int server_fd = refusing ? -1 : ConnectTo(target);
    if (server_fd < 0) {
      ResetOnClose(client_fd);
      close(client_fd);
      continue;
    }
    const int on = 1;
    setsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(server_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    absl::MutexLock lock(&mu_);
    ++num_accepted_;
    Connection* connection = connections_.emplace_back(std::make_unique<Connection>()).get();
    connection->client_fd = client_fd;
    connection->server_fd = server_fd;
    connection->up = std::thread([this, connection] { Pump(*connection, Direction::kUp); });
    connection->down = std::thread([this, connection] { Pump(*connection, Direction::kDown); });
    if (stopping_ || refusing_) connection->Shut();
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
    const ssize_t num_received = recv(connection.from(direction), buffer.data(), buffer.size(), 0);
    if (num_received < 0 && errno == EINTR) continue;
    if (num_received <= 0) {
      // While no bytes pass, the end of the stream does not pass either.
      if (!AwaitFlow()) break;
      // Pass the end on in the same form: a reset as a reset, an orderly end as an orderly end.
      if (num_received < 0) {
        ResetOnClose(connection.to(direction));
        connection.Shut();
      } else {
        shutdown(connection.to(direction), SHUT_WR);
      }
      break;
    }
    if (!Forward(connection, direction, buffer.data(), static_cast<size_t>(num_received))) break;
  }
  absl::MutexLock lock(&mu_);
  --connection.num_pumps;
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
    int64_t& passed = bytes_passed_[direction];
    std::vector<PendingFault>& faults = faults_[direction];
    while (!faults.empty() && faults.front().position < passed + static_cast<int64_t>(size)) {
      const size_t index =
          static_cast<size_t>(std::max<int64_t>(faults.front().position - passed, 0));
      const Fault fault = faults.front().fault;
      faults.erase(faults.begin());
      ++num_faults_struck_;
      if (fault == Fault::kCorrupt) {
        data[index] = static_cast<char>(data[index] ^ 0x10);
        continue;
      }
      (fault == Fault::kCut ? cut : close_half) = true;
      size = index;
      break;
    }
    passed += static_cast<int64_t>(size);
  }
  for (size_t sent = 0; sent < size;) {
    const ssize_t written = send(connection.to(direction), data + sent, size - sent, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      ResetOnClose(connection.from(direction));
      connection.Shut();
      return false;
    }
    sent += static_cast<size_t>(written);
  }
  if (cut) {
    ResetOnClose(connection.client_fd);
    ResetOnClose(connection.server_fd);
    connection.Shut();
  } else if (close_half) {
    shutdown(connection.to(direction), SHUT_WR);
  }
  return !cut && !close_half;
}

}  // namespace tessera::service
