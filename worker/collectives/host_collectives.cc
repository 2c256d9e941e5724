// The collectives of one executor: checks a call, picks the transport, and keeps the first failure.
// The executor makes one HostCollectives for each communicator (worker/runtime/communicator.cc),
// and the threads of its devices call Run.
#include "worker/collectives/host_collectives.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/collectives/call.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/failure.h"
#include "worker/collectives/inproc.h"
#include "worker/collectives/mailbox.h"
#include "worker/collectives/tcp.h"

namespace tessera::worker {
namespace {

absl::Status CheckConfig(const CommunicatorConfig& config, int listen_fd) {
  const auto bad = [](absl::string_view what) {
    return MakeError(ErrorKind::kInternal, absl::StrCat("communicator: ", what));
  };
  if (config.local_ranks.empty()) return bad("no local ranks");
  const std::set<int> local(config.local_ranks.begin(), config.local_ranks.end());
  const int num_ranks = static_cast<int>(config.ranks.size());
  if (*local.begin() < 0 || *local.rbegin() >= num_ranks)
    return bad("a local rank is not a member");
  if (config.secret.size() > kMaxSecretBytes) return bad("the secret is too long");
  const RankInfo& self = config.ranks[*local.begin()];
  bool accepts = false;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const RankInfo& info = config.ranks[rank];
    if (info.executor.empty() || info.executor.size() > kMaxNameBytes) {
      return bad(absl::StrCat("rank ", rank, " has no executor name, or its name is too long"));
    }
    if ((info.executor == self.executor) != (local.count(rank) > 0)) {
      return bad("the local ranks are not the members of one executor");
    }
    accepts = accepts || info.executor < self.executor;
  }
  if (accepts && listen_fd < 0) return bad("peers connect to this executor: a socket is needed");
  return absl::OkStatus();
}

class HostCollectives final : public Collectives {
 public:
  HostCollectives(CommunicatorConfig config, int listen_fd);

  absl::Status Run(const Call& call) override;
  void AbortLaunch(uint64_t launch, absl::Status status) override {
    failure_.SetLaunchFailure(launch, std::move(status), FailureLatch::From::kHere);
  }
  absl::Status LaunchFailure(uint64_t launch) const override {
    return failure_.launch_failure(launch);
  }
  void Abort(absl::Status status) override { failure_.Set(std::move(status)); }

 private:
  absl::Status RunChecked(CheckedCall& call);
  bool IsLocal(absl::Span<const int> group) const;

  // Immutable.
  const CommunicatorConfig config_;

  FailureLatch failure_;
  std::unique_ptr<LocalRendezvous> rendezvous_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // by rank; null for ranks of other executors
  std::unique_ptr<TcpLinks> links_;                  // null if every rank is local
  std::unique_ptr<InterProcExchange> exchange_;      // null if every rank is local
};

// Builds the transports that the ranks need, and connects the failure latch with them. The
// listeners wake every waiting rank and tell the peers, so that no call waits for its own deadline
// after a failure. They are added before the threads of the links start, because no listener may be
// added once another thread may call the latch. An invalid configuration is stored as a failure,
// since a constructor returns no status.
HostCollectives::HostCollectives(CommunicatorConfig config, int listen_fd)
    : config_(std::move(config)) {
  if (absl::Status status = CheckConfig(config_, listen_fd); !status.ok()) {
    failure_.Set(std::move(status));
    return;
  }
  rendezvous_ = std::make_unique<LocalRendezvous>(&config_, &failure_);
  failure_.AddListener([this] { rendezvous_->Wake(); });
  failure_.AddLaunchListener(
      [this](uint64_t launch, FailureLatch::From) { rendezvous_->EndMeetings(launch); });
  mailboxes_.resize(config_.ranks.size());
  if (config_.local_ranks.size() == config_.ranks.size()) return;
  std::vector<Mailbox*> mailboxes(config_.ranks.size(), nullptr);
  for (const int rank : config_.local_ranks) {
    mailboxes_[rank] = std::make_unique<Mailbox>();
    mailboxes[rank] = mailboxes_[rank].get();
  }
  links_ = std::make_unique<TcpLinks>(&config_, listen_fd, &failure_, mailboxes);
  exchange_ = std::make_unique<InterProcExchange>(&config_, &failure_, mailboxes, links_.get(),
                                                  rendezvous_.get());
  failure_.AddListener([this] {
    for (const int rank : config_.local_ranks) mailboxes_[rank]->Wake();
    links_->BroadcastFailure();
  });
  failure_.AddLaunchListener([this](uint64_t launch, FailureLatch::From from) {
    for (const int rank : config_.local_ranks) mailboxes_[rank]->Wake();
    if (from == FailureLatch::From::kHere) links_->BroadcastLaunchFailure(launch);
  });
  links_->Start();
}

bool HostCollectives::IsLocal(absl::Span<const int> group) const {
  return links_ == nullptr || std::all_of(group.begin(), group.end(),
                                          [this](int rank) { return mailboxes_[rank] != nullptr; });
}

absl::Status HostCollectives::Run(const Call& call) {
  if (static_cast<int>(call.kind) >= ir::kNumCollectiveKinds) {
    return MakeError(ErrorKind::kNotImplemented, "this executor has no such exchange");
  }
  CheckedCall checked(call);
  if (ir::InfoOf(call.kind).combines) {
    const absl::StatusOr<Reducer> reducer = FindReducer(call.reduce, call.dtype);
    if (!reducer.ok()) return Annotate(reducer.status(), call.key.op);
    checked.reducer = *reducer;
  }
  return RunChecked(checked);
}

absl::Status HostCollectives::RunChecked(CheckedCall& call) {
  const uint64_t launch = call.key.launch;
  TESSERA_RETURN_IF_ERROR(failure_.status(launch));
  const Deadline deadline(std::min(BoundOf(config_.timeout, call), call.timeout));
  absl::Status status = Validate(config_, call);
  if (status.ok()) {
    status =
        IsLocal(call.group) ? rendezvous_->Run(call, deadline) : exchange_->Run(call, deadline);
  }
  if (status.ok() || failure_.failed(launch)) return status.ok() ? status : failure_.status(launch);
  // A member that timed out may join the next launch, unless a frame to it was written in part.
  if (KindOf(status) == ErrorKind::kCollectiveTimeout && (links_ == nullptr || !links_->broken())) {
    failure_.SetLaunchFailure(launch, std::move(status), FailureLatch::From::kHere);
  } else {
    failure_.Set(std::move(status));
  }
  return failure_.status(launch);
}

}  // namespace

std::unique_ptr<Collectives> MakeCollectives(CommunicatorConfig config, int listen_fd) {
  return std::make_unique<HostCollectives>(std::move(config), listen_fd);
}

}  // namespace tessera::worker
