// An executor's end of one communicator. There is one for each generation that the coordinator has
// configured. A member is an executor, and each of its devices has a rank
// (CommunicatorConfig::ranks).
//
// A Communicator may be closed while others still refer to it: running calls are aborted, and later
// calls fail with the reason of the close. Thread-safe.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ir/api/worker_link.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/peer_port.h"
#include "worker/telemetry/executor_metrics.h"
#include "worker/telemetry/link_meter.h"

namespace tessera::worker {

class Communicator final : public Collectives {
 public:
  // `timeout` bounds each call, together with its wait for Open, and each attempt to connect. A
  // call waits kLaunchPatience longer while a peer has not received its launch from the
  // coordinator: as long as a coordinator may be away without a loss (outage_grace_ms).
  static constexpr absl::Duration kLaunchPatience = absl::Seconds(60);
  Communicator(const api::ConfigureCommunicator& config, absl::Duration timeout);

  uint64_t generation() const { return generation_; }
  // Returns whether the communicator has members other than this executor.
  bool has_remote_members() const { return members_.size() > 1; }
  // Returns the rank of a member's device. The ranks count the devices of all members, in order.
  // Returns VALUE_ERROR if there is no such device.
  absl::StatusOr<int> RankOf(int32_t member, int32_t device) const;
  // Connects, unless the communicator has been closed. `port` outlives the communicator, and is
  // null if there are no other executors. `metrics` and `link_meter` also outlive it; either both
  // are null or neither is.
  void Open(const std::string& host, PeerPort* port, const ExecutorMetrics* metrics = nullptr,
            std::shared_ptr<const TlsContext> tls = nullptr, LinkMeter* link_meter = nullptr);
  // Notes that the executor has received a launch that uses this communicator. Until then, peers
  // that wait for the launch's calls here are told so, and wait longer.
  void NoteLaunch(uint64_t launch) ABSL_LOCKS_EXCLUDED(launches_mu_);
  // The number of ranks of all members.
  int num_ranks() const { return first_rank_.back(); }
  // Makes later calls fail with `why`. Returns when no call is running and the connections are
  // closed.
  void Close(const absl::Status& why);

  absl::Status Run(const Call& call) override;
  void AbortLaunch(uint64_t launch, absl::Status status) override;
  absl::Status LaunchFailure(uint64_t launch) const override;
  void Abort(absl::Status status) override;
  void RecordDeviceExchange(const MeasuredExchange& exchange) override;
  void RecordDeviceOpening(int num_ranks, absl::Duration time) override;

 private:
  bool HasLaunch(uint64_t launch) const ABSL_LOCKS_EXCLUDED(launches_mu_);
  // Makes a call and counts it while it runs, so that Close can wait for it. A call that comes
  // before Open waits for Open, and returns COLLECTIVE_TIMEOUT after the timeout.
  template <class F>
  absl::Status CallWhileOpen(const CallKey& key, F call);

  // Immutable.
  const uint64_t generation_;
  const std::vector<api::ConfigureCommunicator::Member> members_;
  const int32_t self_;
  const std::string secret_;
  const absl::Duration timeout_;
  // The rank of each member's first device; one more entry at the end is the number of ranks.
  std::vector<int> first_rank_;

  mutable absl::Mutex mu_;
  std::unique_ptr<Collectives> collectives_ ABSL_GUARDED_BY(mu_);
  // Launches that were aborted before Open, with the reasons.
  std::map<uint64_t, absl::Status> aborted_launches_ ABSL_GUARDED_BY(mu_);
  absl::Status close_reason_ ABSL_GUARDED_BY(mu_);  // OK until the communicator is closed
  PeerPort* port_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool opened_ ABSL_GUARDED_BY(mu_) = false;
  int running_calls_ ABSL_GUARDED_BY(mu_) = 0;

  // The last launches that were received, and the same in their order.
  mutable absl::Mutex launches_mu_ ABSL_ACQUIRED_AFTER(mu_);
  absl::flat_hash_set<uint64_t> launches_ ABSL_GUARDED_BY(launches_mu_);
  std::deque<uint64_t> launch_order_ ABSL_GUARDED_BY(launches_mu_);
};

}  // namespace tessera::worker
