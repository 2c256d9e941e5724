// Serves an executor's DataService on the worker's data port.
//
// In plaintext it accepts connections on a listening socket that the daemon keeps open, so that
// clients wait in its backlog while an executor process restarts. With certificates that socket is
// only bound and does not listen. The server then listens on its own socket, which shares the port:
// no other process can take the port meanwhile, and clients that connect too early are rejected and
// retry. The executor outlives the server. Thread-safe. The destructor ends running calls.
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
  absl::Duration read_timeout = absl::Seconds(30);  // how long a client may take to read a chunk
  Keepalive keepalive = {};
  // The server's certificate and key, as PEM; empty for plaintext. Clients present a ticket and
  // need no certificate.
  std::string certificates, key;
  MetricsPage* metrics = nullptr;  // outlives the server; null if metrics are disabled
};

class DataServer {
 public:
  static std::unique_ptr<DataServer> Start(const DataServerOptions& options, Executor* executor);
  virtual ~DataServer() = default;
  // Sets the key for tickets; before the first call no ticket is accepted. `clock_ahead` says how
  // far the clock by which tickets expire is ahead of SteadyNow. A restarted coordinator derives
  // the same key from its store, so tickets of its earlier life hold until they expire.
  virtual void SetTicketKey(const std::string& key, absl::Duration clock_ahead) = 0;
  virtual UploadTable::Counts uploads() const = 0;
};

}  // namespace tessera::worker::rpc
