// Proves that runs share one stream, that waiting threads serve each other, and that a broken
// stream ends its runs and is replaced. The coordinator is a fake in this process. Each test tells
// it how to serve the stream.
#include "client/remote/executions.h"

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "client/remote/fake_coordinator.h"

namespace tessera::remote {
namespace {

using testing::Eventually;

TEST(ExecutionsTest, RunsOfManyThreadsShareOneStream) {
  FakeCoordinator coordinator;
  coordinator.SetServe(ServeAll);
  const auto client = coordinator.MakeClient();
  constexpr int kThreads = 4, kRuns = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 1; i <= kRuns; ++i) {
        const uint64_t id = t * kRuns + i;
        std::shared_ptr<ExecutionClient::Run> run;
        api::ExecuteReply reply;
        ASSERT_TRUE(client->SendAndAwaitAcceptance(RequestFor(id), kLimit, &run, &reply).ok());
        EXPECT_EQ(reply.operation, id);
        ASSERT_TRUE(client->AwaitEnd(*run, SteadyNow() + kLimit));
        ASSERT_TRUE(client->ResultOf(*run, id).has_value());
        EXPECT_EQ(client->ResultOf(*run, id)->At(0), id);
        EXPECT_TRUE(client->FailureOf(*run).ok());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(coordinator.num_streams(), 1);
  EXPECT_EQ(client->num_open_runs(), 0);
}

// The other thread polls the stream until the first run ends. The main thread asks for the state of
// the second run without polling, so the other thread must have received the end of that run. Then
// the main thread awaits the third run, whose end the other thread receives as well.
TEST(ExecutionsTest, ThePollingThreadReceivesTheEventsOfAllRuns) {
  FakeCoordinator coordinator;
  absl::Notification second_seen, third_awaited;
  coordinator.SetServe([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest runs[3];
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(stream->Read(&runs[i]));
      Accept(stream, runs[i].number(), i + 1);
    }
    End(stream, runs[1].number(), 2);
    EXPECT_TRUE(second_seen.WaitForNotificationWithTimeout(kLimit));
    End(stream, runs[2].number(), 3);
    EXPECT_TRUE(third_awaited.WaitForNotificationWithTimeout(kLimit));
    End(stream, runs[0].number(), 1);
    return grpc::Status::OK;
  });
  const auto client = coordinator.MakeClient();
  const auto send = [&](uint64_t id) {
    v1::ExecuteProgramsRequest request;
    request.set_number(client->NextNumber());
    *request.mutable_run() = RequestFor(id);
    return client->Send(std::move(request), /*after=*/nullptr);
  };
  const auto first = send(1), second = send(2), third = send(3);
  std::thread other([&] { EXPECT_TRUE(client->AwaitEnd(*first, SteadyNow() + kLimit)); });
  EXPECT_TRUE(Eventually([&] { return ExecutionClient::IsOver(*second); }));
  EXPECT_FALSE(ExecutionClient::IsOver(*first)) << "the other thread still polls";
  second_seen.Notify();
  EXPECT_TRUE(client->AwaitEnd(*third, SteadyNow() + kLimit));
  EXPECT_FALSE(ExecutionClient::IsOver(*first));
  third_awaited.Notify();
  other.join();
  EXPECT_TRUE(client->ResultOf(*first, 1).has_value());
  EXPECT_TRUE(client->ResultOf(*second, 2).has_value());
  EXPECT_TRUE(client->ResultOf(*third, 3).has_value());
  EXPECT_EQ(coordinator.num_streams(), 1);
}

// The runs on the broken stream get its error, and the next run gets a stream that works.
TEST(ExecutionsTest, ABrokenStreamIsReplacedAtTheNextRun) {
  FakeCoordinator coordinator;
  coordinator.SetServe([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    Accept(stream, request.number(), 1);
    EXPECT_TRUE(stream->Read(&request));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  const auto client = coordinator.MakeClient();
  std::shared_ptr<ExecutionClient::Run> accepted, neither, next;
  api::ExecuteReply reply;
  ASSERT_TRUE(client->SendAndAwaitAcceptance(RequestFor(1), kLimit, &accepted, &reply).ok());
  EXPECT_EQ(client->SendAndAwaitAcceptance(RequestFor(2), kLimit, &neither, &reply).error_message(),
            "gone");
  EXPECT_TRUE(client->AwaitEnd(*accepted, SteadyNow() + kLimit));
  EXPECT_EQ(client->FailureOf(*accepted).error_message(), "gone");
  coordinator.SetServe(ServeAll);
  ASSERT_TRUE(client->SendAndAwaitAcceptance(RequestFor(3), kLimit, &next, &reply).ok());
  EXPECT_TRUE(client->AwaitEnd(*next, SteadyNow() + kLimit));
  EXPECT_EQ(coordinator.num_streams(), 2);
}

// A stream that ended while no thread polled it does not fail the first run after a pause.
TEST(ExecutionsTest, AStreamThatEndedUnpolledIsReplacedBeforeTheNextRun) {
  FakeCoordinator coordinator;
  absl::Notification leave;
  coordinator.SetServe([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    Accept(stream, request.number(), 1);
    End(stream, request.number(), 1);
    EXPECT_TRUE(leave.WaitForNotificationWithTimeout(kLimit));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  const auto client = coordinator.MakeClient();
  std::shared_ptr<ExecutionClient::Run> run;
  api::ExecuteReply reply;
  ASSERT_TRUE(client->SendAndAwaitAcceptance(RequestFor(1), kLimit, &run, &reply).ok());
  ASSERT_TRUE(client->AwaitEnd(*run, SteadyNow() + kLimit));
  coordinator.SetServe(ServeAll);
  leave.Notify();
  ASSERT_TRUE(Eventually(
      [&] { return client->SendAndAwaitAcceptance(RequestFor(2), kLimit, &run, &reply).ok(); }));
  EXPECT_EQ(reply.operation, 2);
  EXPECT_TRUE(client->AwaitEnd(*run, SteadyNow() + kLimit));
}

TEST(ExecutionsTest, ACompletionWithoutAnAcceptanceIsAnError) {
  FakeCoordinator coordinator;
  coordinator.SetServe([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    End(stream, request.number(), 1);
    while (stream->Read(&request)) continue;
    return grpc::Status::OK;
  });
  const auto client = coordinator.MakeClient();
  std::shared_ptr<ExecutionClient::Run> run;
  api::ExecuteReply reply;
  EXPECT_EQ(client->SendAndAwaitAcceptance(RequestFor(1), kLimit, &run, &reply).error_code(),
            grpc::StatusCode::INTERNAL);
}

TEST(ExecutionsTest, ARefusedRunEndsAloneAndAnUnansweredRunTimesOut) {
  FakeCoordinator coordinator;
  coordinator.SetServe([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    v1::ExecuteProgramsEvent event;
    event.set_number(request.number());
    event.mutable_refused()->set_code(grpc::StatusCode::NOT_FOUND);
    event.mutable_refused()->set_message("no such executable");
    EXPECT_TRUE(stream->Write(event));
    while (stream->Read(&request)) continue;
    return grpc::Status::OK;
  });
  const auto client = coordinator.MakeClient();
  std::shared_ptr<ExecutionClient::Run> run;
  api::ExecuteReply reply;
  const grpc::Status refused = client->SendAndAwaitAcceptance(RequestFor(1), kLimit, &run, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(refused.error_message(), "no such executable");
  EXPECT_EQ(client->SendAndAwaitAcceptance(RequestFor(2), absl::Milliseconds(20), &run, &reply)
                .error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(coordinator.num_streams(), 1);
}

}  // namespace
}  // namespace tessera::remote
