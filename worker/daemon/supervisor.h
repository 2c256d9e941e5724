// Keeps one executor process running: starts it, watches it, and restarts it when it ends.
//
// Messages over the socket between the two are opaque here, and ordered. The process sends one,
// when it is ready. An empty message is a ping or a pong: the process replies to pings at once,
// unless it does not get through with a command, so that a busy process is told from a frozen one.
//
// Send, Kill and Stop are thread-safe and do not block, except that Stop joins. Callbacks run on
// the supervisor's thread, in order, and must not block; they may call Send. `on_lost` is called
// for every process, whether or not it became ready.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {

struct SupervisorOptions {
  std::string binary = "/proc/self/exe";
  std::string title;  // argv[0], as shown by ps; "": the binary
  // Arguments of the incarnation. The process has the socket at descriptor 3, the in-flight page at
  // 4, and `fds` from 5 on.
  std::function<std::vector<std::string>(uint64_t incarnation)> args;
  std::vector<int> fds;  // borrowed
  int num_devices = 1;
  absl::Duration ready_timeout = absl::Seconds(20);  // beyond it the process is killed
  // Before a start that follows a failed one; doubles up to the greatest. A process that has been
  // ready for `backoff_reset_after` is followed at once.
  absl::Duration backoff_min = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
  absl::Duration backoff_reset_after = absl::Seconds(5);
  absl::Duration stop_grace = absl::Seconds(1);  // between the end of the socket and SIGKILL
  // Between the answer to one question and the next.
  absl::Duration ping_interval = absl::Milliseconds(500);
};

// The exit status of a process that has lost its connection to the coordinator.
inline constexpr int kDisconnectedExit = 5;

// Why a process ended.
enum class LossCause : uint8_t {
  kExit,          // by itself
  kSignal,        // by a signal of another sender
  kNotReady,      // killed: not ready in time
  kProtocol,      // killed: its messages do not parse
  kDisconnected,  // its connection to the coordinator ended, or that of its daemon
  kStuck,         // killed: it does not acknowledge the end of an operation
  kOther,         // it did not start, or did not stop in time
  kStopped,       // the supervisor stops
};

struct ProcessLoss {
  LossCause cause = LossCause::kOther;
  std::string reason = {};  // "killed by signal 9 (Killed)"
  InFlightOp in_flight = {};
  bool was_ready = false;
};

class Supervisor {
 public:
  struct Callbacks {
    std::function<void(uint64_t incarnation, std::string message)> on_ready;
    std::function<void(uint64_t incarnation, ProcessLoss loss)> on_lost;
  };

  // Starts the first process.
  Supervisor(SupervisorOptions options, Callbacks callbacks);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { Stop(); }

  // Sends to the process of this incarnation; drops the message if it has ended.
  void Send(uint64_t incarnation, std::string_view message) ABSL_LOCKS_EXCLUDED(mu_);
  // Kills the process, if it is that of this incarnation, with this cause and reason of its loss.
  void Kill(uint64_t incarnation, LossCause cause, std::string reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the process and the thread. No callback runs afterwards.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // The pid of the running process; -1: none.
  pid_t pid() const { return pid_; }
  // Since the running process last replied to a ping; 0 while it does.
  absl::Duration silence() const { return absl::Nanoseconds(silence_nanos_.load()); }
  // The op that the running process executes, by LikelyCulprit of its page.
  InFlightOp in_flight() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct ChildSession;

  void Run();
  // Runs one process to its end.
  void RunProcess(uint64_t incarnation);
  void ServeSocket(ChildSession& life);
  bool Flush(ChildSession& life);
  bool Receive(ChildSession& life);
  // Pings the process, and measures how long it has not replied.
  void Ping(ChildSession& life);
  void Wake();
  bool WaitUnlessStopped(absl::Duration time);

  const SupervisorOptions options_;
  const Callbacks callbacks_;
  int wake_fd_ = -1;  // eventfd
  std::atomic<pid_t> pid_{-1};
  std::atomic<int64_t> silence_nanos_{0};

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t current_ ABSL_GUARDED_BY(mu_) = 0;          // incarnation; 0: none
  InFlightPage* page_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the process
  std::deque<std::string> outgoing_ ABSL_GUARDED_BY(mu_);
  std::optional<ProcessLoss> condemned_ ABSL_GUARDED_BY(mu_);  // the process is to be killed

  // Used by the thread only.
  absl::Duration backoff_ = absl::ZeroDuration();
  std::thread thread_;  // Last.
};

}  // namespace tessera::worker
