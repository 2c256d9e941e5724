// Measures the collectives of launches. The executor and its communicators wrap their Collectives
// in it, and it records every successful call in the metrics and in the LinkMeter.
#include "worker/runtime/metered_collectives.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::worker {
namespace {

// Returns the number of bytes that the bus carries for each byte of the rank's input, as nccl-tests
// defines it.
double BusFactor(const Call& call) {
  const auto n = static_cast<double>(call.group.size());
  const ir::CollectiveInfo& info = ir::InfoOf(call.kind);
  if (n == 0 || call.kind == ir::CollectiveKind::kBarrier) return 0;
  if (info.in == ir::BlockCount::kEach) return (n - 1) / n;
  if (info.out == ir::BlockCount::kEach) return n - 1;
  return info.combines ? 2 * (n - 1) / n : 1;
}

// Returns the number of rounds of messages, as the planner's cost model counts them: a collective
// takes the latency of the link once per round.
double Rounds(const Call& call) {
  const ir::CollectiveInfo& info = ir::InfoOf(call.kind);
  if (call.group.size() < 2) return 0;
  if (info.paired) return 1;
  const double rounds = std::ceil(std::log2(static_cast<double>(call.group.size())));
  return info.combines && info.in == ir::BlockCount::kOne ? 2 * rounds : rounds;
}

class MeteredCollectives final : public Collectives {
 public:
  MeteredCollectives(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                     const ExecutorMetrics* metrics, LinkMeter* links, std::vector<int> executor_of)
      : inner_(std::move(inner)),
        backend_(backend),
        metrics_(metrics),
        links_(links),
        executor_of_(std::move(executor_of)) {}

  absl::Status Run(const Call& call) override {
    const int64_t began = AgeGauge::Now();
    absl::Status status = inner_->Run(call);
    // The time of a failed call says nothing about bandwidth.
    if (status.ok()) {
      const absl::Duration time = absl::Nanoseconds(AgeGauge::Now() - began);
      const double factor = BusFactor(call);
      metrics_->RecordCollective(call.kind, backend_, static_cast<int64_t>(call.in.size()), factor,
                                 time);
      links_->Record(BetweenExecutors(call), factor * static_cast<double>(call.in.size()),
                     Rounds(call), time);
    }
    return status;
  }
  void AbortLaunch(uint64_t launch, absl::Status status) override {
    inner_->AbortLaunch(launch, std::move(status));
  }
  void Abort(absl::Status status) override {
    const int64_t began = AgeGauge::Now();
    inner_->Abort(std::move(status));
    metrics_->RecordCommunicatorAbort(absl::Nanoseconds(AgeGauge::Now() - began));
  }

 private:
  bool BetweenExecutors(const Call& call) const {
    return !executor_of_.empty() &&
           std::any_of(call.group.begin(), call.group.end(),
                       [&](int rank) { return executor_of_[rank] != executor_of_[call.rank]; });
  }

  const std::unique_ptr<Collectives> inner_;
  const CollectiveBackend backend_;
  const ExecutorMetrics* const metrics_;
  LinkMeter* const links_;
  const std::vector<int> executor_of_;
};

}  // namespace

std::unique_ptr<Collectives> Metered(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                                     const ExecutorMetrics* metrics, LinkMeter* links,
                                     std::vector<int> executor_of) {
  return std::make_unique<MeteredCollectives>(std::move(inner), backend, metrics, links,
                                              std::move(executor_of));
}

}  // namespace tessera::worker
