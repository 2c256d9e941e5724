// Leases against a coordinator that answers renewals as the test says.
#include "client/remote/lease.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "client/remote/local_server.h"
#include "ir/serial/status.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);
constexpr absl::Duration kLease = absl::Seconds(6);
constexpr absl::Duration kInterval = absl::Seconds(2);  // of renewals: a third of the lease

class FakeCoordinator final : public v1::SessionService::Service {
 public:
  // The first renewal is answered after `held`, unless its client gives it up before.
  void SetFirst(absl::Duration held, grpc::Status answer) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    first_held_ = held;
    first_answer_ = std::move(answer);
  }
  std::unique_ptr<Lease> Client() {
    auto lease = Lease::Open(
        server_.channel(), &outage_, {},
        [](grpc::ClientContext* context, absl::Duration timeout) {
          context->set_deadline(WallDeadline(std::min(timeout, kLimit)));
        },
        [](const grpc::Status& status) {
          return status.ok() ? absl::OkStatus() : absl::UnavailableError(status.error_message());
        });
    EXPECT_THAT(lease, IsOk());
    return *std::move(lease);
  }
  // When the first renewals came.
  std::vector<absl::Time> AwaitRenewals(size_t count) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return renewals_.size() >= count; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&there), kLimit));
    return renewals_;
  }

  grpc::Status CreateSession(grpc::ServerContext*, const v1::CreateSessionRequest*,
                             v1::Session* session) override {
    session->set_id(3);
    *session->mutable_lease() = ir::serial::ToProto(kLease);
    return grpc::Status::OK;
  }
  grpc::Status RenewSession(grpc::ServerContext* context, const v1::RenewSessionRequest*,
                            v1::Session* session) override ABSL_LOCKS_EXCLUDED(mu_) {
    session->set_id(3);
    absl::MutexLock lock(&mu_);
    renewals_.push_back(SteadyNow());
    if (renewals_.size() > 1) return grpc::Status::OK;
    // Polled, since nobody is woken when the client gives the call up.
    const absl::Time until = SteadyNow() + first_held_;
    const auto never = [] { return false; };
    while (SteadyNow() < until && !context->IsCancelled())
      mu_.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(5));
    return first_answer_;
  }
  grpc::Status DeleteSession(grpc::ServerContext*, const v1::DeleteSessionRequest*,
                             v1::DeleteSessionResponse*) override {
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mu_;
  std::vector<absl::Time> renewals_ ABSL_GUARDED_BY(mu_);
  absl::Duration first_held_ ABSL_GUARDED_BY(mu_);
  grpc::Status first_answer_ ABSL_GUARDED_BY(mu_);
  Outage outage_{absl::Seconds(30)};
  LocalServer server_{this};
};

// The lease ends two intervals after its first renewal is due: half of one for the call and a
// quarter until the next leave time for another attempt.
TEST(LeaseTest, ARenewalWithoutAnAnswerIsTriedAgainWithinTheLease) {
  FakeCoordinator coordinator;
  coordinator.SetFirst(kLimit, grpc::Status::OK);
  const auto lease = coordinator.Client();
  const std::vector<absl::Time> renewals = coordinator.AwaitRenewals(2);
  EXPECT_GE(renewals[1] - renewals[0], kInterval / 2);
  EXPECT_LT(renewals[1] - renewals[0], kInterval * 1.4);
}

TEST(LeaseTest, ARenewalThatFailsIsTriedAgainAfterAQuarterOfTheInterval) {
  FakeCoordinator coordinator;
  coordinator.SetFirst(absl::ZeroDuration(), {grpc::StatusCode::UNAVAILABLE, "not now"});
  const auto lease = coordinator.Client();
  const std::vector<absl::Time> renewals = coordinator.AwaitRenewals(2);
  EXPECT_GE(renewals[1] - renewals[0], kInterval / 5);
  EXPECT_LT(renewals[1] - renewals[0], kInterval * 0.7);
}

// The server counts the lease from when it hears of the renewal, not from its answer.
TEST(LeaseTest, TheNextRenewalCountsFromWhenTheLastWasSent) {
  FakeCoordinator coordinator;
  coordinator.SetFirst(kInterval * 0.4, grpc::Status::OK);
  const auto lease = coordinator.Client();
  const std::vector<absl::Time> renewals = coordinator.AwaitRenewals(2);
  EXPECT_GE(renewals[1] - renewals[0], kInterval * 0.8);
  EXPECT_LT(renewals[1] - renewals[0], kInterval * 1.2);
}

}  // namespace
}  // namespace tessera::remote
