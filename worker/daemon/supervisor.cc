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
  std::string sending = {};  // the message that is being sent; its first `sent` bytes are out
  size_t sent = 0;
  bool open = true;  // whether the socket is still read and written
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
  next_ = incarnation;
}

void Supervisor::Send(uint64_t incarnation, std::string_view message) {
  {
    absl::MutexLock lock(&mu_);
    if (incarnation != current_) return;
    outgoing_.push_back(EncodeFrame(message));
  }
  Wake();
}

bool Supervisor::SendToCurrent(std::string_view message) {
  {
    absl::MutexLock lock(&mu_);
    if (current_ == 0) return false;
    outgoing_.push_back(EncodeFrame(message));
  }
  Wake();
  return true;
}

void Supervisor::CloseInput(uint64_t incarnation) {
  {
    absl::MutexLock lock(&mu_);
    if (incarnation != current_) return;
    close_input_ = true;
  }
  Wake();
}

void Supervisor::Kill(uint64_t incarnation) {
  {
    absl::MutexLock lock(&mu_);
    if (incarnation != current_) return;
    condemned_ = true;
  }
  Wake();
}

InFlightOp Supervisor::in_flight() {
  absl::MutexLock lock(&mu_);
  return page_ == nullptr ? InFlightOp() : page_->LikelyCulprit();
}

uint64_t Supervisor::AwaitStart() {
  absl::MutexLock lock(&mu_);
  const auto told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || next_ != 0; };
  mu_.Await(absl::Condition(&told));
  return stopping_ ? 0 : std::exchange(next_, 0);
}

void Supervisor::Run() {
  NameThread("supervisor");
  while (const uint64_t incarnation = AwaitStart()) RunProcess(incarnation);
}

// Runs one process: makes its socket and in-flight page, starts it, serves it, and posts how it
// ended. The page is shared memory that outlives the process, so the op that was in flight can
// still be read after a crash. `current_` is set only while the process runs and is cleared before
// Ended is posted, so that no message meant for this process goes to the next one.
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
  ChildSession life{.socket = std::move(ours), .process = *std::move(process)};
  {
    absl::MutexLock lock(&mu_);
    current_ = incarnation;
    page_ = &page;
    outgoing_.clear();
    condemned_ = close_input_ = false;
  }
  pid_ = life.process.pid();
  options_.post(daemon::Started{options_.executor});
  ProcessEnd end = ServeSocket(life);
  pid_ = -1;
  {
    absl::MutexLock lock(&mu_);
    current_ = 0;
    page_ = nullptr;
    outgoing_.clear();
  }
  options_.post(daemon::Ended{options_.executor, std::move(end), page.LikelyCulprit()});
}

// Sends the waiting messages as far as possible. Returns false if the process does not listen any
// more.
bool Supervisor::Flush(ChildSession& life) {
  while (true) {
    if (life.sent == life.sending.size()) {
      absl::MutexLock lock(&mu_);
      if (outgoing_.empty()) {
        life.sending.clear();
        life.sent = 0;
        return true;
      }
      life.sending = std::move(outgoing_.front());
      life.sent = 0;
      outgoing_.pop_front();
    }
    const ssize_t sent = send(life.socket.get(), life.sending.data() + life.sent,
                              life.sending.size() - life.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    life.sent += static_cast<size_t>(sent);
  }
}

// Reads all messages that have arrived. Returns false at the end of the stream, and if the process
// breaks the protocol.
bool Supervisor::Receive(ChildSession& life) {
  char buffer[64 << 10];
  while (true) {
    const ssize_t got = recv(life.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    life.parser.Add(buffer, static_cast<size_t>(got));
    while (const std::optional<std::string> message = life.parser.Next()) {
      if (message->empty()) {
        options_.post(daemon::ChildPonged{options_.executor});
      } else if (options_.take_answer == nullptr || !options_.take_answer(*message)) {
        options_.post(daemon::ChildSaid{options_.executor, options_.read_ready(*message)});
      }
    }
    if (life.parser.broken()) return false;
    if (static_cast<size_t>(got) < sizeof(buffer)) return true;
  }
}

void Supervisor::EndSocket(ChildSession& life) {
  life.open = false;
  options_.post(daemon::SocketEnded{options_.executor});
}

void Supervisor::Obey(ChildSession& life) {
  absl::MutexLock lock(&mu_);
  if (condemned_ || stopping_) life.process.Kill(SIGKILL);
  if (!close_input_ || std::exchange(life.input_closed, true)) return;
  shutdown(life.socket.get(), SHUT_WR);
}

ProcessEnd Supervisor::ServeSocket(ChildSession& life) {
  while (true) {
    Obey(life);
    if (life.open && !life.input_closed && !Flush(life)) EndSocket(life);
    const bool unsent = !life.input_closed && life.sent < life.sending.size();
    pollfd fds[] = {{wake_fd_, POLLIN, 0},
                    {life.open ? life.socket.get() : -1,
                     static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0},
                    {life.process.pidfd(), POLLIN, 0}};
    // Where there is no pidfd, poll(2) does not report the end of the process, so look for it
    // often.
    const bool hurry = !life.open && life.process.pidfd() < 0;
    poll(fds, 3, hurry ? 5 : 100);
    if (uint64_t woken = 0; fds[0].revents != 0)
      static_cast<void>(!read(wake_fd_, &woken, sizeof(woken)));
    if (life.open && fds[1].revents != 0 && !Receive(life)) EndSocket(life);
    if (life.process.pidfd() >= 0 && fds[2].revents == 0) continue;
    if (std::optional<ProcessEnd> end = life.process.Reap()) return *std::move(end);
  }
}

}  // namespace tessera::worker
