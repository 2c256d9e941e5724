// A process of ours: this binary, started anew with other arguments.
//
// Owned by one thread, which must outlive it: the kernel kills the child when the thread that
// started it ends, so none is ever left behind. The destructor kills and reaps.
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
  bool by_signal = false;
  std::string reason;  // "killed by signal 9 (Killed)"
};

class ChildProcess {
 public:
  // Runs `binary` with `args`; descriptor k of `fds` becomes 3 + k in the child, which gets no
  // others beside the standard ones, however they were opened. `bare`: of this process's
  // environment only what programs need to start (libraries, sanitizers), and no standard input:
  // for a child that works on what strangers sent. `title`, unless empty, is what ps shows in the
  // binary's place.
  static absl::StatusOr<ChildProcess> Spawn(const std::string& binary,
                                            const std::vector<std::string>& args,
                                            const std::vector<int>& fds, bool bare = false,
                                            const std::string& title = "");
  ChildProcess(ChildProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Readable once the child has ended; -1 where the kernel has none.
  int pidfd() const { return pidfd_; }
  void Kill(int signal) const;
  // Once it has ended; it is then reaped.
  std::optional<ProcessEnd> Reap();

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  pid_t pid_;
  int pidfd_;
};

// What `binary`, run to its end, writes to descriptor 3: at most 64 KiB. DEADLINE_EXCEEDED, and it
// is killed, if it takes longer than `timeout`; INTERNAL if it does not start or says nothing.
absl::StatusOr<std::string> AnswerOf(const std::string& binary,
                                     const std::vector<std::string>& args, absl::Duration timeout);

// For the child, first thing: dies with `parent`, by SIGKILL.
void DieWithParent(pid_t parent);

}  // namespace tessera
