// Proves the decisions of loop.h without threads or a clock: which event is next, when a request is
// answered and with what, which commands wait for the disk, and in which order effects are applied.
// Each test drives an Inbox, an Outbox or a Stepper by hand.
#include "server/scheduler/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"

namespace tessera::server::scheduler {
namespace {

absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }
DropHold HoldNumbered(uint64_t n) { return DropHold{.session = n, .hold = 0}; }

// Takes the next events, up to `limit` of them. Each is "timer" or the number of a DropHold, with
// its time.
std::vector<std::string> TakeEvents(Inbox& inbox, absl::Time now, int limit = 100) {
  std::vector<std::string> out;
  while (limit-- > 0) {
    std::optional<Inbox::Arrival> next = inbox.Next(now);
    if (!next) break;
    const auto* numbered = std::get_if<DropHold>(&next->event);
    out.push_back((numbered ? std::to_string(numbered->session) : "timer") + "@" +
                  std::to_string(absl::ToUnixMillis(next->arrived_at)));
  }
  return out;
}

TEST(Inbox, EventsThatWaitWhenTheTimerBecomesDuePrecedeIt) {
  Inbox inbox(10);
  EXPECT_FALSE(inbox.HasNext(At(0)));
  inbox.SetTimer(At(5));
  EXPECT_TRUE(inbox.WouldBeNext(At(4)));
  EXPECT_FALSE(inbox.WouldBeNext(At(5))) << "the timer precedes it";
  inbox.Push(At(3), HoldNumbered(1));
  inbox.Push(At(9), HoldNumbered(2));
  // The timer is noticed late, at 9. Both events came before that; an event that comes later is
  // behind the timer.
  EXPECT_THAT(TakeEvents(inbox, At(9), 1), ::testing::ElementsAre("1@3"));
  inbox.Push(At(10), HoldNumbered(3));
  EXPECT_THAT(TakeEvents(inbox, At(11)), ::testing::ElementsAre("2@9", "timer@9", "3@10"));
  EXPECT_EQ(inbox.timer(), absl::InfiniteFuture());
  EXPECT_FALSE(inbox.HasNext(At(100)));
}

TEST(Inbox, AnEarlyTimerWaitsForItsTime) {
  Inbox inbox(10);
  inbox.SetTimer(At(5));
  EXPECT_THAT(TakeEvents(inbox, At(4)), ::testing::IsEmpty());
  EXPECT_THAT(TakeEvents(inbox, At(5)), ::testing::ElementsAre("timer@5"));
}

TEST(Inbox, RejectsRequestsWhenItIsFullOrStopped) {
  Inbox inbox(2);
  TESSERA_EXPECT_OK(inbox.RejectionReason(Tick{}));
  inbox.Push(At(1), HoldNumbered(1));
  inbox.Push(At(1), HoldNumbered(2));
  EXPECT_THAT(inbox.RejectionReason(Tick{}), ReasonIs("QUEUE_FULL", "2 requests wait, at most 2"));
  inbox.Push(At(1), HoldNumbered(3));  // an event that is not a request is always taken
  inbox.Stop();
  EXPECT_THAT(inbox.RejectionReason(Tick{}), ReasonIs("SERVER_STOPPING"));
  EXPECT_THAT(TakeEvents(inbox, At(2)), ::testing::IsEmpty()) << "nothing is next any more";
}

// Calls the callbacks of the requests that these replies answer, as a driver does.
void Send(std::vector<Inbox::Outgoing> out) {
  for (auto& [done, reply] : out) done(std::move(reply));
}
Reply ReplyTo(uint64_t request) { return {.request = request, .status = {}, .body = {}}; }

class InboxReplies : public ::testing::Test {
 protected:
  void AddRequest(uint64_t request) {
    inbox_.AddRequest(request, [this](const Reply& reply) {
      answers_.push_back(absl::StrCat(reply.request, reply.status.ok() ? "" : " "));
      if (!reply.status.ok()) absl::StrAppend(&answers_.back(), ToAbsl(ReasonOf(reply.status)));
    });
  }
  void Answer(Reply reply, uint64_t last_commit, bool acknowledges_change, absl::Time now = At(0)) {
    if (const Inbox::Done done = inbox_.PassOrHold(reply, last_commit, acknowledges_change, now))
      done(std::move(reply));
  }
  Inbox inbox_{10};
  std::vector<std::string> answers_;
};

TEST_F(InboxReplies, AReplyLeavesAtOnceWhenAllCommitsAreDurable) {
  AddRequest(7);
  AddRequest(8);
  Answer(ReplyTo(7), /*last_commit=*/0, /*acknowledges_change=*/false);
  EXPECT_THAT(answers_, ::testing::ElementsAre("7"));
  Send(inbox_.TakeRequests());
  EXPECT_THAT(answers_, ::testing::ElementsAre("7", "8 SERVER_STOPPING"));
  EXPECT_TRUE(inbox_.TakeRequests().empty());
}

TEST_F(InboxReplies, AReplyWaitsForAllCommitsThatItMayTellOf) {
  for (const uint64_t request : {1, 2, 3, 4}) AddRequest(request);
  Answer(ReplyTo(1), /*last_commit=*/1, /*acknowledges_change=*/true);
  // This reply may depend on the change that the first one acknowledges.
  Answer(ReplyTo(2), /*last_commit=*/1, /*acknowledges_change=*/false);
  Answer(ReplyTo(3), /*last_commit=*/2, /*acknowledges_change=*/true);
  Reply bytes = ReplyTo(4);
  bytes.body = ir::Array();
  Answer(std::move(bytes), /*last_commit=*/2, /*acknowledges_change=*/false);
  EXPECT_THAT(answers_, ::testing::ElementsAre("4"));
  Send(inbox_.RecordDurable(1));
  EXPECT_THAT(answers_, ::testing::ElementsAre("4", "1", "2"));
  Send(inbox_.RecordDurable(2));
  EXPECT_THAT(answers_, ::testing::ElementsAre("4", "1", "2", "3"));
}

// AcknowledgesChange looks at the event alone: a repeated call that finds the work done makes no
// commit, but its reply acknowledges as much as the first reply.
TEST(AcknowledgesChangeTest, DependsOnTheEventAlone) {
  EXPECT_TRUE(AcknowledgesChange(OpenSession{}));
  EXPECT_TRUE(AcknowledgesChange(DeleteArrays{}));
  EXPECT_TRUE(AcknowledgesChange(KeepProgram{}));
  EXPECT_FALSE(AcknowledgesChange(ListArrays{}));
  EXPECT_FALSE(AcknowledgesChange(Tick{}));
  DeleteArrays canary;
  canary.caller.tenant = core::kSystemTenant;
  EXPECT_FALSE(AcknowledgesChange(canary));
  CreateMesh check;
  check.check_only = true;
  EXPECT_FALSE(AcknowledgesChange(check));
}

TEST_F(InboxReplies, OnlyRepliesToReadsLeaveWhileCommitsFail) {
  for (const uint64_t request : {1, 2, 3, 4, 5}) AddRequest(request);
  Answer(ReplyTo(1), /*last_commit=*/1, /*acknowledges_change=*/true);
  Answer(ReplyTo(2), /*last_commit=*/1, /*acknowledges_change=*/false);
  Send(inbox_.RecordFailure(MakeError(ErrorKind::kDiskFull, "full")));
  EXPECT_THAT(answers_, ::testing::ElementsAre("1 DISK_FULL", "2"));
  EXPECT_THAT(inbox_.RejectionReason(OpenSession{}), ReasonIs("DISK_FULL"));
  OpenSession canary;
  canary.caller.tenant = core::kSystemTenant;
  TESSERA_EXPECT_OK(inbox_.RejectionReason(canary));
  TESSERA_EXPECT_OK(inbox_.RejectionReason(DeleteArrays{}));
  TESSERA_EXPECT_OK(inbox_.RejectionReason(ListArrays{}));
  Answer(ReplyTo(3), /*last_commit=*/1, /*acknowledges_change=*/false);
  Answer(ReplyTo(4), /*last_commit=*/2, /*acknowledges_change=*/true);  // the reply to a deletion
  EXPECT_THAT(answers_, ::testing::ElementsAre("1 DISK_FULL", "2", "3", "4 DISK_FULL"));
  Send(inbox_.RecordDurable(2));
  TESSERA_EXPECT_OK(inbox_.RejectionReason(OpenSession{}));
  Answer(ReplyTo(5), /*last_commit=*/3, /*acknowledges_change=*/true);
  EXPECT_EQ(answers_.size(), 4u) << "it waits";
}

TEST_F(InboxReplies, AnEndThatIsNotDurableIsNotToldWhileCommitsFail) {
  for (const uint64_t request : {1, 2, 3, 4}) AddRequest(request);
  Send(inbox_.RecordDurable(1));
  const auto answer = [&](uint64_t request, uint64_t ended_in_commit) {
    Reply reply = ReplyTo(request);
    reply.ended_in_commit = ended_in_commit;
    Answer(std::move(reply), /*last_commit=*/2, /*acknowledges_change=*/false);
  };
  answer(1, 1);
  answer(2, 2);
  Send(inbox_.RecordFailure(MakeError(ErrorKind::kDiskFull, "full")));
  answer(3, 1);
  answer(4, 2);
  EXPECT_THAT(answers_, ::testing::ElementsAre("1", "2 DISK_FULL", "3", "4 DISK_FULL"));
}

TEST_F(InboxReplies, AReplyToARepeatedCallAcknowledgesItsOperation) {
  for (const uint64_t request : {1, 2}) AddRequest(request);
  Send(inbox_.RecordFailure(MakeError(ErrorKind::kDiskFull, "full")));
  Reply reply = ReplyTo(1);
  reply.body = PendingArrays{};
  Answer(std::move(reply), /*last_commit=*/1, /*acknowledges_change=*/false);
  EXPECT_THAT(answers_, ::testing::ElementsAre("1 DISK_FULL"));
}

TEST_F(InboxReplies, AllRepliesAreStaleEpochOnceAnotherCoordinatorHasTheStore) {
  for (const uint64_t request : {1, 2}) AddRequest(request);
  Reply gone = ReplyTo(1);
  gone.status = MakeError(ErrorKind::kArrayDeleted, "its session's lease ended");
  Answer(std::move(gone), /*last_commit=*/1, /*acknowledges_change=*/false);
  Send(inbox_.RecordFailure(MakeError(ErrorKind::kStaleEpoch, "taken")));
  Answer(ReplyTo(2), /*last_commit=*/1, /*acknowledges_change=*/false);
  EXPECT_THAT(answers_, ::testing::ElementsAre("1 STALE_EPOCH", "2 STALE_EPOCH"));
}

TEST_F(InboxReplies, ASilentDiskCountsAsAFailedDisk) {
  for (const uint64_t request : {1, 2, 3, 4}) AddRequest(request);
  Answer(ReplyTo(1), /*last_commit=*/1, /*acknowledges_change=*/true, At(10));
  Answer(ReplyTo(2), /*last_commit=*/1, /*acknowledges_change=*/false, At(12));
  Send(inbox_.FailCommitsIfSilent(At(14), absl::Milliseconds(5)));
  EXPECT_TRUE(answers_.empty());
  Send(inbox_.FailCommitsIfSilent(At(15), absl::Milliseconds(5)));
  EXPECT_THAT(answers_, ::testing::ElementsAre("1 STORE_FAILED", "2"));
  EXPECT_THAT(inbox_.RejectionReason(OpenSession{}), ReasonIs("STORE_FAILED", "for 5ms"));
  Answer(ReplyTo(3), /*last_commit=*/2, /*acknowledges_change=*/false, At(16));
  EXPECT_EQ(answers_.size(), 3u) << "reads go on";
  Send(inbox_.RecordDurable(2));
  TESSERA_EXPECT_OK(inbox_.RejectionReason(OpenSession{}));
  Answer(ReplyTo(4), /*last_commit=*/3, /*acknowledges_change=*/true, At(30));
  EXPECT_EQ(answers_.size(), 3u) << "it waits";
}

SendCommand CommandTo(uint64_t registration_id, api::Command command, bool when_durable = false) {
  return {registration_id, 0, 1, std::move(command), when_durable};
}

TEST(Outbox, CommandsThatConsumeArraysLeaveOnceTheirRunIsDurable) {
  Outbox outbox;
  const auto pass_or_keep = [&](SendCommand command, uint64_t last_commit, uint64_t durable) {
    return outbox.PassOrKeep(command, last_commit, durable);
  };
  api::Launch launch;
  launch.donate = {false, true};
  EXPECT_FALSE(pass_or_keep(CommandTo(1, launch), 3, 2));
  EXPECT_FALSE(pass_or_keep(CommandTo(2, api::DeleteBuffers{{7}}, /*when_durable=*/true), 3, 2));
  EXPECT_FALSE(pass_or_keep(CommandTo(2, api::DeleteBuffers{{8}}), 3, 2)) << "it comes after that";
  EXPECT_TRUE(pass_or_keep(CommandTo(3, api::DeleteBuffers{{9}}), 3, 2));
  EXPECT_TRUE(pass_or_keep(CommandTo(3, api::DeleteBuffers{{9}}, /*when_durable=*/true), 3, 3));
  EXPECT_TRUE(outbox.Take(2).empty());
  const std::vector<SendCommand> left = outbox.Take(3);
  ASSERT_EQ(left.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<api::Launch>(left[0].command));
  EXPECT_THAT(std::get<api::DeleteBuffers>(left[1].command).arrays, ::testing::ElementsAre(7));
  EXPECT_THAT(std::get<api::DeleteBuffers>(left[2].command).arrays, ::testing::ElementsAre(8));
  EXPECT_TRUE(outbox.empty());
}

// While the disk is full, commands that wait for it do not delay reads, kills and cancellations.
TEST(Outbox, ReadsKillsAndCancellationsOvertakeWaitingCommands) {
  Outbox outbox;
  const auto pass_or_keep = [&](api::Command command) {
    SendCommand send = CommandTo(1, std::move(command));
    return outbox.PassOrKeep(send, 3, 2);
  };
  api::Launch launch;
  launch.launch = 7;
  launch.donate = {true};
  EXPECT_FALSE(pass_or_keep(launch));
  EXPECT_TRUE(pass_or_keep(api::ReadBuffer{}));
  EXPECT_TRUE(pass_or_keep(api::InspectFile{}));
  EXPECT_TRUE(pass_or_keep(api::KillExecutor{"it hangs"}));
  EXPECT_TRUE(pass_or_keep(api::CancelLaunch{5, MakeError(ErrorKind::kCancelled, "enough")}));
  EXPECT_FALSE(pass_or_keep(api::CancelLaunch{7, MakeError(ErrorKind::kCancelled, "enough")}))
      << "it comes after its launch";
  SendCommand other =
      CommandTo(1, api::CancelLaunch{7, MakeError(ErrorKind::kCancelled, "enough")});
  other.executor = 1;
  EXPECT_TRUE(outbox.PassOrKeep(other, 3, 2)) << "its part of the launch has left";
  EXPECT_FALSE(pass_or_keep(api::DeleteBuffers{{9}}));
  EXPECT_FALSE(pass_or_keep(api::Launch()));
  EXPECT_EQ(outbox.Take(3).size(), 4u);
}

TEST(Stepper, TimeDoesNotGoBack) {
  Stepper stepper({}, /*wants_notes=*/false);
  const Clock::Moment at{At(20), At(1020), At(5020)};
  OpenSession open;
  open.request = 1;
  open.display_name = "first";
  open.lease = absl::Seconds(60);
  stepper.Run(open, At(20), at, 0);
  open.request = 2;
  stepper.Run(open, At(10), at, 0);  // came before the last step's event
  EXPECT_EQ(stepper.state().lag, absl::ZeroDuration());
  open.request = 3;
  stepper.Run(open, At(20), {At(25), At(1025), At(5025)}, 0);
  EXPECT_EQ(stepper.state().lag, absl::Milliseconds(5));
  for (const auto& [key, session] : stepper.state().ownership.sessions())
    EXPECT_EQ(session.lease_until, At(20) + absl::Seconds(60));
  EXPECT_EQ(stepper.state().ownership.num_leased(), 3);
  EXPECT_EQ(stepper.state().steady_ahead, absl::Seconds(1));
  EXPECT_EQ(stepper.state().wall_ahead, absl::Seconds(5));
}

TEST(ApplyRepliesLast, AppliesRepliesAfterTheOtherEffects) {
  std::vector<Effect> effects;
  effects.emplace_back(Reply{.request = 1, .status = {}, .body = {}});
  effects.emplace_back(Debug{"a"});
  effects.emplace_back(Reply{.request = 2, .status = {}, .body = {}});
  effects.emplace_back(Debug{"b"});
  std::string order;
  ApplyRepliesLast(effects, [&](Effect& effect) {
    const auto* reply = std::get_if<Reply>(&effect);
    order += reply ? std::to_string(reply->request) : std::get<Debug>(effect).line;
  });
  EXPECT_EQ(order, "ab12");
}

}  // namespace
}  // namespace tessera::server::scheduler
