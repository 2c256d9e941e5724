// Runs the coordinator and the worker's daemon as children of this process: starts them, restarts
// those that exit, and terminates them.
//
// Thread-compatible; used on the main thread. The children get SIGTERM when that thread ends.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/context.h"

namespace tessera::cli {

class ManagedProcess {
 public:
  // Runs the program `name`, such as "tessera-worker", which is looked up next to this executable
  // and in PATH. The program's stdout and stderr go to the file `log`, which is truncated. The
  // program gets a process group of its own, so that Ctrl-C reaches only this process.
  static absl::StatusOr<std::unique_ptr<ManagedProcess>> Start(const std::string& name,
                                                               const std::vector<std::string>& args,
                                                               const std::string& log);
  // Starts the program again after it has exited, and appends to its log.
  absl::Status Restart(const std::vector<std::string>& args);
  ManagedProcess(const ManagedProcess&) = delete;
  ManagedProcess& operator=(const ManagedProcess&) = delete;
  // Sends SIGTERM, and SIGKILL after a grace period.
  ~ManagedProcess();

  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }
  // Returns how the process exited, in words, or nullopt while it runs.
  std::optional<std::string> ExitDescription();
  // Returns the exit status, or nullopt while the process runs or if a signal killed it.
  std::optional<int> exit_status() const { return exit_status_; }
  // Returns the error for a process that has exited by itself, with the last lines of its log.
  absl::Status ExitError();

 private:
  ManagedProcess(std::string name, std::string binary, std::string log)
      : name_(std::move(name)), binary_(std::move(binary)), log_(std::move(log)) {}
  absl::Status Spawn(const std::vector<std::string>& args, int log_flags);

  const std::string name_, binary_, log_;
  pid_t pid_ = -1;
  std::optional<std::string> exit_description_ = "has not started";
  std::optional<int> exit_status_;
};

// Exponential backoff between restarts. The backoff begins at one second and doubles each time, up
// to 30 seconds. It begins anew after a process has run for a minute.
class RestartPolicy {
 public:
  // Returns how long to wait before the restart of a process that ran for `uptime`, or nullopt if
  // the process must not be restarted. `exit_status` is nullopt if a signal killed the process. A
  // daemon exits with kExitNonRetryable if another start would probably fail in the same way, for
  // example because of a wrong flag. A process that exits with this status at its first start is
  // not restarted. Later the status must come twice in a row, because the port of the previous
  // process may take a while to be free.
  std::optional<absl::Duration> NextBackoff(std::optional<int> exit_status, absl::Duration uptime);

  static constexpr int kExitNonRetryable = 2;

 private:
  // Whether the process was never restarted, and whether its last exit status was
  // kExitNonRetryable.
  bool never_restarted_ = true, last_exit_non_retryable_ = false;
  absl::Duration next_backoff_;
};

// A running daemon, and the arguments for its next start.
struct SupervisedProcess {
  ManagedProcess* process = nullptr;
  std::vector<std::string> args;
};

// Restarts the processes that exit, and prints a line about each restart. Returns OK at Ctrl-C. If
// the policy gives up on a process, returns the ExitError of that process. Calls `on_poll`, if
// given, at every poll.
absl::Status Supervise(Context& context, const std::vector<SupervisedProcess>& processes,
                       const std::function<void()>& on_poll = nullptr);

}  // namespace tessera::cli
