// Runs the processes of one executor, one after the other. core.h decides when a process starts and
// ends; the supervisor starts and ends it, and posts events about it.
//
// Messages go over a socket between this daemon and the process, in order. The process sends one
// message when it is ready, and afterwards answers to inquiries. An empty message is a ping or a
// pong. The process replies to a ping at once, unless it is stuck in a command, so that a busy
// process can be told from a frozen one.
//
// Thread-safe. No function blocks, except that Stop joins the thread. The supervisor's own thread
// starts every process, since the kernel kills a process when the thread that started it exits.
// Events are posted from that thread, in order.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/child_process.h"
#include "worker/daemon/core.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {

struct SupervisorOptions {
  int32_t executor = 0;  // index of the executor
  std::string binary = "/proc/self/exe";
  std::string title;  // argv[0], as ps shows it; "" for the name of the binary
  // Returns the arguments of a process. The process has the socket at descriptor 3, the in-flight
  // page at 4, and `fds` from 5 on.
  std::function<std::vector<std::string>(uint64_t incarnation)> args;
  std::vector<int> fds;  // borrowed
  int num_devices = 1;
  // Parses the message by which a process describes itself. Returns nullopt if it does not parse.
  std::function<std::optional<api::ExecutorInfo>(const std::string& message)> parse_ready;
  // Takes an answer of a process. Returns false if the message is no answer. Null if no answers are
  // expected.
  std::function<bool(const std::string& message)> take_answer = nullptr;
  // Takes the events about the processes. Must not block.
  std::function<void(daemon::Event event)> post;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { Stop(); }

  // Sends a message to the running process, whichever it is. Returns false if none runs.
  bool SendToCurrent(std::string_view message) ABSL_LOCKS_EXCLUDED(mu_);
  // Starts a process; the previous one must have ended. Posts ChildStarted or SpawnFailed.
  void Start(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  // The next three functions do nothing if the process of this incarnation has ended.
  void Send(uint64_t incarnation, std::string_view message) ABSL_LOCKS_EXCLUDED(mu_);
  // Closes the process's input. Messages that still wait are dropped.
  void CloseInput(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  void Kill(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  // Kills the process, if one runs, and ends the thread. No event is posted afterwards.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // The pid of the running process, or -1 if none runs.
  pid_t pid() const { return pid_; }
  // The op that the running process executes, according to LikelyCulprit of its page.
  InFlightOp in_flight() ABSL_LOCKS_EXCLUDED(mu_);
  // See InFlightPage::told_ns. Returns 0 if no process runs.
  int64_t told_ns() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct ChildSession;

  void Run();
  // Waits for the next Start and returns the incarnation, or 0 if the supervisor stops.
  uint64_t AwaitStart() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs one process to its end.
  void RunProcess(uint64_t incarnation);
  ProcessEnd ServeSocket(ChildSession& child);
  bool Flush(ChildSession& child);
  bool Receive(ChildSession& child);
  void EndSocket(ChildSession& child);
  // Kills the process if Kill or Stop was called, and closes its input if CloseInput was called.
  void ApplyRequests(ChildSession& child) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake();

  const SupervisorOptions options_;
  int wake_fd_ = -1;  // eventfd
  std::atomic<pid_t> pid_{-1};

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The incarnations of the process to start and of the running process; 0 if there is none.
  uint64_t next_incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t current_incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  InFlightPage* page_ ABSL_GUARDED_BY(mu_) = nullptr;  // in-flight page of the running process
  std::deque<std::string> outgoing_ ABSL_GUARDED_BY(mu_);
  bool kill_requested_ ABSL_GUARDED_BY(mu_) = false;  // whether the process must be killed
  // whether the input of the process must be closed
  bool close_input_requested_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last, since it uses the members above
};

}  // namespace tessera::worker
