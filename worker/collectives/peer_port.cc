#include "worker/collectives/peer_port.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread_name.h"
#include "worker/collectives/wire.h"

namespace tessera::worker {
namespace {

// A peer says hello at once; its communicator may be configured this much earlier than ours.
constexpr absl::Duration kHold = absl::Seconds(30);
constexpr size_t kArrivalsMax = 1024;
constexpr size_t kClosedMax = 1024;
// Between looks at a connection whose hello has come in part.
constexpr int kLookMillis = 10;

}  // namespace

PeerPort::PeerPort(int listen_fd)
    : listen_fd_(listen_fd), opened_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESSERA_CHECK(opened_.ok()) << std::strerror(errno);
  fcntl(listen_fd_, F_SETFL, fcntl(listen_fd_, F_GETFL) | O_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

PeerPort::~PeerPort() {
  stopping_.Raise();
  thread_.join();
}

int PeerPort::Open(uint64_t generation) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    TESSERA_LOG(ERROR) << "a communicator gets no descriptors" << Field("generation", generation)
                       << Field("why", std::strerror(errno));
    return -1;
  }
  {
    absl::MutexLock lock(&mu_);
    doors_[generation] = {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  const uint64_t one = 1;
  static_cast<void>(!write(opened_.get(), &one, sizeof(one)));
  return ends[0];
}

void PeerPort::Close(uint64_t generation) {
  FdChannel door;
  {
    absl::MutexLock lock(&mu_);
    const auto it = doors_.find(generation);
    if (it == doors_.end()) return;
    door = std::move(it->second);
    doors_.erase(it);
    closed_.insert(generation);
    if (closed_.size() > kClosedMax) {
      // Generations grow: the oldest stand for all before them, bar those that are open.
      closed_below_ = *closed_.begin() + 1;
      closed_.erase(closed_.begin());
    }
  }
  int left = -1;
  while (read(door.out.get(), &left, sizeof(left)) == sizeof(left)) close(left);
  const uint64_t one = 1;
  static_cast<void>(!write(opened_.get(), &one, sizeof(one)));
}

void PeerPort::AcceptOne(std::list<PendingConnection>* arrivals) {
  const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) {
    TuneSocket(fd);
    arrivals->push_back({UniqueFd(fd), SteadyNow() + kHold, false, 0});
  } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    // Out of descriptors, say: not a reason to spin.
    pollfd stop = {stopping_.fd(), POLLIN, 0};
    poll(&stop, 1, kLookMillis);
  }
}

bool PeerPort::Advance(PendingConnection& arrival) {
  if (SteadyNow() > arrival.deadline) return true;
  if (!arrival.known) {
    Hello hello;
    const ssize_t seen = recv(arrival.fd.get(), &hello, sizeof(hello), MSG_PEEK | MSG_DONTWAIT);
    if (seen < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (seen <= 0) return true;
    // Which of the two it is; whether it should be is the communicator's to judge.
    TlsHello tls;
    std::memcpy(static_cast<void*>(&tls), &hello, sizeof(tls));
    const bool is_tls = tls.magic == kTlsMagic;
    if (seen < static_cast<ssize_t>(is_tls ? sizeof(tls) : sizeof(hello))) return false;
    if (!is_tls && hello.magic != kHelloMagic) return true;
    if ((is_tls ? tls.version : hello.version) != kWireVersion) return true;
    arrival.known = true;
    arrival.generation = is_tls ? tls.generation : hello.generation;
  }
  absl::MutexLock lock(&mu_);
  const auto door = doors_.find(arrival.generation);
  if (door == doors_.end()) {
    return arrival.generation < closed_below_ || closed_.count(arrival.generation) > 0;
  }
  // A pipe that is full has more callers than members: hang up, and the peer tries again.
  const int fd = arrival.fd.get();
  if (write(door->second.in.get(), &fd, sizeof(fd)) != sizeof(fd)) return true;
  arrival.fd.Release();
  return true;
}

void PeerPort::Run() {
  NameThread("peer port");
  std::list<PendingConnection> arrivals;
  while (true) {
    std::vector<pollfd> fds = {{stopping_.fd(), POLLIN, 0},
                               {opened_.get(), POLLIN, 0},
                               {arrivals.size() < kArrivalsMax ? listen_fd_ : -1, POLLIN, 0}};
    int millis = -1;
    for (const PendingConnection& arrival : arrivals) {
      // Those that wait for their communicator are woken by it; the others are few and short.
      const absl::Duration left = arrival.deadline - SteadyNow();
      const int wait = arrival.known
                           ? static_cast<int>(std::max<int64_t>(absl::ToInt64Milliseconds(left), 0))
                           : kLookMillis;
      millis = millis < 0 ? wait : std::min(millis, wait);
    }
    poll(fds.data(), fds.size(), millis);
    if (fds[0].revents != 0) return;
    uint64_t woken = 0;
    static_cast<void>(!read(opened_.get(), &woken, sizeof(woken)));
    if (fds[2].revents != 0) AcceptOne(&arrivals);
    arrivals.remove_if([this](PendingConnection& arrival) { return Advance(arrival); });
  }
}

}  // namespace tessera::worker
