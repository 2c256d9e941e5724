// The daemon of a worker. It starts the executor processes and registers them with the coordinator.
// It tells the coordinator which of them start, end or stand still, and kills those that the
// coordinator wants killed.
//
// It holds no device state, and executors talk to the coordinator themselves. When the daemon's
// connection to the coordinator ends, it registers again, with retries unless the error is not
// retryable. The executors of the worker go on for the coordinator's outage grace. They are
// restarted when the grace is over, or when the coordinator does not adopt them. Thread-safe. The
// destructor ends everything within about a second.
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

inline constexpr int kDataPort = 8471, kPeerPort = 8472;  // ports of executor 0

struct WorkerDaemonOptions {
  CoordinatorAccess coordinator;
  std::string name, host;
  int num_devices = 1;  // CPU devices, which all belong to one executor
  // GPUs that the worker has instead of CPU devices, each with its own executor, as ChooseGpus
  // parses them; "0" for none. If empty, all GPUs that the plugin at `cuda_plugin` finds; if it
  // finds none, the daemon logs the reason and uses the CPU devices.
  std::string gpus = "0";
  std::string cuda_plugin;
  int64_t memory_bytes = 0;  // per device; 0 if the backend decides
  // The addresses for executor 0. Executor i adds 2 i to every port that is not 0, so that a worker
  // with n executors, with data and peer ports in turn, uses 2 n consecutive ports. If empty, the
  // well-known ports on loopback are used or, if one is taken, any port.
  std::string data_listen = "127.0.0.1:0";
  std::string peer_listen = "127.0.0.1:0";
  // The addresses by which clients and peers reach the two ports, as host or host:port. If empty,
  // they are the listening addresses. The ports are counted up as above.
  std::string advertise_client, advertise_peer;
  // With TLS gRPC listens itself, so the data ports are only reserved (see data_server.h).
  bool data_tls = false;
  // Additional flags for the executors' command lines.
  std::vector<std::string> executor_flags;
  std::string binary = "/proc/self/exe";  // started as an executor with --executor
  absl::Duration collective_timeout = absl::Seconds(5);
  // The folder for the flight recorders of executors that ended. If empty, they are not written.
  std::string flight_folder;
  ir::serial::ProcessSources sources = {};  // the daemon's description of itself
  Metrics* metrics = nullptr;               // outlives the daemon; null if metrics are disabled
  // Called once, on a thread of the daemon, if the coordinator rejects this worker and a retry
  // would not help: because of its name or credentials, say, or because it uses plaintext against
  // TLS. `why` is the error. The daemon then stops retrying.
  std::function<void(const absl::Status& why)> on_refused = nullptr;
  // Called on a thread of the daemon each time the coordinator has accepted this worker.
  std::function<void()> on_registered = nullptr;
};

class WorkerDaemon {
 public:
  // Counts the GPUs if necessary and binds the ports. Everything else happens in the background.
  static absl::StatusOr<std::unique_ptr<WorkerDaemon>> Start(WorkerDaemonOptions options);
  virtual ~WorkerDaemon() = default;

  // The advertised data endpoint of executor 0, and the listening addresses of its two ports.
  virtual std::string data_endpoint() const = 0;
  virtual std::string data_address() const = 0;
  virtual std::string peer_address() const = 0;
  // The pid of an executor's process, or -1 while there is none.
  virtual int executor_pid(int executor = 0) const = 0;
};

}  // namespace tessera::worker::rpc
