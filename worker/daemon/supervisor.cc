#include "worker/daemon/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/frames.h"
#include "base/log.h"
#include "base/thread_name.h"
#include "base/unique_fd.h"

namespace tessera::worker {

// One process, from start to end.
struct Supervisor::ChildSession {
  uint64_t incarnation;
  UniqueFd socket;
  ChildProcess process;
  FrameParser parser;
  std::string sending;  // what of the message at the front is not sent
  size_t sent = 0;
  bool ready = false;
  absl::Time started, ready_at;
  absl::Time kill_at = absl::InfiniteFuture();
  std::optional<ProcessLoss> verdict;  // we killed it, or it has ended
  // By the monotonic clock.
  std::chrono::steady_clock::time_point answered, next_question;
  bool asked = false;  // and not answered
};

Supervisor::Supervisor(SupervisorOptions options, Callbacks callbacks)
    : options_(std::move(options)), callbacks_(std::move(callbacks)) {
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

void Supervisor::Send(uint64_t incarnation, std::string_view message) {
  {
    absl::MutexLock lock(&mu_);
    if (incarnation != current_) return;
    outgoing_.push_back(EncodeFrame(message));
  }
  Wake();
}

void Supervisor::Kill(uint64_t incarnation, LossCause cause, std::string reason) {
  {
    absl::MutexLock lock(&mu_);
    if (current_ == incarnation && !condemned_) condemned_ = ProcessLoss{cause, std::move(reason)};
  }
  Wake();
}

InFlightOp Supervisor::in_flight() {
  absl::MutexLock lock(&mu_);
  return page_ == nullptr ? InFlightOp() : page_->LikelyCulprit();
}

bool Supervisor::WaitUnlessStopped(absl::Duration time) {
  absl::MutexLock lock(&mu_);
  const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
  return !mu_.AwaitWithTimeout(absl::Condition(&stopping), time);
}

void Supervisor::Run() {
  NameThread("supervisor");
  // Another for each process, also of other daemons, before and after: they begin anywhere. Exact
  // in a double.
  std::random_device random;
  uint64_t incarnation = uint64_t{random() & 0x7fffffff} << 21;
  while (WaitUnlessStopped(backoff_)) RunProcess(++incarnation);
}

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
  const auto back_off = [this] {
    backoff_ = std::clamp(2 * backoff_, options_.backoff_min, options_.backoff_max);
  };
  if (!process.ok()) {
    TESSERA_LOG(ERROR) << process.status().message();
    back_off();
    return callbacks_.on_lost(
        incarnation, {LossCause::kOther, std::string(process.status().message()), {}, false});
  }
  ChildSession life{.incarnation = incarnation,
                    .socket = std::move(ours),
                    .process = *std::move(process),
                    .parser = {},
                    .sending = "",
                    .sent = 0,
                    .ready = false,
                    .started = SteadyNow(),
                    .ready_at = absl::InfiniteFuture(),
                    .kill_at = absl::InfiniteFuture(),
                    .verdict = {},
                    .answered = {},
                    .next_question = {},
                    .asked = false};
  {
    absl::MutexLock lock(&mu_);
    current_ = incarnation;
    page_ = &page;
    outgoing_.clear();
    condemned_.reset();
  }
  pid_ = life.process.pid();
  ServeSocket(life);
  pid_ = -1;
  silence_nanos_ = 0;
  {
    absl::MutexLock lock(&mu_);
    current_ = 0;
    page_ = nullptr;
    outgoing_.clear();
  }
  if (life.ready && SteadyNow() - life.ready_at >= options_.backoff_reset_after) {
    backoff_ = absl::ZeroDuration();
  } else if (life.ready && backoff_ == absl::ZeroDuration()) {
    backoff_ = options_.backoff_min;
  } else {
    back_off();
  }
  callbacks_.on_lost(incarnation,
                     {life.verdict->cause, life.verdict->reason, page.LikelyCulprit(), life.ready});
}

// Sends what waits; false if the process does not listen any more.
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

// Takes what came; false at the end of the stream, and where the process breaks the protocol.
bool Supervisor::Receive(ChildSession& life) {
  char buffer[64 << 10];
  while (true) {
    const ssize_t got = recv(life.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    life.parser.Add(buffer, static_cast<size_t>(got));
    while (std::optional<std::string> message = life.parser.Next()) {
      life.answered = std::chrono::steady_clock::now();
      if (message->empty()) {
        life.asked = false;
        continue;
      }
      if (std::exchange(life.ready, true)) return false;
      life.ready_at = SteadyNow();
      callbacks_.on_ready(life.incarnation, *std::move(message));
    }
    if (life.parser.broken()) return false;
    if (static_cast<size_t>(got) < sizeof(buffer)) return true;
  }
}

void Supervisor::Ping(ChildSession& life) {
  if (!life.ready) return;
  const auto now = std::chrono::steady_clock::now();
  // An answer that the next question would find missing.
  const bool late = life.asked && now >= life.next_question;
  silence_nanos_ = late ? absl::ToInt64Nanoseconds(absl::FromChrono(now - life.answered)) : 0;
  if (life.asked || now < life.next_question) return;
  life.asked = true;
  life.next_question = now + absl::ToChronoNanoseconds(options_.ping_interval);
  absl::MutexLock lock(&mu_);
  outgoing_.push_back(EncodeFrame(""));
}

void Supervisor::ServeSocket(ChildSession& life) {
  const auto kill = [&](const ProcessLoss& why) {
    if (!life.verdict) life.verdict = why;
    life.process.Kill(SIGKILL);
  };
  bool open = true;
  while (true) {
    bool stopping = false;
    {
      absl::MutexLock lock(&mu_);
      stopping = stopping_;
      if (condemned_) kill(*condemned_);
    }
    if (stopping && life.kill_at == absl::InfiniteFuture()) {
      life.verdict = ProcessLoss{LossCause::kStopped, "the worker stops"};
      shutdown(life.socket.get(), SHUT_WR);
      life.kill_at = SteadyNow() + options_.stop_grace;
    }
    if (open && !stopping) {
      Ping(life);
      open = Flush(life);
    }
    if (!life.ready && SteadyNow() - life.started > options_.ready_timeout) {
      kill({LossCause::kNotReady, "killed: it was not ready in time"});
    }
    if (SteadyNow() >= life.kill_at) kill({LossCause::kOther, "killed: it did not stop in time"});

    const bool unsent = life.sent < life.sending.size();
    pollfd fds[] = {
        {wake_fd_, POLLIN, 0},
        {open ? life.socket.get() : -1, static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0},
        {life.process.pidfd(), POLLIN, 0}};
    // Looks again for the timeouts above, and for the end where there is no pidfd.
    const bool hurry = !open && life.process.pidfd() < 0;
    poll(fds, 3, hurry ? 5 : 100);
    if (uint64_t woken = 0; fds[0].revents != 0)
      static_cast<void>(!read(wake_fd_, &woken, sizeof(woken)));
    if (open && fds[1].revents != 0) open = Receive(life);
    if (!open && life.kill_at == absl::InfiniteFuture()) {
      life.kill_at = SteadyNow() + options_.stop_grace;
    }
    if (life.process.pidfd() >= 0 && fds[2].revents == 0) continue;
    std::optional<ProcessEnd> end = life.process.Reap();
    if (!end) continue;
    if (life.verdict) return;
    if (end->exit_status == kDisconnectedExit) {
      life.verdict =
          ProcessLoss{LossCause::kDisconnected, "its connection to the coordinator ended"};
    } else {
      life.verdict = ProcessLoss{end->by_signal ? LossCause::kSignal : LossCause::kExit,
                                 std::move(end->reason)};
    }
    return;
  }
}

}  // namespace tessera::worker
