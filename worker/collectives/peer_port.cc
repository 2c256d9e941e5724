// Accepts the connections of peers for all communicators of an executor. The executor owns one
// PeerPort (worker/runtime/communicator.cc opens a generation on it), and TcpLinks reads
// connections from the pipe that Open returns. One thread polls the listening socket and the
// connections whose generation is unknown or not open yet.
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

// How long a connection may wait for its generation, since the peer's communicator may be
// configured earlier than ours.
constexpr absl::Duration kPendingTime = absl::Seconds(30);
constexpr size_t kPendingMax = 1024;
constexpr size_t kClosedMax = 1024;
// The interval between two checks of a connection whose hello is not complete.
constexpr int kPartialHelloPollMillis = 10;

}  // namespace

PeerPort::PeerPort(int listen_fd)
    : listen_fd_(listen_fd), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESSERA_CHECK(wake_fd_.ok()) << std::strerror(errno);
  fcntl(listen_fd_, F_SETFL, fcntl(listen_fd_, F_GETFL) | O_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

PeerPort::~PeerPort() {
  stop_signal_.Raise();
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
    channels_[generation] = {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  const uint64_t one = 1;
  static_cast<void>(!write(wake_fd_.get(), &one, sizeof(one)));
  return ends[0];
}

void PeerPort::Close(uint64_t generation) {
  Channel channel;
  {
    absl::MutexLock lock(&mu_);
    const auto it = channels_.find(generation);
    if (it == channels_.end()) return;
    channel = std::move(it->second);
    channels_.erase(it);
    closed_generations_.insert(generation);
    if (closed_generations_.size() > kClosedMax) {
      // New generations are always higher, so no generation up to the lowest closed one will be
      // opened any more. All of those are closed, except the ones that still have a channel.
      closed_below_ = *closed_generations_.begin() + 1;
      closed_generations_.erase(closed_generations_.begin());
    }
  }
  int unclaimed = -1;
  while (read(channel.read_end.get(), &unclaimed, sizeof(unclaimed)) == sizeof(unclaimed)) {
    close(unclaimed);
  }
  const uint64_t one = 1;
  static_cast<void>(!write(wake_fd_.get(), &one, sizeof(one)));
}

void PeerPort::AcceptOne(std::list<PendingConnection>* pending_connections) {
  const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) {
    TuneSocket(fd);
    pending_connections->push_back({UniqueFd(fd), SteadyNow() + kPendingTime, false, 0});
  } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    // The process may have too many open files, for example: wait instead of polling in a busy
    // loop.
    AwaitSignal(stop_signal_.fd(), Deadline(absl::Milliseconds(10)));
  }
}

// Moves one waiting connection on: reads the generation, once the hello has arrived, and passes the
// connection to its communicator, once that is open. Returns true when nothing is left to do: the
// connection has been passed on or will be closed. The hello is only peeked at, because the
// communicator reads and checks it itself. The connection waits if the generation is neither open
// nor closed, since its peer may have been configured first.
bool PeerPort::Advance(PendingConnection& pending) {
  if (SteadyNow() > pending.deadline) return true;
  if (!pending.generation_known) {
    Hello hello;
    const ssize_t seen = recv(pending.fd.get(), &hello, sizeof(hello), MSG_PEEK | MSG_DONTWAIT);
    if (seen < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (seen <= 0) return true;
    // The communicator checks whether the peer was required to use TLS.
    TlsHello tls;
    std::memcpy(static_cast<void*>(&tls), &hello, sizeof(tls));
    const bool is_tls = tls.magic == kTlsMagic;
    if (seen < static_cast<ssize_t>(is_tls ? sizeof(tls) : sizeof(hello))) return false;
    if (!is_tls && hello.magic != kHelloMagic) return true;
    if ((is_tls ? tls.version : hello.version) != kWireVersion) return true;
    pending.generation_known = true;
    pending.generation = is_tls ? tls.generation : hello.generation;
  }
  absl::MutexLock lock(&mu_);
  const auto channel = channels_.find(pending.generation);
  if (channel == channels_.end()) {
    return pending.generation < closed_below_ || closed_generations_.count(pending.generation) > 0;
  }
  // If the pipe is full, the connection is closed, and the peer tries again.
  const int fd = pending.fd.get();
  if (write(channel->second.write_end.get(), &fd, sizeof(fd)) != sizeof(fd)) return true;
  pending.fd.Release();
  return true;
}

// The port's thread: accepts connections and moves the waiting ones on. It sleeps in poll(2) until
// a connection arrives, a generation is opened or closed, or a connection's time is over. Only a
// hello that has arrived in part is checked at short intervals, because a peeked socket stays
// readable and poll(2) would not wait on it.
void PeerPort::Run() {
  NameThread("peer port");
  std::list<PendingConnection> pending_connections;
  while (true) {
    std::vector<pollfd> fds = {
        {stop_signal_.fd(), POLLIN, 0},
        {wake_fd_.get(), POLLIN, 0},
        {pending_connections.size() < kPendingMax ? listen_fd_ : -1, POLLIN, 0}};
    int millis = -1;
    for (const PendingConnection& pending : pending_connections) {
      // A connection that waits for its communicator needs no polling: Open and Close wake the
      // thread.
      const absl::Duration left = pending.deadline - SteadyNow();
      const int wait = pending.generation_known
                           ? static_cast<int>(std::max<int64_t>(absl::ToInt64Milliseconds(left), 0))
                           : kPartialHelloPollMillis;
      millis = millis < 0 ? wait : std::min(millis, wait);
    }
    poll(fds.data(), fds.size(), millis);
    if (fds[0].revents != 0) return;
    uint64_t woken = 0;
    static_cast<void>(!read(wake_fd_.get(), &woken, sizeof(woken)));
    if (fds[2].revents != 0) AcceptOne(&pending_connections);
    pending_connections.remove_if([this](PendingConnection& pending) { return Advance(pending); });
  }
}

}  // namespace tessera::worker
