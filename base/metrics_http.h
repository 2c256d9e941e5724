// Serves /metrics over HTTP in Prometheus' text format, and the same at /healthz for liveness
// probes.
//
// Only metrics_http.cc uses prometheus-cpp. The server has a few threads, which call
// Metrics::Collect only, and times out clients that do not read. `metrics` outlives it. It adds
// metrics of its own, exposer_*.
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

  // `listen` is HOST:PORT; port 0 takes any free one. VALUE_ERROR: not an address. UNAVAILABLE: the
  // address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              Metrics* metrics);
  // Starts the server of a daemon. `listen` is the option metrics_listen: "off" returns null; empty
  // means `default_address`, or any free port if that one is taken by another daemon of this
  // machine. Logs the address, and writes it atomically to `port_file` unless that is empty.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> StartForDaemon(
      const std::string& listen, const std::string& default_address, const std::string& port_file,
      Metrics* metrics);
};

// What the server serves, but for its own.
std::string MetricsText(Metrics* metrics);

}  // namespace tessera
