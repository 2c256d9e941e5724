// The daemon of a worker: starts its executor processes, registers them with the coordinator, tells
// it which of them come, go and stand still, and kills those that it is told to kill.
//
// It holds no device state, and executors talk to the coordinator themselves. When the daemon's
// connection to the coordinator ends it registers again, with retries unless the error is not
// retryable; its executors go on for the coordinator's outage grace, and are restarted then or when
// the coordinator does not adopt them.
// Thread-safe; the destructor ends everything within about a second.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "ir/serial/process_report.h"
#include "worker/rpc/link.h"

namespace tessera::worker::rpc {

inline constexpr int kAllGpus = -1;
inline constexpr int kDataPort = 8471, kPeerPort = 8472;  // of executor 0

struct WorkerDaemonOptions {
  CoordinatorAccess coordinator;
  std::string name, host;
  int num_devices = 1;  // CPU devices, all of one executor
  // Not 0: GPUs in place of CPU devices, each with its executor. kAllGpus: all that the plugin at
  // `cuda_plugin` finds; if none, logs the reason and uses the CPU devices.
  int num_gpus = 0;
  std::string cuda_plugin;
  int64_t memory_bytes = 0;  // per device; 0: as the backend decides
  // For executor 0. Executor i adds 2 i to every port that is not 0, so that a worker with n
  // executors, data and peer in turn, uses 2 n consecutive ports. Empty: the well-known ports on
  // loopback or, if one is taken, any.
  std::string data_listen = "127.0.0.1:0";
  std::string peer_listen = "127.0.0.1:0";
  // How clients and peers reach the two, host or host:port; empty: as listened on. Ports as above.
  std::string advertise_client, advertise_peer;
  // gRPC listens by itself, with TLS: the data ports are only reserved (see data_server.h).
  bool data_tls = false;
  // Additional flags for executors.
  std::vector<std::string> executor_flags;
  std::string binary = "/proc/self/exe";  // started as an executor with --executor
  absl::Duration collective_timeout = absl::Seconds(5);
  // Where the flight recorders of executors that ended are written; empty: nowhere.
  std::string flight_folder;
  ir::serial::ProcessSources sources = {};  // what the daemon says of itself
  Metrics* metrics = nullptr;               // outlives the daemon; null: metrics are disabled
  // Called once, on a thread of the daemon, with the error for which the coordinator permanently
  // rejects this worker: its name, its credentials, plaintext against TLS. The daemon stops
  // retrying.
  std::function<void(const absl::Status& why)> on_refused = nullptr;
  // Called on a thread of the daemon each time that the coordinator has accepted this worker.
  std::function<void()> on_registered = nullptr;
};

class WorkerDaemon {
 public:
  // Counts the GPUs if it is to, binds the ports; the rest happens in the background.
  static absl::StatusOr<std::unique_ptr<WorkerDaemon>> Start(WorkerDaemonOptions options);
  virtual ~WorkerDaemon() = default;

  // The advertised data endpoint of executor 0, and the listening addresses of both its ports.
  virtual std::string data_endpoint() const = 0;
  virtual std::string data_address() const = 0;
  virtual std::string peer_address() const = 0;
  // The pid of an executor's process; -1 while there is none.
  virtual int executor_pid(int executor = 0) const = 0;
};

}  // namespace tessera::worker::rpc
