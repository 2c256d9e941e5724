// Starts and ends child processes.
//
// A ChildProcess is owned by one thread, which must outlive it: a child that calls DieWithParent is
// killed by the kernel when the thread that started it exits, so that no child is orphaned. The
// destructor kills and reaps the child.
#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

struct ProcessEnd {
  int signal = 0;        // the signal that killed the process; 0 if it exited
  std::string reason;    // the end in words: "killed by signal 9 (Killed)"
  int exit_status = -1;  // the exit status; -1 if a signal killed the process
};

class ChildProcess {
 public:
  // Runs `binary` with `args`. The child inherits the standard descriptors and `fds`; fds[k]
  // becomes descriptor 3 + k in the child. Set `minimal_environment` for children that process
  // untrusted input: the child then gets only the environment variables that choose its code
  // (libraries, sanitizers), and neither standard input nor output. A `title` that is not empty
  // becomes argv[0], which ps shows. Returns INTERNAL if the program cannot be started.
  static absl::StatusOr<ChildProcess> Spawn(const std::string& binary,
                                            const std::vector<std::string>& args,
                                            const std::vector<int>& fds,
                                            bool minimal_environment = false,
                                            const std::string& title = "");
  ChildProcess(ChildProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Returns a pidfd, which becomes readable once the child has exited; -1 if the kernel does not
  // support pidfds.
  int pidfd() const { return pidfd_; }
  void Kill(int signal) const;
  // Reaps the child and returns how it ended. Returns nullopt if the child has not exited yet.
  std::optional<ProcessEnd> Reap();

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  pid_t pid_;
  int pidfd_;
};

// Runs `binary` until it closes descriptor 3 or exits, and returns the bytes that it wrote to that
// descriptor. Stops reading after about 64 KiB. Kills the process after `timeout` and returns
// DEADLINE_EXCEEDED. Returns INTERNAL if the process does not start or writes nothing.
absl::StatusOr<std::string> RunAndCapture(const std::string& binary,
                                          const std::vector<std::string>& args,
                                          absl::Duration timeout);

// Makes the kernel kill the calling process when the thread that started it exits. `parent` is the
// pid of the process of that thread. Call it first in the child.
void DieWithParent(pid_t parent);

// Calls `on_end` on a thread of its own when the process `parent`, which started the calling
// process, has ended. `on_end` must end the calling process. If the kernel does not support pidfds,
// this is DieWithParent. Call it first in the child.
void WatchParent(pid_t parent, std::function<void()> on_end);

}  // namespace tessera
