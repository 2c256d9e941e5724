// Proves that a program is compiled again once for each loss, and that whoever needs it gets the
// outcome.
#include "ir/api/kept_program.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/testing/status_matchers.h"

namespace tessera::api {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(20);

ArraySpec SpecOn(std::vector<int64_t> devices) {
  ArraySpec spec;
  spec.shape = {4};
  spec.placement.devices = std::move(devices);
  return spec;
}
CompileReply ReplyWith(uint64_t executable, std::vector<int64_t> devices = {2}) {
  CompileReply reply;
  reply.executable = executable;
  reply.out = {SpecOn(std::move(devices))};
  return reply;
}
CompileRequest Request() {
  CompileRequest request;
  request.name = "step";
  request.explain = true;
  return request;
}

TEST(KeptProgramTest, ALostExecutableIsReplacedOnce) {
  KeptProgram program(Request(), ReplyWith(1));
  std::vector<CompileRequest> requests;
  const auto compile = [&](const CompileRequest& request) -> absl::StatusOr<CompileReply> {
    requests.push_back(request);
    return ReplyWith(10 + requests.size());
  };
  EXPECT_EQ(program.executable(), 1);
  EXPECT_THAT(program.Replace(1, compile, absl::InfiniteFuture()), IsOkAndHolds(11u));
  EXPECT_THAT(program.Replace(1, compile, absl::InfiniteFuture()), IsOkAndHolds(11u));
  EXPECT_EQ(requests.size(), 1);
  EXPECT_THAT(program.Replace(11, compile, absl::InfiniteFuture()), IsOkAndHolds(12u));
  EXPECT_EQ(program.executable(), 12);
  ASSERT_EQ(requests.size(), 2);
  EXPECT_EQ(requests[0].name, "step");
  EXPECT_EQ(requests[0].devices, std::vector<int64_t>{2}) << "arrays lie on these devices";
  EXPECT_FALSE(requests[0].explain);
}

TEST(KeptProgramTest, ThreadsThatComeMeanwhileShareTheCompilation) {
  KeptProgram program(Request(), ReplyWith(1));
  std::atomic<int> compilations{0};
  absl::Notification go_on;
  const auto compile = [&](const CompileRequest&) -> absl::StatusOr<CompileReply> {
    ++compilations;
    EXPECT_TRUE(go_on.WaitForNotificationWithTimeout(kLimit));
    return ReplyWith(2);
  };
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  absl::Barrier* const all = new absl::Barrier(kThreads + 1);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      if (all->Block()) delete all;
      EXPECT_THAT(program.Replace(1, compile, absl::InfiniteFuture()), IsOkAndHolds(2u));
    });
  if (all->Block()) delete all;
  go_on.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compilations, 1);
}

TEST(KeptProgramTest, TheErrorOfTheCompilationIsReturnedAndTheNextCallTriesAgain) {
  KeptProgram program(Request(), ReplyWith(1));
  const auto fail = [](const CompileRequest&) -> absl::StatusOr<CompileReply> {
    return MakeError(ErrorKind::kOutOfMemory, "too large");
  };
  EXPECT_THAT(program.Replace(1, fail, absl::InfiniteFuture()),
              ReasonIs("OUT_OF_MEMORY",
                       "step: executable 1 is gone, and its program was compiled "
                       "again: too large"));
  EXPECT_EQ(program.executable(), 1);
  const auto compile = [](const CompileRequest&) -> absl::StatusOr<CompileReply> {
    return ReplyWith(2);
  };
  EXPECT_THAT(program.Replace(1, compile, absl::InfiniteFuture()), IsOkAndHolds(2u));
}

TEST(KeptProgramTest, ResultsThatWouldLieElsewhereAreAnError) {
  KeptProgram program(Request(), ReplyWith(1, {2}));
  const auto compile = [](const CompileRequest&) -> absl::StatusOr<CompileReply> {
    return ReplyWith(2, {3});
  };
  EXPECT_THAT(program.Replace(1, compile, absl::InfiniteFuture()),
              ReasonIs("PROGRAM_NOT_FOUND", "result 0 of the new executable lies elsewhere"));
}

TEST(KeptProgramTest, ACallersDeadlineIsPassedOnAndEndsItsWait) {
  KeptProgram program(Request(), ReplyWith(1));
  absl::Notification compiling, go_on;
  const auto compile = [&](const CompileRequest& request) -> absl::StatusOr<CompileReply> {
    EXPECT_LE(request.timeout, kLimit);
    compiling.Notify();
    EXPECT_TRUE(go_on.WaitForNotificationWithTimeout(kLimit));
    return ReplyWith(2);
  };
  std::thread first(
      [&] { EXPECT_THAT(program.Replace(1, compile, SteadyNow() + kLimit), IsOkAndHolds(2u)); });
  ASSERT_TRUE(compiling.WaitForNotificationWithTimeout(kLimit));
  EXPECT_THAT(program.Replace(1, compile, SteadyNow() + absl::Milliseconds(20)),
              ReasonIs("DEADLINE_EXCEEDED", "step: the deadline passed"));
  go_on.Notify();
  first.join();
}

}  // namespace
}  // namespace tessera::api
