// The coordinator's gRPC server. It serves all services, health and reflection on one listener.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/metrics.h"
#include "ir/serial/process_report.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/call.h"
#include "server/rpc/credentials.h"
#include "server/rpc/gate.h"
#include "server/rpc/health_status.h"

namespace tessera::server::rpc {

struct ServeOptions {
  std::string listen = "127.0.0.1:0";  // address, where port 0 stands for any free port
  // Allows plaintext on a non-loopback address.
  bool insecure = false;
  TlsFiles tls = {};
  // The key that signs workers' certificates, together with tls.ca_file. If it is empty, no worker
  // can enrol.
  std::string ca_key_file = {};
  // The gate, which outlives the server. If it is null, every caller is an administrator.
  Gate* gate = nullptr;
  // The metrics, which outlive the server. If it is null, calls are not counted.
  Metrics* metrics = nullptr;
  HealthStatus health = {};  // the initial status
  // The reader of programs, which outlives the server. If it is null, programs are read in this
  // process.
  core::ProgramReader* reader = nullptr;
  // The source of ListTopPrograms. If it is empty, the list is empty.
  TopProgramsFn top_programs = {};
  // The source of the coordinator's report about itself.
  ir::serial::ProcessSources sources = {};
  // The enabled features, for GetCapabilities.
  std::vector<std::string> features = {};
};

// Thread-safe.  The coordinator outlives the server.  The destructor shuts the server down.
class Server {
 public:
  virtual ~Server() = default;
  // Returns the address, such as "127.0.0.1:41234".
  virtual const std::string& address() const = 0;
  virtual int port() const = 0;
  virtual void SetHealth(const HealthStatus& status) = 0;
  // Rejects new calls, gives the calls in progress the time `grace`, and then cancels them.  Health
  // becomes NOT_SERVING.
  virtual void Shutdown(absl::Duration grace) = 0;
};

// Starts a server. Returns VALUE_ERROR for an invalid address, for a non-loopback address with
// neither TLS nor `insecure`, and for TLS files that cannot be read or do not belong together.
// Returns UNAVAILABLE if the address cannot be bound.
absl::StatusOr<std::unique_ptr<Server>> Serve(const ServeOptions& options,
                                              Coordinator* coordinator);

}  // namespace tessera::server::rpc
