// Serves an executor's DataService on a listening socket that somebody else bound.
//
// The executor outlives it. Thread-safe. The destructor ends calls that are under way.
#pragma once
#include <memory>
#include <string>

#include "worker/runtime/executor.h"

namespace tessera::worker::rpc {

struct DataServerOptions {
  int listen_fd = -1;  // borrowed; made non-blocking
  int64_t shard_bytes_max = int64_t{1} << 40;
};

class DataServer {
 public:
  static std::unique_ptr<DataServer> Start(const DataServerOptions& options, Executor* executor);
  virtual ~DataServer() = default;
  // Checks tickets from now on; until then nobody has one.
  virtual void SetTicketKey(const std::string& key) = 0;
};

}  // namespace tessera::worker::rpc
