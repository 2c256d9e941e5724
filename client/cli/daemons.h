// Daemons as children of this process: found, started, watched, started again and ended.
//
// Thread-compatible; used on the main thread. The daemons get SIGTERM when that thread ends,
// however it does.
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

class Daemon {
 public:
  // `name` of the program, "tessera-worker": beside this one, or in PATH. What it prints goes to
  // `log`, which is begun anew. In a process group of its own, so that Ctrl-C is ours alone.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const std::string& name,
                                                       const std::vector<std::string>& args,
                                                       const std::string& log);
  // The same program once more, after it has ended. Its log goes on.
  absl::Status StartAgain(const std::vector<std::string>& args);
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  // Ends it: SIGTERM, and SIGKILL after a few seconds.
  ~Daemon();

  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }
  // How it ended, for people; nothing while it runs.
  std::optional<std::string> Ended();
  // Its exit status, once it has ended; none if a signal ended it.
  std::optional<int> exit_status() const { return exit_status_; }
  // The error for a daemon that ended by itself, with the last lines of its log.
  absl::Status Why();

 private:
  Daemon(std::string name, std::string binary, std::string log)
      : name_(std::move(name)), binary_(std::move(binary)), log_(std::move(log)) {}
  absl::Status Spawn(const std::vector<std::string>& args, int log_flags);

  const std::string name_, binary_, log_;
  pid_t pid_ = -1;
  std::optional<std::string> end_ = "has not started";
  std::optional<int> exit_status_;
};

// When a daemon that ended is started again: after a second, then after twice as long each time, at
// most half a minute; from a second once more when it has run for a minute.
class RestartPolicy {
 public:
  // `exit_status`: nullopt if a signal ended it; `ran`: how long it had run. nullopt: do not start
  // it again. Daemons exit with kHopeless when that cannot help: at their first start it is final,
  // and later when it comes twice in a row, since a port that the last process held may take a
  // while to be free.
  std::optional<absl::Duration> AfterEnd(std::optional<int> exit_status, absl::Duration ran);

  static constexpr int kHopeless = 2;

 private:
  bool first_ = true, hopeless_ = false;
  absl::Duration next_;
};

// A running daemon, and the arguments to start it with after it has ended.
struct Supervised {
  Daemon* daemon = nullptr;
  std::vector<std::string> args;
};

// Starts again what ends, a line for each, until Ctrl-C, which is no error, or until starting one
// again does not help: the error says why. Calls `look`, if given, several times a second.
absl::Status Supervise(Context& context, const std::vector<Supervised>& daemons,
                       const std::function<void()>& look = nullptr);

}  // namespace tessera::cli
