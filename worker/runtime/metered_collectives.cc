#include "worker/runtime/metered_collectives.h"

#include <utility>

namespace tessera::worker {
namespace {

class MeteredCollectives final : public Collectives {
 public:
  MeteredCollectives(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                     const ExecutorMetrics* metrics)
      : inner_(std::move(inner)), backend_(backend), metrics_(metrics) {}

  absl::Status AllReduce(int rank, absl::Span<const int> group, const CallKey& key,
                         ReduceKind reduce, ir::DType dtype, absl::Span<const std::byte> in,
                         absl::Span<std::byte> out) override {
    return Count(CollectiveKind::kAllReduce, in.size(), 2 * Others(group),
                 [&] { return inner_->AllReduce(rank, group, key, reduce, dtype, in, out); });
  }
  absl::Status AllGather(int rank, absl::Span<const int> group, const CallKey& key,
                         absl::Span<const std::byte> in, absl::Span<std::byte> out) override {
    return Count(CollectiveKind::kAllGather, in.size(), static_cast<double>(group.size()) - 1,
                 [&] { return inner_->AllGather(rank, group, key, in, out); });
  }
  absl::Status ReduceScatter(int rank, absl::Span<const int> group, const CallKey& key,
                             ReduceKind reduce, ir::DType dtype, absl::Span<const std::byte> in,
                             absl::Span<std::byte> out) override {
    return Count(CollectiveKind::kReduceScatter, in.size(), Others(group),
                 [&] { return inner_->ReduceScatter(rank, group, key, reduce, dtype, in, out); });
  }
  absl::Status AllToAll(int rank, absl::Span<const int> group, const CallKey& key,
                        absl::Span<const std::byte> in, absl::Span<std::byte> out) override {
    return Count(CollectiveKind::kAllToAll, in.size(), Others(group),
                 [&] { return inner_->AllToAll(rank, group, key, in, out); });
  }
  absl::Status Permute(int rank, absl::Span<const int> group, const CallKey& key,
                       absl::Span<const PermutePair> pairs, absl::Span<const std::byte> in,
                       absl::Span<std::byte> out) override {
    return Count(CollectiveKind::kPermute, in.size(), 1,
                 [&] { return inner_->Permute(rank, group, key, pairs, in, out); });
  }
  absl::Status Barrier(int rank, absl::Span<const int> group, const CallKey& key) override {
    return Count(CollectiveKind::kBarrier, 0, 0, [&] { return inner_->Barrier(rank, group, key); });
  }
  void AbortLaunch(uint64_t launch, absl::Status status) override {
    inner_->AbortLaunch(launch, std::move(status));
  }
  void Abort(absl::Status status) override {
    const int64_t began = AgeGauge::Now();
    inner_->Abort(std::move(status));
    metrics_->CommunicatorAborted(absl::Nanoseconds(AgeGauge::Now() - began));
  }

 private:
  // (n - 1) / n of n ranks.
  static double Others(absl::Span<const int> group) {
    const auto n = static_cast<double>(group.size());
    return n == 0 ? 0 : (n - 1) / n;
  }
  template <class F>
  absl::Status Count(CollectiveKind kind, size_t bytes, double bus_factor, F call) {
    const int64_t began = AgeGauge::Now();
    absl::Status status = call();
    // One that failed says nothing of how fast they are.
    if (status.ok()) {
      metrics_->Collective(kind, backend_, static_cast<int64_t>(bytes), bus_factor,
                           absl::Nanoseconds(AgeGauge::Now() - began));
    }
    return status;
  }

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
