// Keeps one executor process alive: starts it, talks to it, notices its end, starts it anew.
//
// What is said over the socket between the two is opaque here: messages go down and come up in
// order. The first message of a process says that it is ready. An empty message is a question or an
// answer: the process is asked all the time and answers at once, from the thread that takes its
// commands, so that one that is busy is told from one that is frozen.
//
// Send, Restart and Stop are thread-safe and do not block, except that Stop joins. Callbacks run on
// the supervisor's thread, in order, and must not block; they may call Send. `on_lost` follows
// every process that had become ready, and those that did not.
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
  std::string title;  // what ps shows in the binary's place; "": the binary
  // Arguments of the incarnation. The process finds at descriptor 3 the socket to us, at 4 the
  // in-flight page, from 5 on `fds`.
  std::function<std::vector<std::string>(uint64_t incarnation)> args;
  std::vector<int> fds;  // borrowed
  int num_devices = 1;
  absl::Duration ready_timeout = absl::Seconds(20);  // beyond it the process is killed
  // Before a start that follows a failed one; doubles up to the greatest. A process that has been
  // ready for `settled` is followed at once.
  absl::Duration backoff_min = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
  absl::Duration settled = absl::Seconds(5);
  absl::Duration stop_grace = absl::Seconds(1);  // between the end of the socket and SIGKILL
  size_t queue_max = 100'000;  // messages that wait for the process; beyond it it is killed
  // Between the answer to one question and the next.
  absl::Duration ask_every = absl::Milliseconds(500);
};

// Why a process ended.
enum class LossCause : uint8_t {
  kExit,          // by itself
  kSignal,        // by a signal that was not ours
  kNotReady,      // killed: not ready in time
  kProtocol,      // killed: what it says does not read
  kDisconnected,  // killed: the connection to the coordinator ended
  kNotListening,  // killed: it does not take its messages
  kStuck,         // killed: it does not leave what it was told to end
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
    std::function<void(uint64_t incarnation, std::string message)> on_message;
    std::function<void(uint64_t incarnation, ProcessLoss loss)> on_lost;
  };

  // Starts the first process.
  Supervisor(SupervisorOptions options, Callbacks callbacks);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { Stop(); }

  // To the process of this incarnation; dropped if it is gone.
  void Send(uint64_t incarnation, std::string_view message) ABSL_LOCKS_EXCLUDED(mu_);
  // Kills the process, with this cause and reason of its loss; a new one follows.
  void Restart(LossCause cause, std::string reason) ABSL_LOCKS_EXCLUDED(mu_);
  // The same, if the process is that of this incarnation.
  void Kill(uint64_t incarnation, LossCause cause, std::string reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the process and the thread. No callback runs afterwards.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // Of the process that runs; -1: none.
  pid_t pid() const { return pid_; }
  // Since the process that runs last answered; 0 while it answers.
  absl::Duration silence() const { return absl::Nanoseconds(silence_nanos_.load()); }
  // What the process that runs is doing, as Suspect of its page says.
  InFlightOp in_flight() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Life;

  void Run();
  // Runs one process to its end.
  void Live(uint64_t incarnation);
  void Talk(Life& life);
  bool Flush(Life& life);
  bool Receive(Life& life);
  // Asks the process whether it still takes its commands, and sees how long it has not answered.
  void Ask(Life& life);
  void Wake();
  void Condemn(LossCause cause, std::string reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What of the frame the socket does not take at once.
  std::string SendNow(std::string frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool WaitUnlessStopped(absl::Duration time);

  const SupervisorOptions options_;
  const Callbacks callbacks_;
  int wake_fd_ = -1;  // eventfd
  std::atomic<pid_t> pid_{-1};
  std::atomic<int64_t> silence_nanos_{0};

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t current_ ABSL_GUARDED_BY(mu_) = 0;          // incarnation; 0: none
  int socket_ ABSL_GUARDED_BY(mu_) = -1;               // of the process; borrowed from its Life
  InFlightPage* page_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the process
  bool flushing_ ABSL_GUARDED_BY(mu_) = false;  // the thread has a message that is not sent whole
  std::deque<std::string> outgoing_ ABSL_GUARDED_BY(mu_);
  std::optional<ProcessLoss> condemned_ ABSL_GUARDED_BY(mu_);  // the process is to be killed

  // The thread's own.
  absl::Duration backoff_ = absl::ZeroDuration();
  std::thread thread_;  // Last.
};

}  // namespace tessera::worker
