// A child process.
//
// Owned by one thread, which must outlive it: the kernel kills the child when the thread that
// started it exits, so no child is orphaned. The destructor kills and reaps it.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

struct ProcessEnd {
  int signal = 0;        // that killed it; 0: it exited
  std::string reason;    // "killed by signal 9 (Killed)"
  int exit_status = -1;  // unless by signal
};

class ChildProcess {
 public:
  // Runs `binary` with `args`. The child inherits the standard descriptors and `fds`, of which
  // number k becomes 3 + k. `minimal_environment`: it gets only the environment variables that
  // programs need to start (libraries, sanitizers), and neither standard input nor output: for
  // children that process untrusted input. `title`, unless empty, is argv[0], which ps shows.
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
  // A pidfd, readable once the child has exited; -1 if the kernel does not support it.
  int pidfd() const { return pidfd_; }
  void Kill(int signal) const;
  // Reaps the child if it has exited; else nullopt.
  std::optional<ProcessEnd> Reap();

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  pid_t pid_;
  int pidfd_;
};

// Runs `binary` until it exits and returns what it wrote to descriptor 3, at most 64 KiB. It is
// killed after `timeout` (DEADLINE_EXCEEDED); INTERNAL if it does not start or writes nothing.
absl::StatusOr<std::string> RunAndCapture(const std::string& binary,
                                          const std::vector<std::string>& args,
                                          absl::Duration timeout);

// Called by the child first: the kernel will kill it when `parent` exits.
void DieWithParent(pid_t parent);

}  // namespace tessera
