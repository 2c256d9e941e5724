// Runs the processes of one executor. WorkerDaemon (worker/rpc/worker_daemon.cc) has one supervisor
// for each executor and calls it to apply the effects of the daemon's rules; the supervisor posts
// events about the process to the Driver. The supervisor's own thread starts each process and then
// serves the socket to it.
#include "worker/daemon/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/frames.h"
#include "base/log.h"
#include "base/thread_name.h"
#include "base/unique_fd.h"

namespace tessera::worker {

// The state of one process, from start to end.
struct Supervisor::ChildSession {
  UniqueFd socket;
  ChildProcess process;
  FrameParser parser = {};
  // The message that is being sent. The first `bytes_sent` bytes have been sent.
  std::string sending = {};
  size_t bytes_sent = 0;
  bool socket_open = true;  // whether the socket is still read and written
  bool input_closed = false;
};

Supervisor::Supervisor(SupervisorOptions options) : options_(std::move(options)) {
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  TESSERA_CHECK(wake_fd_ >= 0) << std::strerror(errno);
  thread_ = std::thread([this] { Run(); });
}

void Supervisor::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  Wake();
  if (!thread_.joinable()) return;
  thread_.join();
  close(wake_fd_);
}

void Supervisor::Wake() {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_fd_, &one, sizeof(one)));
}

void Supervisor::Start(uint64_t incarnation) {
  absl::MutexLock lock(&mu_);
  next_incarnation_ = incarnation;
}

void Supervisor::Send(uint64_t incarnation, std::string_view message) {
  {
    absl::MutexLock lock(&mu_);
    if (incarnation != current_incarnation_) return;
    outgoing_.push_back(EncodeFrame(message));
  }
  Wake();
}

bool Supervisor::SendToCurrent(std::string_view message) {
  {
    absl::MutexLock lock(&mu_);
    if (current_incarnation_ == 0) return false;
    outgoing_.push_back(EncodeFrame(message));
  }
  Wake();
  return true;
}

void Supervisor::CloseInput(uint64_t incarnation) {
  {
    absl::MutexLock lock(&mu_);
    if (incarnation != current_incarnation_) return;
    close_input_requested_ = true;
  }
  Wake();
}

void Supervisor::Kill(uint64_t incarnation) {
  {
    absl::MutexLock lock(&mu_);
    if (incarnation != current_incarnation_) return;
    kill_requested_ = true;
  }
  Wake();
}

InFlightOp Supervisor::in_flight() {
  absl::MutexLock lock(&mu_);
  return page_ == nullptr ? InFlightOp() : page_->LikelyCulprit();
}

int64_t Supervisor::told_ns() {
  absl::MutexLock lock(&mu_);
  return page_ == nullptr ? 0 : page_->told_ns();
}

uint64_t Supervisor::AwaitStart() {
  absl::MutexLock lock(&mu_);
  const auto told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || next_incarnation_ != 0;
  };
  mu_.Await(absl::Condition(&told));
  return stopping_ ? 0 : std::exchange(next_incarnation_, 0);
}

void Supervisor::Run() {
  NameThread("supervisor");
  while (const uint64_t incarnation = AwaitStart()) RunProcess(incarnation);
}

