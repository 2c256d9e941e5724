// The coordinator and the worker's daemon as children of this process: starts them, restarts those
// that exit, and terminates them.
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
  // Runs the program `name`, "tessera-worker", found next to this executable or in PATH. Its stdout
  // and stderr go to the file `log`, which is truncated. It gets a process group of its own, so
  // that Ctrl-C reaches this process alone.
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
  // How the process exited, human-readable; nullopt while it runs.
  std::optional<std::string> ExitDescription();
  // The exit status; nullopt while the process runs, and if a signal killed it.
  std::optional<int> exit_status() const { return exit_status_; }
  // The error for a process that has exited by itself, with the last lines of its log.
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

// Exponential backoff between restarts: one second, doubled each time up to 30 seconds, and reset
// after a process has run for a minute.
class RestartPolicy {
 public:
  // How long to wait before the restart of a process that ran for `uptime`; nullopt: do not restart
  // it. `exit_status` is nullopt if a signal killed it. kExitNonRetryable is final at the first
  // start, and later if it comes twice in a row, since the port that the previous process held may
  // take a while to be free.
  std::optional<absl::Duration> NextBackoff(std::optional<int> exit_status, absl::Duration uptime);

  static constexpr int kExitNonRetryable = 2;

 private:
  bool first_ = true, non_retryable_ = false;  // of the last exit
  absl::Duration next_backoff_;
};

// A running daemon, and the arguments to start it with after it has ended.
struct SupervisedProcess {
  ManagedProcess* process = nullptr;
  std::vector<std::string> args;
};

// Restarts the processes that exit, and prints a line about each, until Ctrl-C, which is no error,
// or until the policy gives one up: returns its ExitError. Calls `on_poll`, if given, at every
// poll.
absl::Status Supervise(Context& context, const std::vector<SupervisedProcess>& processes,
                       const std::function<void()>& on_poll = nullptr);

}  // namespace tessera::cli
