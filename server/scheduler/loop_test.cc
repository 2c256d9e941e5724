// Which event is next, who is answered, and in which order effects are applied.
#include "server/scheduler/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/status_matchers.h"

namespace tessera::server::scheduler {
namespace {

absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }
DropHold Numbered(uint64_t n) { return DropHold{.session = n, .hold = 0}; }

// The next events, up to `limit` of them, as "timer" or the number of a DropHold, with their times.
std::vector<std::string> Drain(Inbox& inbox, absl::Time now, int limit = 100) {
  std::vector<std::string> out;
  while (limit-- > 0) {
    std::optional<Inbox::Arrival> next = inbox.Next(now);
    if (!next) break;
    const auto* numbered = std::get_if<DropHold>(&next->event);
    out.push_back((numbered ? std::to_string(numbered->session) : "timer") + "@" +
                  std::to_string(absl::ToUnixMillis(next->came)));
  }
  return out;
}

TEST(Inbox, WhatWaitedWhenTheTimerBecameDuePrecedesIt) {
  Inbox inbox(10);
  EXPECT_FALSE(inbox.HasNext(At(0)));
  inbox.SetTimer(At(5));
  EXPECT_TRUE(inbox.IsFirst(At(4)));
  EXPECT_FALSE(inbox.IsFirst(At(5))) << "the timer precedes it";
  inbox.Push(At(3), Numbered(1));
  inbox.Push(At(9), Numbered(2));
  // Seen late, at 9: both came before that was noticed.
  EXPECT_THAT(Drain(inbox, At(9), 1), ::testing::ElementsAre("1@3"));
  inbox.Push(At(10), Numbered(3));
  EXPECT_THAT(Drain(inbox, At(11)), ::testing::ElementsAre("2@9", "timer@11", "3@10"));
  EXPECT_EQ(inbox.timer(), absl::InfiniteFuture());
  EXPECT_FALSE(inbox.HasNext(At(100)));
}

TEST(Inbox, AnEarlyTimerWaitsForItsTime) {
  Inbox inbox(10);
  inbox.SetTimer(At(5));
  EXPECT_THAT(Drain(inbox, At(4)), ::testing::IsEmpty());
  EXPECT_THAT(Drain(inbox, At(5)), ::testing::ElementsAre("timer@5"));
}

TEST(Inbox, RejectsRequestsWhenItIsFullOrStopped) {
  Inbox inbox(2);
  TESSERA_EXPECT_OK(inbox.RejectionReason());
  inbox.Push(At(1), Numbered(1));
  inbox.Push(At(1), Numbered(2));
  EXPECT_THAT(inbox.RejectionReason(), ReasonIs("QUEUE_FULL", "2 requests wait, at most 2"));
  inbox.Push(At(1), Numbered(3));  // what is no request is always taken
  inbox.Stop();
  EXPECT_THAT(inbox.RejectionReason(), ReasonIs("SERVER_STOPPING"));
  EXPECT_THAT(Drain(inbox, At(2)), ::testing::IsEmpty()) << "nothing is next any more";
}

TEST(Inbox, ARequestIsTakenOnce) {
  Inbox inbox(10);
  int answers = 0;
  inbox.AddRequest(7, [&](const Reply&) { ++answers; });
  inbox.AddRequest(8, [&](const Reply&) { answers += 10; });
  inbox.TakeRequest(7)({});
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(inbox.TakeRequests().size(), 1u);
  EXPECT_TRUE(inbox.TakeRequests().empty());
}

TEST(Stepper, TimeDoesNotGoBack) {
  Stepper stepper({}, /*notes=*/false);
  const Clock::Moment at{At(20), At(1020), At(5020)};
  OpenSession open;
  open.request = 1;
  open.display_name = "first";
  open.lease = absl::Seconds(60);
  stepper.Run(open, At(20), at);
  open.request = 2;
  stepper.Run(open, At(10), at);  // came before the last step's
  for (const auto& [key, session] : stepper.state().ownership.sessions())
    EXPECT_EQ(session.until, At(20) + absl::Seconds(60));
  EXPECT_EQ(stepper.state().ownership.num_leased(), 2);
  EXPECT_EQ(stepper.state().steady_ahead, absl::Seconds(1));
  EXPECT_EQ(stepper.state().wall_ahead, absl::Seconds(5));
}

TEST(ApplyInOrder, RepliesAreLast) {
  std::vector<Effect> effects;
  effects.emplace_back(Reply{.request = 1, .status = {}, .body = {}});
  effects.emplace_back(Append{"a"});
  effects.emplace_back(Reply{.request = 2, .status = {}, .body = {}});
  effects.emplace_back(Append{"b"});
  std::string order;
  ApplyInOrder(effects, [&](Effect& effect) {
    const auto* reply = std::get_if<Reply>(&effect);
    order += reply ? std::to_string(reply->request) : std::get<Append>(effect).record;
  });
  EXPECT_EQ(order, "ab12");
}

}  // namespace
}  // namespace tessera::server::scheduler
