// Proves how long calls wait for a server that does not answer, and what their error says then. The
// servers are fakes in this process.
#include "client/remote/retry.h"

#include <memory>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "client/remote/local_server.h"
#include "client/remote/status.h"
#include "client/session.h"
#include "tessera/v1/session.grpc.pb.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(20);

// Answers GetSession only while it is not silent.
class Sessions final : public v1::SessionService::Service {
 public:
  void SetSilent(bool silent) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    silent_ = silent;
  }
  // Waits until GetSession has been called `count` times in all.
  void AwaitCalls(int count) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return num_calls_ >= count; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&enough), kLimit));
  }
  grpc::Status GetSession(grpc::ServerContext* context, const v1::GetSessionRequest*,
                          v1::Session*) override ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time end = SteadyNow() + kLimit;
    absl::MutexLock lock(&mu_);
    ++num_calls_;
    const auto answers = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !silent_; };
    // Poll, since no event wakes this thread when the client gives the call up.
    while (!mu_.AwaitWithTimeout(absl::Condition(&answers), absl::Milliseconds(5)))
      if (context->IsCancelled() || SteadyNow() > end) break;
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mu_;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  int num_calls_ ABSL_GUARDED_BY(mu_) = 0;
};

// Lets time pass. No event marks the end of this wait, so it uses a timeout.
void PassTime(absl::Duration time) {
  const absl::Notification never;
  never.WaitForNotificationWithTimeout(time);
}

class RetryTest : public ::testing::Test {
 protected:
  absl::Status Call(CallBounds bounds) {
    return CallUntilAnswered(
        server_.channel(), std::move(bounds), &outage_,
        [](grpc::ClientContext* context, absl::Duration timeout) {
          context->set_deadline(WallDeadline(timeout));
        },
        [](const grpc::Status& status) {
          return FromGrpc(status, "the coordinator at h:1", ErrorKind::kServerStopping);
        },
        [&](grpc::ClientContext* context) {
          v1::Session session;
          return stub_->GetSession(context, v1::GetSessionRequest(), &session);
        });
  }

  Outage outage_{absl::Seconds(1)};
  Sessions sessions_;
  LocalServer server_{&sessions_};
  const std::unique_ptr<v1::SessionService::Stub> stub_ =
      v1::SessionService::NewStub(server_.channel());
};

TEST(ReconnectTest, CallsWaitForThirtySecondsUnlessToldOtherwise) {
  EXPECT_EQ(ConnectOptions().reconnect, absl::Seconds(30));
}

TEST(OutageTest, TheTimeCountsFromTheFirstCallThatIsNotAnswered) {
  Outage outage(absl::Seconds(30));
  EXPECT_TRUE(outage.exhausted()) << "the server has never answered";
  outage.NoteAnswered();
  EXPECT_FALSE(outage.exhausted());
  EXPECT_EQ(outage.AttemptLimit(), absl::InfiniteDuration());
  const absl::Time first = SteadyNow();
  const absl::Time until = outage.NoteUnreachable(first);
  EXPECT_EQ(until, first + absl::Seconds(30));
  EXPECT_EQ(outage.NoteUnreachable(first + absl::Seconds(9)), until);
  EXPECT_LE(outage.AttemptLimit(), absl::Seconds(30));
  outage.NoteAnswered();
  EXPECT_EQ(outage.AttemptLimit(), absl::InfiniteDuration());
}

// An attempt that got no answer may have begun long before another call was answered.
TEST(OutageTest, TheTimeCountsFromTheLastAnswerAtTheEarliest) {
  Outage outage(absl::Seconds(30));
  outage.NoteAnswered();
  const absl::Time answered = SteadyNow();
  EXPECT_GE(outage.NoteUnreachable(answered - absl::Hours(1)), answered);
  EXPECT_FALSE(outage.exhausted());
}

TEST_F(RetryTest, ASilentServerIsNamedWithTheCallAndItsTime) {
  TESSERA_ASSERT_OK(Call({"GetSession", kLimit}));
  sessions_.SetSilent(true);
  const absl::Time start = SteadyNow();
  EXPECT_THAT(Call({"GetSession", absl::Milliseconds(600)}),
              ReasonIs("UNREACHABLE",
                       "the coordinator at h:1 does not answer: nothing came back; "
                       "GetSession has waited for it for "));
  EXPECT_GE(SteadyNow() - start, absl::Seconds(1));
  EXPECT_LT(SteadyNow() - start, kLimit);
  sessions_.AwaitCalls(3);  // a silent attempt is repeated while there is patience
}

TEST_F(RetryTest, ACallGoesOnWhenASilentServerAnswersAgain) {
  TESSERA_ASSERT_OK(Call({"GetSession", kLimit}));
  sessions_.SetSilent(true);
  std::thread answer([this] {
    sessions_.AwaitCalls(3);
    sessions_.SetSilent(false);
  });
  TESSERA_EXPECT_OK(Call({"GetSession", absl::Milliseconds(300)}));
  answer.join();
}

// A call that the server itself holds for a while is not taken for lost when that time is over.
TEST_F(RetryTest, TheTimeOfAWaitAtTheServerIsNoOutage) {
  TESSERA_ASSERT_OK(Call({"GetSession", kLimit}));
  sessions_.SetSilent(true);
  std::thread answer([this] {
    PassTime(absl::Milliseconds(1500));
    sessions_.SetSilent(false);
  });
  TESSERA_EXPECT_OK(Call({"GetSession", absl::Milliseconds(1400), absl::Milliseconds(1300)}));
  answer.join();
}

TEST_F(RetryTest, TheCallersOwnDeadlineEndsTheCallEarlier) {
  TESSERA_ASSERT_OK(Call({"GetSession", kLimit}));
  sessions_.SetSilent(true);
  const absl::Time start = SteadyNow();
  CallBounds bounds{"GetSession", kLimit};
  bounds.deadline = start + absl::Milliseconds(200);
  EXPECT_THAT(Call(bounds), ReasonIs("DEADLINE_EXCEEDED", "GetSession has waited for it for"));
  EXPECT_LT(SteadyNow() - start, absl::Seconds(1));
}

TEST(RetriesTest, AServerThatIsGoneIsNamedWithTheCallAndItsTime) {
  Outage outage(absl::Seconds(1));
  outage.NoteAnswered();
  // No server listens on port 1 of the loopback interface.
  const auto channel = grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials());
  const auto stub = v1::SessionService::NewStub(channel);
  const absl::Time start = SteadyNow();
  const absl::Status end = CallUntilAnswered(
      channel, {"GetSession", kLimit}, &outage,
      [](grpc::ClientContext* context, absl::Duration timeout) {
        context->set_deadline(WallDeadline(timeout));
      },
      [](const grpc::Status& status) {
        return FromGrpc(status, "the coordinator at h:1", ErrorKind::kServerStopping);
      },
      [&](grpc::ClientContext* context) {
        v1::Session session;
        return stub->GetSession(context, v1::GetSessionRequest(), &session);
      });
  EXPECT_THAT(end, ReasonIs("UNREACHABLE",
                            "does not answer: Connection refused; GetSession has "
                            "waited for it for 1"));
  EXPECT_GE(SteadyNow() - start, absl::Seconds(1));
}

}  // namespace
}  // namespace tessera::remote
