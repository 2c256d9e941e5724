// Serves an executor's DataService on the worker's data port.
//
// In plaintext it accepts on a listening socket that the daemon keeps open, so that clients wait in
// its backlog while an executor process restarts. With certificates that socket is only bound and
// does not listen; the server listens on a socket of its own and shares the port with it: no other
// process can take the port meanwhile, and clients that connect too early are rejected and retry.
// The executor outlives it. Thread-safe. The destructor ends running calls.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/keepalive.h"
#include "base/metrics_page.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/upload_table.h"

namespace tessera::worker::rpc {

struct DataServerOptions {
  int listen_fd = -1;  // borrowed; made non-blocking
  int64_t shard_bytes_max = int64_t{1} << 40;
  UploadTable::Options uploads = {};
  absl::Duration read_idle = absl::Seconds(30);  // timeout for a client to read a chunk
  Keepalive keepalive = {};
  // PEM. Empty: plaintext. Clients present a ticket and need no certificate.
  std::string certificates, key;
  MetricsPage* metrics = nullptr;  // outlives the server; null: metrics are disabled
};

class DataServer {
 public:
  static std::unique_ptr<DataServer> Start(const DataServerOptions& options, Executor* executor);
  virtual ~DataServer() = default;
  // Sets the key for tickets, of which there are none before this. Those of the last key hold until
  // they expire, since what a coordinator began before it went away goes on. `clock_ahead`: by how
  // much the clock by which they expire is ahead of SteadyNow.
  virtual void SetTicketKey(const std::string& key, absl::Duration clock_ahead) = 0;
  virtual UploadTable::Counts uploads() const = 0;
};

}  // namespace tessera::worker::rpc
