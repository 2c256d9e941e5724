// The executor's end of one generation of a communicator. The executor opens and closes it on two
// threads of its own, when the coordinator says so. Launches call Run on the streams of their
// devices. A Run that comes before Open waits for Open.
#include "worker/runtime/communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/host_collectives.h"
#include "worker/runtime/metered_collectives.h"

namespace tessera::worker {
namespace {

// More than an executor queues (ExecutorOptions::queue_bound).
constexpr size_t kLaunchesKept = 1 << 13;

}  // namespace

Communicator::Communicator(const api::ConfigureCommunicator& config, absl::Duration timeout)
    : generation_(config.generation),
      members_(config.members),
      self_(config.self),
      secret_(config.secret),
      timeout_(timeout) {
  first_rank_.push_back(0);
  for (const auto& member : members_)
    first_rank_.push_back(first_rank_.back() + member.num_devices);
}

absl::StatusOr<int> Communicator::RankOf(int32_t member, int32_t device) const {
  if (member < 0 || member >= static_cast<int32_t>(members_.size()) || device < 0 ||
      device >= members_[member].num_devices) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("device ", device, " of member ", member,
                                  " is not in the communicator of generation ", generation_));
  }
  return first_rank_[member] + device;
}

// Makes the collectives of this generation, unless Close came first. Ranks count the devices of all
// members in order, so every executor arrives at the same ranks without talking to the others.
// Launches that failed before the opening are aborted now, because their peers may be waiting for
// them.
void Communicator::Open(const std::string& host, PeerPort* port, const ExecutorMetrics* metrics,
                        std::shared_ptr<const TlsContext> tls, LinkMeter* link_meter) {
  CommunicatorConfig config;
  std::vector<int> executor_by_rank;
  config.tls = std::move(tls);
  config.generation = generation_;
  config.secret = secret_;
  config.timeout = timeout_;
  config.launch_patience = kLaunchPatience;
  config.has_launch = [this](uint64_t launch) { return HasLaunch(launch); };
  for (size_t m = 0; m < members_.size(); ++m) {
    const auto& member = members_[m];
    const bool self = static_cast<int32_t>(m) == self_;
    for (int32_t d = 0; d < member.num_devices; ++d) {
      const int rank = first_rank_[m] + d;
      if (self) config.local_ranks.push_back(rank);
      executor_by_rank.push_back(static_cast<int>(m));
      config.ranks.push_back({d, member.executor, member.incarnation, member.endpoint,
                              self ? host : member.endpoint.substr(0, member.endpoint.rfind(':'))});
    }
  }
  absl::MutexLock lock(&mu_);
  if (!close_reason_.ok()) return;
  if (has_remote_members()) port_ = port;
  const int source = port_ == nullptr ? -1 : port_->Open(generation_);
  collectives_ = MakeCollectives(std::move(config), source);
  if (metrics != nullptr) {
    collectives_ = MeterCollectives(
        std::move(collectives_),
        has_remote_members() ? CollectiveBackend::kTcp : CollectiveBackend::kInproc, metrics,
        link_meter, std::move(executor_by_rank));
  }
  for (const auto& [launch, why] : aborted_launches_) collectives_->AbortLaunch(launch, why);
  aborted_launches_.clear();
  opened_ = true;
}

void Communicator::NoteLaunch(uint64_t launch) {
  absl::MutexLock lock(&launches_mu_);
  if (!launches_.insert(launch).second) return;
  launch_order_.push_back(launch);
  if (launch_order_.size() <= kLaunchesKept) return;
  launches_.erase(launch_order_.front());
  launch_order_.pop_front();
}

bool Communicator::HasLaunch(uint64_t launch) const {
  absl::MutexLock lock(&launches_mu_);
  return launches_.contains(launch);
}

void Communicator::Close(const absl::Status& why) {
  // Destroyed without the lock, since the destructor waits for the peers.
  std::unique_ptr<Collectives> closing;
  absl::MutexLock lock(&mu_);
  if (close_reason_.ok()) close_reason_ = why;
  if (collectives_ == nullptr) return;
  Collectives* open = collectives_.get();
  mu_.Unlock();
  open->Abort(why);
  mu_.Lock();
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return running_calls_ == 0; };
  mu_.Await(absl::Condition(&idle));
  closing = std::move(collectives_);
  PeerPort* port = closing == nullptr ? nullptr : port_;
  mu_.Unlock();
  closing.reset();
  if (port != nullptr) port->Close(generation_);
  mu_.Lock();
}

void Communicator::AbortLaunch(uint64_t launch, absl::Status status) {
  {
    absl::MutexLock lock(&mu_);
    if (!opened_) {
      aborted_launches_.emplace(launch, std::move(status));
      return;
    }
  }
  static_cast<void>(CallWhileOpen({}, [&](Collectives& collectives) {
    collectives.AbortLaunch(launch, std::move(status));
    return absl::OkStatus();
  }));
}

absl::Status Communicator::LaunchFailure(uint64_t launch) const {
  absl::MutexLock lock(&mu_);
  if (collectives_ != nullptr) return collectives_->LaunchFailure(launch);
  const auto it = aborted_launches_.find(launch);
  return it == aborted_launches_.end() ? absl::OkStatus() : it->second;
}

void Communicator::RecordDeviceExchange(const MeasuredExchange& exchange) {
  absl::MutexLock lock(&mu_);
  if (collectives_ != nullptr) collectives_->RecordDeviceExchange(exchange);
}

void Communicator::RecordDeviceOpening(int num_ranks, absl::Duration time) {
  absl::MutexLock lock(&mu_);
  if (collectives_ != nullptr) collectives_->RecordDeviceOpening(num_ranks, time);
}

void Communicator::Abort(absl::Status status) {
  {
    absl::MutexLock lock(&mu_);
    if (!opened_) {
      if (close_reason_.ok()) close_reason_ = std::move(status);
      return;
    }
  }
  static_cast<void>(CallWhileOpen({}, [&](Collectives& collectives) {
    collectives.Abort(std::move(status));
    return absl::OkStatus();
  }));
}

// The lock is not held during the call, because calls of other devices and Abort run meanwhile.
template <class F>
absl::Status Communicator::CallWhileOpen(const CallKey& key, F call) {
  Collectives* collectives = nullptr;
  {
    absl::MutexLock lock(&mu_);
    const auto usable = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return opened_ || !close_reason_.ok() || aborted_launches_.count(key.launch) > 0;
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&usable), timeout_)) {
      return MakeError(ErrorKind::kCollectiveTimeout,
                       absl::StrCat(key.op, ": ", members_[self_].executor,
                                    " has not opened its communicator of generation ", generation_,
                                    " within ", absl::FormatDuration(timeout_), " [program ",
                                    key.program, ", launch ", key.launch, "]"));
    }
    if (!close_reason_.ok()) return close_reason_;
    if (const auto it = aborted_launches_.find(key.launch); it != aborted_launches_.end())
      return it->second;
    ++running_calls_;
    collectives = collectives_.get();
  }
  absl::Status status = call(*collectives);
  absl::MutexLock lock(&mu_);
  --running_calls_;
  return status;
}

absl::Status Communicator::Run(const Call& call) {
  const Deadline deadline(BoundOf(timeout_, call));
  return CallWhileOpen(call.key, [&](Collectives& collectives) {
    // The call gets the time that the wait for Open has left.
    Call rest = call;
    rest.timeout = std::min(call.timeout, deadline.Left());
    return collectives.Run(rest);
  });
}

}  // namespace tessera::worker
