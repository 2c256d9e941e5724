// /metrics over HTTP, in Prometheus' text format; and the same at /healthz, whose answer says that
// the daemon lives and no more than that.
//
// The one edge to prometheus-cpp: its types are in metrics_http.cc alone. The server has threads of
// its own, few of them, and gives up on a client that does not read; nothing but Metrics::Collect
// is called from them. `metrics` outlives it. Its own families, exposer_*, are beside those of the
// table.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/metrics.h"

namespace tessera {

class MetricsServer {
 public:
  virtual ~MetricsServer() = default;
  // "127.0.0.1:41234".
  virtual const std::string& address() const = 0;

  // `listen` is HOST:PORT; port 0 takes any free one. VALUE_ERROR: no address. UNAVAILABLE: it
  // cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              Metrics* metrics);
  // What a daemon does: `listen` as the option metrics_listen has it. "off" gives null. Empty is
  // `usual`, or, should that be taken (by another daemon of this machine), any free port. The
  // address is logged, and written whole to `port_file` unless that is empty.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> StartFor(const std::string& listen,
                                                                 const std::string& usual,
                                                                 const std::string& port_file,
                                                                 Metrics* metrics);
};

}  // namespace tessera
