// Daemons as children of this process: found, started, watched and ended.
//
// Thread-compatible; used on the main thread, with which the daemons end: they get SIGTERM when it
// does, however it does.
#pragma once
#include <sys/types.h>

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
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  // Ends it: SIGTERM, and SIGKILL after a few seconds.
  ~Daemon();

  pid_t pid() const { return pid_; }
  // How it ended, for people; nothing while it runs.
  std::optional<std::string> Ended();
  // The error of a daemon that ended by itself, with the last lines of its log.
  absl::Status Why();

 private:
  Daemon(std::string name, pid_t pid, std::string log)
      : name_(std::move(name)), pid_(pid), log_(std::move(log)) {}

  const std::string name_;
  const pid_t pid_;
  const std::string log_;
  std::optional<std::string> end_;
};

// Waits until one of them ends, which is an error, or until Ctrl-C, which is none.
absl::Status WatchDaemons(const Context& context, const std::vector<Daemon*>& daemons);

}  // namespace tessera::cli
