// The coordinator's gRPC server: every service, health and reflection, on one listener.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/metrics.h"
#include "ir/serial/process_report.h"
#include "server/coordinator.h"
#include "server/rpc/call.h"
#include "server/rpc/credentials.h"
#include "server/rpc/gate.h"
#include "server/rpc/health_status.h"

namespace tessera::server::rpc {

struct ServeOptions {
  std::string listen = "127.0.0.1:0";  // port 0: any free one
  // Allows plaintext on a non-loopback address.
  bool insecure = false;
  TlsFiles tls = {};
  // Signs workers' certificates together with tls.ca_file; empty: none can enrol.
  std::string ca_key_file = {};
  // Outlives the server; null: every caller is an administrator.
  Gate* gate = nullptr;
  // Outlives it too; null: metrics are disabled.
  Metrics* metrics = nullptr;
  HealthStatus health = {};  // the initial status
  // What reads programs; outlives it too. Null: it reads them in this process.
  core::ProgramReader* reader = nullptr;
  // The source of ListTopPrograms; empty: its list is empty.
  TopProgramsFn top_programs = {};
  // What the coordinator's process says of itself.
  ir::serial::ProcessSources sources = {};
  // The enabled features, for GetCapabilities.
  std::vector<std::string> features = {};
};

// Thread-safe.  The coordinator outlives it.  The destructor shuts down.
class Server {
 public:
  virtual ~Server() = default;
  // "127.0.0.1:41234".
  virtual const std::string& address() const = 0;
  virtual int port() const = 0;
  virtual void SetHealth(const HealthStatus& status) = 0;
  // Rejects new calls, gives those in progress `grace`, then cancels them.  Health becomes
  // NOT_SERVING.
  virtual void Shutdown(absl::Duration grace) = 0;
};

// VALUE_ERROR: an invalid address, a non-loopback one with neither TLS nor `insecure`, or files
// that do not read or match.  UNAVAILABLE: cannot bind.
absl::StatusOr<std::unique_ptr<Server>> Serve(const ServeOptions& options,
                                              Coordinator* coordinator);

}  // namespace tessera::server::rpc
