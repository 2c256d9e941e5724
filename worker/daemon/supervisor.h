// Runs the processes of one executor, one after the other, as it is told to (core.h decides), and
// posts what becomes of them.
//
// Messages over the socket between the two are ordered. The process sends one, when it is ready,
// and after it answers to what it is asked. An empty message is a ping or a pong: the process
// replies to pings at once, unless it does not get through with a command, so that a busy process
// is told from a frozen one.
//
// Thread-safe; nothing blocks, except that Stop joins. Every process is started by the supervisor's
// own thread, since the kernel kills it when that thread exits; events are posted from that thread,
// in order.
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
  int32_t executor = 0;  // index
  std::string binary = "/proc/self/exe";
  std::string title;  // argv[0], as shown by ps; "": the binary
  // Arguments of the incarnation. The process has the socket at descriptor 3, the in-flight page at
  // 4, and `fds` from 5 on.
  std::function<std::vector<std::string>(uint64_t incarnation)> args;
  std::vector<int> fds;  // borrowed
  int num_devices = 1;
  // What a process says of itself, in its message; nullopt if that does not parse.
  std::function<std::optional<api::ExecutorInfo>(const std::string& message)> read_ready;
  // Takes an answer of a process; false: it is none. Null: there are no answers.
  std::function<bool(const std::string& message)> take_answer = nullptr;
  // Takes the events of its processes; must not block.
  std::function<void(daemon::Event event)> post;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { Stop(); }

  // Sends to whichever process runs; false if none does.
  bool SendToCurrent(std::string_view message) ABSL_LOCKS_EXCLUDED(mu_);
  // Starts a process; the last has ended. Posts Started or SpawnFailed.
  void Start(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  // The next three do nothing if the process of this incarnation has ended.
  void Send(uint64_t incarnation, std::string_view message) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends what is sent to it; what still waits is dropped.
  void CloseInput(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  void Kill(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  // Kills the process, if one runs, and ends the thread. No event is posted afterwards.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // The pid of the running process; -1: none.
  pid_t pid() const { return pid_; }
  // The op that the running process executes, by LikelyCulprit of its page.
  InFlightOp in_flight() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct ChildSession;

  void Run();
  // The incarnation of the next process; 0: there is none.
  uint64_t AwaitStart() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs one process to its end.
  void RunProcess(uint64_t incarnation);
  ProcessEnd ServeSocket(ChildSession& life);
  bool Flush(ChildSession& life);
  bool Receive(ChildSession& life);
  void EndSocket(ChildSession& life);
  // Does what the process is meant to suffer.
  void Obey(ChildSession& life) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake();

  const SupervisorOptions options_;
  int wake_fd_ = -1;  // eventfd
  std::atomic<pid_t> pid_{-1};

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;             // incarnation to start; 0: none
  uint64_t current_ ABSL_GUARDED_BY(mu_) = 0;          // incarnation; 0: none
  InFlightPage* page_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the process
  std::deque<std::string> outgoing_ ABSL_GUARDED_BY(mu_);
  bool condemned_ ABSL_GUARDED_BY(mu_) = false;    // the process is to be killed
  bool close_input_ ABSL_GUARDED_BY(mu_) = false;  // its input is to be closed

  std::thread thread_;  // Last.
};

}  // namespace tessera::worker
