// Serves the metrics of a daemon with prometheus-cpp. A daemon's main starts the server, and
// Prometheus requests the page every few seconds; each request calls Metrics::Collect.
#include "base/metrics_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "prometheus/client_metric.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"
#include "prometheus/text_serializer.h"

namespace tessera {
namespace {

constexpr char kThreads[] = "4";
constexpr char kTimeoutMs[] = "10000";

prometheus::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric ToPrometheus(const MetricInfo& info, const MetricSample& sample) {
  prometheus::ClientMetric out;
  for (size_t l = 0; l < info.labels.size(); ++l) {
    out.label.push_back({info.labels[l].name, sample.labels[l]});
  }
  if (info.type == MetricType::kCounter) out.counter.value = sample.value;
  if (info.type == MetricType::kGauge) out.gauge.value = sample.value;
  if (info.type != MetricType::kHistogram) return out;
  uint64_t cumulative = 0;
  for (size_t b = 0; b < sample.counts.size(); ++b) {
    cumulative += sample.counts[b];
    const bool last = b == info.buckets->bounds.size();
    out.histogram.bucket.push_back(
        {cumulative, last ? std::numeric_limits<double>::infinity() : info.buckets->bounds[b]});
  }
  // The count is computed from the buckets, so that the two always agree.
  out.histogram.sample_count = cumulative;
  out.histogram.sample_sum = sample.sum;
  return out;
}

class Collectable final : public prometheus::Collectable {
 public:
  explicit Collectable(Metrics* metrics) : metrics_(metrics) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const MetricFamily& family : metrics_->Collect()) {
      prometheus::MetricFamily& out = families.emplace_back();
      out.name = family.info->name;
      out.help = family.info->help;
      out.type = TypeOf(family.info->type);
      for (const MetricSample& sample : family.samples) {
        out.metric.push_back(ToPrometheus(*family.info, sample));
      }
    }
    return families;
  }

 private:
  Metrics* const metrics_;
};

// Connects to 127.0.0.1:`port`, if it can, and closes the connection.
void ConnectAndClose(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  static_cast<void>(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)));
  close(fd);
}

class Server final : public MetricsServer {
 public:
  explicit Server(Metrics* metrics) : collectable_(std::make_shared<Collectable>(metrics)) {}
  ~Server() override {
    if (exposer_ == nullptr) return;
    // The HTTP server checks whether to stop only at each connection or every 2 s, so connect to it
    // until it has stopped.
    absl::Notification stopped;
    std::thread stop([&] {
      exposer_.reset();
      stopped.Notify();
    });
    while (!stopped.WaitForNotificationWithTimeout(absl::Milliseconds(20))) ConnectAndClose(port_);
    stop.join();
  }

  absl::Status Listen(const std::string& listen) {
    const size_t colon = listen.rfind(':');
    int port = 0;
    if (colon == std::string::npos || !absl::SimpleAtoi(listen.substr(colon + 1), &port) ||
        port < 0 || port > 65535) {
      return MakeError(ErrorKind::kValueError, absl::StrCat("metrics_listen: '", listen,
                                                            "' is not HOST:PORT, nor \"off\""));
    }
    try {
      exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
          "listening_ports", listen, "num_threads", kThreads, "request_timeout_ms", kTimeoutMs,
          // Errors of the start are returned below, and clients that disconnect need no log line.
          "error_log_file", "/dev/null"});
    } catch (const std::exception& e) {
      return absl::UnavailableError(absl::StrCat(
          "metrics_listen: ", listen, " cannot be bound; is the port taken? ", e.what()));
    }
    exposer_->RegisterCollectable(collectable_);
    exposer_->RegisterCollectable(collectable_, "/healthz");
    const std::vector<int> ports = exposer_->GetListeningPorts();
    port_ = ports.empty() ? port : ports[0];
    address_ = absl::StrCat(listen.substr(0, colon), ":", port_);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  const std::shared_ptr<Collectable> collectable_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_ = 0;
  std::string address_;
};

// Writes the file atomically, so that a reader never gets half an address.
absl::Status WriteAddress(const std::string& path, const std::string& address) {
  const int error =
      TryReplaceFile(path, address + "\n", {.access = FileAccess::kByUmask, .is_durable = false});
  if (error == 0) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError, absl::StrCat("metrics_port_file: cannot write ", path,
                                                        ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen,
                                                                    Metrics* metrics) {
  auto server = std::make_unique<Server>(metrics);
  TESSERA_RETURN_IF_ERROR(server->Listen(listen));
  return server;
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::StartForDaemon(
    const std::string& listen, const std::string& default_address, const std::string& port_file,
    Metrics* metrics) {
  if (listen == "off") return nullptr;
  auto server = Start(listen.empty() ? default_address : listen, metrics);
  if (!server.ok() && listen.empty()) {
    TESSERA_LOG(WARNING) << "the usual port for metrics is taken" << Field("usual", default_address)
                         << Field("why", server.status().message());
    const std::string host = default_address.substr(0, default_address.rfind(':'));
    server = Start(host + ":0", metrics);
  }
  TESSERA_RETURN_IF_ERROR(server);
  TESSERA_LOG(INFO) << "metrics are served" << Field("address", (*server)->address());
  if (!port_file.empty()) TESSERA_RETURN_IF_ERROR(WriteAddress(port_file, (*server)->address()));
  return server;
}

std::string MetricsText(Metrics* metrics) {
  return prometheus::TextSerializer().Serialize(Collectable(metrics).Collect());
}

}  // namespace tessera
