// A cluster of real processes on this machine: tessera-coordinator and some tessera-worker daemons
// with their executors, on free loopback ports.
//
// Thread-compatible; made and destroyed on one thread, with which every process dies: the kernel
// kills the daemons when that thread ends, however it does, and the daemons' executors with them.
// Whatever the processes log goes to files that Logs() reads and the destructor deletes.
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

// A child of this process. Killed and reaped by the destructor.
class Process {
 public:
  // Standard error goes to `log`, which it is appended to; standard output too, unless
  // `output` is given: then that descriptor becomes it.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::string& binary,
                                                        const std::vector<std::string>& args,
                                                        const std::string& log, int output = -1);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // How it ended, as waitpid says; nothing if it has not within `patience`.
  std::optional<int> Wait(absl::Duration patience);

 private:
  explicit Process(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  std::optional<int> end_;
};

struct ClusterOptions {
  int workers = 2;
  int devices_per_worker = 2;
  std::vector<std::string> coordinator_flags, worker_flags;
  // Above 0: in place of the CPU devices. -1: the worker looks for itself.
  int gpus_per_worker = 0;
  // Variables of worker w's environment beside this process's, "NAME=value".
  std::function<std::vector<std::string>(int w)> worker_env;
  ConnectOptions connect = {};  // of the session

  int num_devices() const {
    return workers * (gpus_per_worker > 0 ? gpus_per_worker : devices_per_worker);
  }
};

class Cluster {
 public:
  // Returns once every device is there.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(const ClusterOptions& options = {});
  ~Cluster();

  // Of the coordinator, host:port.
  const std::string& address() const { return address_; }
  // A session over gRPC, shared by all who ask.
  const std::shared_ptr<Session>& session() const { return session_; }

  Process& coordinator() { return *coordinator_; }
  Process& worker(int w) { return *workers_[w]; }
  // The daemon's child; -1 while there is none.
  int executor_pid(int w) const;
  // Every process of the cluster that runs; and of these the coordinator, the daemons and the
  // executors, which stay as they are while nothing is lost (compilers come and go).
  std::vector<int> pids() const;
  std::vector<int> members() const;

  // Starts the coordinator, which has ended or is killed by this, again at its address.
  absl::Status RestartCoordinator();
  // Starts worker `w`, which has ended, again under its name.
  absl::Status RestartWorker(int w);
  absl::Status AwaitHealthyDevices(int count, absl::Duration patience = absl::Seconds(20)) const;

  // What the processes have logged.
  std::string Logs() const;

 private:
  Cluster(const ClusterOptions& options, std::string folder)
      : options_(options), folder_(std::move(folder)) {}
  std::vector<int> Running(std::vector<int> (*of_worker)(int pid)) const;
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
