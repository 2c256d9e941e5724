// A cluster of real processes on this machine: a tessera-coordinator and some tessera-worker
// daemons with their executors, on free loopback ports.
//
// Thread-compatible. A cluster must be made and destroyed on one thread: when that thread ends, for
// whatever reason, the kernel kills the daemons, and the executors of a daemon die with it. The
// processes log to files, which Logs() reads and the destructor deletes.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/tessera.h"

namespace tessera::service {

// A child process of this process. The destructor kills and reaps it.
class Process {
 public:
  // Starts `binary` and appends its standard error to the file `log`. Standard output goes to the
  // descriptor `output_fd` if that is given, and otherwise to `log` too.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::string& binary,
                                                        const std::vector<std::string>& args,
                                                        const std::string& log, int output_fd = -1);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Waits for the process to end and returns its status in the form that waitpid uses. Returns
  // nullopt if the process has not ended within `patience`.
  std::optional<int> Wait(absl::Duration patience);

 private:
  explicit Process(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  std::optional<int> wait_status_;
};

struct ClusterOptions {
  int workers = 2;
  int devices_per_worker = 2;
  std::vector<std::string> coordinator_flags, worker_flags;
  // number of GPUs that replace the CPU devices; with -1 the worker looks for GPUs itself
  int gpus_per_worker = 0;
  // Returns environment variables ("NAME=value") that worker w gets in addition to those of this
  // process.
  std::function<std::vector<std::string>(int w)> worker_env;
  ConnectOptions connect = {};  // options of the connection of Cluster::session()

  int num_devices() const {
    return workers * (gpus_per_worker > 0 ? gpus_per_worker : devices_per_worker);
  }
};

class Cluster {
 public:
  // Starts the processes. Returns once every device is healthy.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(const ClusterOptions& options = {});
  ~Cluster();

  // Returns the coordinator's address as host:port.
  const std::string& address() const { return address_; }
  // Returns the session over gRPC that all users of this cluster share.
  const std::shared_ptr<Session>& session() const { return session_; }

  Process& coordinator() { return *coordinator_; }
  Process& worker(int w) { return *workers_[w]; }
  // Returns the process id of worker w's executor, or -1 if the daemon has no child process.
  int executor_pid(int w) const;
  // pids() returns the process ids of all running processes of the cluster. member_pids() returns
  // only those of the coordinator, the daemons and the executors, which stay the same while nothing
  // is lost. Compiler processes come and go.
  std::vector<int> pids() const;
  std::vector<int> member_pids() const;

  // Starts the coordinator again at the same address. Kills it first if it still runs.
  absl::Status RestartCoordinator();
  // Starts worker `w` again under the same name. Kills it first if it still runs.
  absl::Status RestartWorker(int w);
  absl::Status AwaitHealthyDevices(int count, absl::Duration patience = absl::Seconds(20)) const;

  // Returns the log text of all processes.
  std::string Logs() const;

 private:
  Cluster(const ClusterOptions& options, std::string folder)
      : options_(options), folder_(std::move(folder)) {}
  // Returns the processes that run, with those that `of_daemon` finds for each daemon.
  std::vector<int> RunningPids(std::vector<int> (*of_daemon)(int pid)) const;
  absl::Status StartCoordinator();
  absl::Status StartWorker(int w);
  std::string LogFile(const std::string& name) const { return folder_ + "/" + name + ".log"; }

  const ClusterOptions options_;
  const std::string folder_;
  std::string address_;
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::shared_ptr<Session> session_;
};

}  // namespace tessera::service
