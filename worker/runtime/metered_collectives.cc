#include "worker/runtime/metered_collectives.h"

#include <utility>

namespace tessera::worker {
namespace {

// The bytes that the bus carries per byte of the rank's input, as nccl-tests define it.
double BusFactor(const Call& call) {
  const auto n = static_cast<double>(call.group.size());
  const ir::CollectiveInfo& info = ir::InfoOf(call.kind);
  if (n == 0 || call.kind == ir::CollectiveKind::kBarrier) return 0;
  if (info.in == ir::BlockCount::kEach) return (n - 1) / n;
  if (info.out == ir::BlockCount::kEach) return n - 1;
  return info.combines ? 2 * (n - 1) / n : 1;
}

class MeteredCollectives final : public Collectives {
 public:
  MeteredCollectives(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                     const ExecutorMetrics* metrics)
      : inner_(std::move(inner)), backend_(backend), metrics_(metrics) {}

  absl::Status Run(const Call& call) override {
    const int64_t began = AgeGauge::Now();
    absl::Status status = inner_->Run(call);
    // The time of a failed call says nothing about bandwidth.
    if (status.ok()) {
      metrics_->RecordCollective(call.kind, backend_, static_cast<int64_t>(call.in.size()),
                                 BusFactor(call), absl::Nanoseconds(AgeGauge::Now() - began));
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
  const std::unique_ptr<Collectives> inner_;
  const CollectiveBackend backend_;
  const ExecutorMetrics* const metrics_;
};

}  // namespace

std::unique_ptr<Collectives> Metered(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                                     const ExecutorMetrics* metrics) {
  return std::make_unique<MeteredCollectives>(std::move(inner), backend, metrics);
}

}  // namespace tessera::worker
