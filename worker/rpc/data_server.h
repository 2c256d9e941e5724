// Serves an executor's DataService on the worker's data port.
//
// Plain text: on a listening socket that somebody else bound and keeps, so that clients wait in its
// backlog while one executor process follows another. With certificates gRPC listens by itself, on
// the address to which that socket is bound (it does not listen), sharing the port with it: nobody
// else can take the port meanwhile, and clients that come too early are refused and come again.
//
// The executor outlives it. Thread-safe. The destructor ends calls that are under way.
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
  absl::Duration read_idle = absl::Seconds(30);  // for a reader to take what it was sent
  Keepalive keepalive = {};
  // PEM. Empty: plain text. Clients show a ticket and need no certificate.
  std::string certificates, key;
  MetricsPage* metrics = nullptr;  // outlives the server; null: nobody looks
};

class DataServer {
 public:
  static std::unique_ptr<DataServer> Start(const DataServerOptions& options, Executor* executor);
  virtual ~DataServer() = default;
  // Checks tickets from now on; until then nobody has one. `clock_ahead`: by how much the clock by
  // which they expire is ahead of SteadyNow.
  virtual void SetTicketKey(const std::string& key, absl::Duration clock_ahead) = 0;
  virtual UploadTable::Counts uploads() const = 0;
};

}  // namespace tessera::worker::rpc
