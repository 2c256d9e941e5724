// Measures the collectives of launches. The executor and its communicators wrap their Collectives
// in a MeteredCollectives, which records every successful call, and every exchange that devices
// have made by their own library, in the metrics and in the LinkMeter.
#include "worker/runtime/metered_collectives.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::worker {
namespace {

// Returns the number of bytes that the bus carries for each byte of the rank's input, as nccl-tests
// defines it.
double BusFactor(ir::CollectiveKind kind, size_t group_size) {
  const auto n = static_cast<double>(group_size);
  const ir::CollectiveInfo& info = ir::InfoOf(kind);
  if (n == 0 || kind == ir::CollectiveKind::kBarrier) return 0;
  if (info.in == ir::BlockCount::kEach) return (n - 1) / n;
  if (info.out == ir::BlockCount::kEach) return n - 1;
  return info.combines ? 2 * (n - 1) / n : 1;
}

// Returns the number of rounds of messages, as the planner's cost model counts them: a collective
// takes the latency of the link once per round.
double NumRounds(ir::CollectiveKind kind, size_t group_size) {
  const ir::CollectiveInfo& info = ir::InfoOf(kind);
  if (group_size < 2) return 0;
  if (info.paired) return 1;
  const double rounds = std::ceil(std::log2(static_cast<double>(group_size)));
  return info.combines && info.in == ir::BlockCount::kOne ? 2 * rounds : rounds;
}

class MeteredCollectives final : public Collectives {
 public:
  MeteredCollectives(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                     const ExecutorMetrics* metrics, LinkMeter* link_meter,
                     std::vector<int> executor_by_rank)
      : inner_(std::move(inner)),
        backend_(backend),
        metrics_(metrics),
        link_meter_(link_meter),
        executor_by_rank_(std::move(executor_by_rank)) {}

  absl::Status Run(const Call& call) override {
    const int64_t began = AgeGauge::Now();
    absl::Status status = inner_->Run(call);
    // The time of a failed call says nothing about bandwidth.
    if (status.ok()) {
      Record(backend_, call.measures_links,
             {.kind = call.kind,
              .rank = call.rank,
              .group = call.group,
              .in_bytes = static_cast<int64_t>(call.in.size()),
              .time = absl::Nanoseconds(AgeGauge::Now() - began)});
    }
    return status;
  }
  void RecordDeviceExchange(const MeasuredExchange& exchange) override {
    Record(CollectiveBackend::kNccl, /*measures_links=*/true, exchange);
  }
  void RecordDeviceOpening(int num_ranks, absl::Duration time) override {
    metrics_->RecordCommunicatorInit(CollectiveBackend::kNccl, num_ranks, time);
  }
  void AbortLaunch(uint64_t launch, absl::Status status) override {
    inner_->AbortLaunch(launch, std::move(status));
  }
  absl::Status LaunchFailure(uint64_t launch) const override {
    return inner_->LaunchFailure(launch);
  }
  void Abort(absl::Status status) override {
    const int64_t began = AgeGauge::Now();
    inner_->Abort(std::move(status));
    metrics_->RecordCommunicatorAbort(absl::Nanoseconds(AgeGauge::Now() - began));
  }

 private:
  void Record(CollectiveBackend backend, bool measures_links, const MeasuredExchange& exchange) {
    const double factor = BusFactor(exchange.kind, exchange.group.size());
    metrics_->RecordCollective(exchange.kind, backend, exchange.in_bytes, factor, exchange.time);
    if (!measures_links) return;
    const bool between_executors =
        !executor_by_rank_.empty() &&
        std::any_of(exchange.group.begin(), exchange.group.end(), [&](int rank) {
          return executor_by_rank_[rank] != executor_by_rank_[exchange.rank];
        });
    link_meter_->Record(between_executors, factor * static_cast<double>(exchange.in_bytes),
                        NumRounds(exchange.kind, exchange.group.size()), exchange.time);
  }

  const std::unique_ptr<Collectives> inner_;
  const CollectiveBackend backend_;
  const ExecutorMetrics* const metrics_;
  LinkMeter* const link_meter_;
  const std::vector<int> executor_by_rank_;
};

}  // namespace

std::unique_ptr<Collectives> MeterCollectives(std::unique_ptr<Collectives> inner,
                                              CollectiveBackend backend,
                                              const ExecutorMetrics* metrics, LinkMeter* link_meter,
                                              std::vector<int> executor_by_rank) {
  return std::make_unique<MeteredCollectives>(std::move(inner), backend, metrics, link_meter,
                                              std::move(executor_by_rank));
}

}  // namespace tessera::worker
