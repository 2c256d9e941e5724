// Serves /metrics over HTTP in Prometheus' text format. It serves the same page at /healthz, for
// liveness probes.
//
// Only metrics_http.cc uses prometheus-cpp. The server has a few threads of its own. The only thing
// that they call in Tessera is Metrics::Collect. It disconnects clients that do not read. `metrics`
// must outlive the server. The server adds metrics of its own, exposer_*.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/metrics.h"

namespace tessera {

class MetricsServer {
 public:
  virtual ~MetricsServer() = default;
  // Returns the address on which the server listens, for example "127.0.0.1:41234".
  virtual const std::string& address() const = 0;

  // Starts a server on `listen`, which is HOST:PORT; port 0 takes any free port. Returns
  // VALUE_ERROR if `listen` is not an address, and UNAVAILABLE if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              Metrics* metrics);
  // Starts the server of a daemon. `listen` is the value of the option metrics_listen. If it is
  // "off", returns null. If it is empty, listens on `default_address`, or on any free port if
  // another daemon of this machine has taken that address. Logs the address. If `port_file` is not
  // empty, also writes the address to that file atomically.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> StartForDaemon(
      const std::string& listen, const std::string& default_address, const std::string& port_file,
      Metrics* metrics);
};

// Returns the page that the server serves, without the server's own metrics.
std::string MetricsText(Metrics* metrics);

}  // namespace tessera
