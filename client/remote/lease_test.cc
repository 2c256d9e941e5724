// Proves when renewals are due, and that a lease survives a renewal that fails or gets no answer.
// The leases talk to a fake coordinator in this process, which answers renewals as the test says.
#include "client/remote/lease.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "client/remote/local_server.h"
#include "ir/serial/status.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);
constexpr absl::Duration kLease = absl::Milliseconds(600);

class FakeCoordinator final : public v1::SessionService::Service {
 public:
  // Sets the answer to the first renewal. Without a value there is no answer at all, and the client
  // must give the call up.
  void SetFirstAnswer(std::optional<grpc::Status> answer) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    first_answer_ = std::move(answer);
  }
  std::unique_ptr<Lease> OpenLease() {
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
  // Waits for `count` renewals; returns whether they came in time.
  bool AwaitRenewals(int count) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return num_renewals_ >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&enough), kLimit);
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
    if (++num_renewals_ > 1) return grpc::Status::OK;
    if (first_answer_.has_value()) return *first_answer_;
    // Poll, since no event wakes this thread when the client gives the call up.
    const absl::Time until = SteadyNow() + kLimit;
    const auto never = [] { return false; };
    while (!context->IsCancelled() && SteadyNow() < until)
      mu_.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(5));
    EXPECT_TRUE(context->IsCancelled());
    return grpc::Status::CANCELLED;
  }
  grpc::Status DeleteSession(grpc::ServerContext*, const v1::DeleteSessionRequest*,
                             v1::DeleteSessionResponse*) override {
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mu_;
  int num_renewals_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<grpc::Status> first_answer_ ABSL_GUARDED_BY(mu_);
  Outage outage_{absl::Seconds(30)};
  LocalServer server_{this};
};

// RenewalTimes is a pure function of times, so these tests do not depend on the speed of the
// machine.
constexpr absl::Time kSent = absl::UnixEpoch();

TEST(RenewalTimesTest, ARenewalWithoutAnAnswerLeavesTimeForAnotherWithinTheLease) {
  const RenewalTimes times(absl::Seconds(6));
  const absl::Time granted = kSent - times.interval;
  const absl::Time second = times.NextDue(kSent, kSent + times.call_timeout, /*renewed=*/false);
  EXPECT_EQ(second - kSent, absl::Seconds(1.5));
  EXPECT_LE(second + times.call_timeout, granted + absl::Seconds(6));
}

TEST(RenewalTimesTest, ARenewalThatFailsIsTriedAgainAfterAQuarterOfTheInterval) {
  const absl::Time failed = kSent + absl::Seconds(0.3);
  EXPECT_EQ(RenewalTimes(absl::Seconds(6)).NextDue(kSent, failed, /*renewed=*/false),
            failed + absl::Seconds(0.5));
}

// The server counts the lease from when it receives a renewal, not from when it responds.
TEST(RenewalTimesTest, TheNextRenewalCountsFromWhenTheLastWasSent) {
  EXPECT_EQ(
      RenewalTimes(absl::Seconds(6)).NextDue(kSent, kSent + absl::Seconds(0.9), /*renewed=*/true),
      kSent + absl::Seconds(2));
}

TEST(LeaseTest, ARenewalWithoutAnAnswerIsGivenUpAndTriedAgain) {
  FakeCoordinator coordinator;
  coordinator.SetFirstAnswer(std::nullopt);
  const auto lease = coordinator.OpenLease();
  EXPECT_TRUE(coordinator.AwaitRenewals(2));
}

TEST(LeaseTest, ARenewalThatFailsIsTriedAgain) {
  FakeCoordinator coordinator;
  coordinator.SetFirstAnswer(grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now"));
  const auto lease = coordinator.OpenLease();
  EXPECT_TRUE(coordinator.AwaitRenewals(2));
}

TEST(LeaseTest, ALeaseIsRenewedAgainAndAgain) {
  FakeCoordinator coordinator;
  coordinator.SetFirstAnswer(grpc::Status::OK);
  const auto lease = coordinator.OpenLease();
  EXPECT_TRUE(coordinator.AwaitRenewals(3));
}

}  // namespace
}  // namespace tessera::remote