// Runs one process: makes its socket and in-flight page, starts it, serves it, and posts how it
// ended. The page is shared memory that outlives the process, so the op that was in flight can
// still be read after a crash. `current_incarnation_` is set only while the process runs and is
// cleared before ChildEnded is posted, so that no message meant for this process goes to the next
// one.
void Supervisor::RunProcess(uint64_t incarnation) {
  int ends[2] = {-1, -1};
  const bool paired = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
  TESSERA_CHECK(paired) << std::strerror(errno);
  UniqueFd ours(ends[0]), theirs(ends[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  InFlightPage page(options_.num_devices);
  std::vector<int> fds = {theirs.get(), page.fd()};
  fds.insert(fds.end(), options_.fds.begin(), options_.fds.end());
  absl::StatusOr<ChildProcess> process =
      ChildProcess::Spawn(options_.binary, options_.args(incarnation), fds,
                          /*bare=*/false, options_.title);
  theirs = UniqueFd();
  if (!process.ok()) {
    TESSERA_LOG(ERROR) << process.status().message();
    return options_.post(
        daemon::SpawnFailed{options_.executor, std::string(process.status().message())});
  }
  ChildSession child{.socket = std::move(ours), .process = *std::move(process)};
  {
    absl::MutexLock lock(&mu_);
    current_incarnation_ = incarnation;
    page_ = &page;
    outgoing_.clear();
    kill_requested_ = close_input_requested_ = false;
  }
  pid_ = child.process.pid();
  options_.post(daemon::ChildStarted{options_.executor});
  ProcessEnd end = ServeSocket(child);
  pid_ = -1;
  {
    absl::MutexLock lock(&mu_);
    current_incarnation_ = 0;
    page_ = nullptr;
    outgoing_.clear();
  }
  options_.post(daemon::ChildEnded{options_.executor, std::move(end), page.LikelyCulprit()});
}

// Sends the waiting messages as far as possible. Returns false if the process does not listen any
// more.
bool Supervisor::Flush(ChildSession& child) {
  while (true) {
    if (child.bytes_sent == child.sending.size()) {
      absl::MutexLock lock(&mu_);
      if (outgoing_.empty()) {
        child.sending.clear();
        child.bytes_sent = 0;
        return true;
      }
      child.sending = std::move(outgoing_.front());
      child.bytes_sent = 0;
      outgoing_.pop_front();
    }
    const ssize_t sent = send(child.socket.get(), child.sending.data() + child.bytes_sent,
                              child.sending.size() - child.bytes_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    child.bytes_sent += static_cast<size_t>(sent);
  }
}

// Reads all messages that have arrived. Returns false at the end of the stream, and if the process
// breaks the protocol.
bool Supervisor::Receive(ChildSession& child) {
  char buffer[64 << 10];
  while (true) {
    const ssize_t got = recv(child.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    child.parser.Add(buffer, static_cast<size_t>(got));
    while (const std::optional<std::string> message = child.parser.Next()) {
      if (message->empty()) {
        options_.post(daemon::ChildPonged{options_.executor});
      } else if (options_.take_answer == nullptr || !options_.take_answer(*message)) {
        options_.post(daemon::ChildMessage{options_.executor, options_.parse_ready(*message)});
      }
    }
    if (child.parser.broken()) return false;
    if (static_cast<size_t>(got) < sizeof(buffer)) return true;
  }
}

void Supervisor::EndSocket(ChildSession& child) {
  child.socket_open = false;
  options_.post(daemon::SocketEnded{options_.executor});
}

void Supervisor::ApplyRequests(ChildSession& child) {
  absl::MutexLock lock(&mu_);
  if (kill_requested_ || stopping_) child.process.Kill(SIGKILL);
  if (!close_input_requested_ || std::exchange(child.input_closed, true)) return;
  shutdown(child.socket.get(), SHUT_WR);
}

ProcessEnd Supervisor::ServeSocket(ChildSession& child) {
  while (true) {
    ApplyRequests(child);
    if (child.socket_open && !child.input_closed && !Flush(child)) EndSocket(child);
    const bool unsent = !child.input_closed && child.bytes_sent < child.sending.size();
    pollfd fds[] = {{wake_fd_, POLLIN, 0},
                    {child.socket_open ? child.socket.get() : -1,
                     static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0},
                    {child.process.pidfd(), POLLIN, 0}};
    // Where there is no pidfd, poll(2) does not report the end of the process, so look for it
    // often.
    const bool hurry = !child.socket_open && child.process.pidfd() < 0;
    poll(fds, 3, hurry ? 5 : 100);
    if (uint64_t woken = 0; fds[0].revents != 0)
      static_cast<void>(!read(wake_fd_, &woken, sizeof(woken)));
    if (child.socket_open && fds[1].revents != 0 && !Receive(child)) EndSocket(child);
    if (child.process.pidfd() >= 0 && fds[2].revents == 0) continue;
    if (std::optional<ProcessEnd> end = child.process.Reap()) return *std::move(end);
  }
}

}  // namespace tessera::worker
