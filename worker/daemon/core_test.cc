// Proves the rules of the daemon: when processes start and are killed, when the worker connects,
// and what it reports. The tests step the pure state machine with made-up events and times, and
// look at the effects; no process, socket or thread is involved.
#include "worker/daemon/core.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr absl::Duration kMs = absl::Milliseconds(1);
constexpr uint64_t kEpoch = 7;

// A daemon whose time the test sets, and the effects of its last step.
class CoreTest : public ::testing::Test {
 protected:
  // Begins anew with this many executors, and starts their processes.
  void Begin(int executors) {
    Config config;
    for (int e = 0; e < executors; ++e) config.incarnations.push_back(1000 * (e + 1));
    state_ = daemon::Begin(config);
    Do(Tick{});
  }
  void Do(const Event& event) { effects_ = Step(state_, event, now_); }
  void After(absl::Duration time, const Event& event) {
    now_ += time;
    Do(event);
  }
  // The first effect of this type in the last step, or nullopt if the step had none.
  template <class E>
  std::optional<E> The() const {
    for (const Effect& effect : effects_)
      if (const E* found = std::get_if<E>(&effect)) return *found;
    return std::nullopt;
  }
  template <class E>
  bool Did() const {
    return The<E>().has_value();
  }
  // All effects of this type in the last step, in order.
  template <class E>
  std::vector<E> All() const {
    std::vector<E> all;
    for (const Effect& effect : effects_)
      if (const E* found = std::get_if<E>(&effect)) all.push_back(*found);
    return all;
  }
  // Advances to the time of the timer, which must be set, and returns the wait.
  absl::Duration TickOnTime(bool link_idle = true) {
    const absl::Duration wait = state_.timer_at - now_;
    EXPECT_LT(wait, absl::InfiniteDuration());
    now_ = std::max(now_, state_.timer_at);
    Do(Tick{link_idle});
    return wait;
  }

  uint64_t Incarnation(int e = 0) const { return state_.executors[e].incarnation; }
  api::ExecutorInfo Info(int e = 0) const {
    return {.index = e,
            .incarnation = Incarnation(e),
            .device_kind = "cpu",
            .num_devices = 1,
            .data_endpoint = {},
            .peer_endpoint = {},
            .peer_data_endpoint = {},
            .memory_bytes = 0,
            .files = false,
            .files_folder = {}};
  }
  void BecomeReady(int e = 0) {
    Do(ChildStarted{e});
    Do(ChildMessage{e, Info(e)});
  }
  void Welcome(absl::Duration heartbeat = 300 * kMs) {
    api::Welcome welcome;
    welcome.epoch = kEpoch;
    welcome.state_began = began_;
    welcome.heartbeat = heartbeat;
    welcome.clock = now_ + absl::Hours(1);
    welcome.outage_grace = grace_;
    welcome.adopted = adopted_;
    Do(Welcomed{welcome});
  }
  void LoseLink() { Do(LinkEnded{absl::UnavailableError("gone")}); }
  // Ticks until a step connects, and returns how long that took.
  absl::Duration AwaitConnect() {
    const absl::Time began = now_;
    while (!Did<Connect>()) TickOnTime();
    return now_ - began;
  }
  // Begins with one executor and registers it.
  void Register() {
    Begin(1);
    BecomeReady();
    Welcome();
  }
  // Ends the process as if it exited by itself, and returns the time until the next one starts.
  absl::Duration EndAndAwaitStart() {
    Do(ChildEnded{0, {.reason = "exited with status 1", .exit_status = 1}, {}});
    const absl::Time ended = now_;
    while (!Did<StartChild>()) TickOnTime();
    return now_ - ended;
  }
  ProcessLoss LossAfter(const ProcessEnd& end) {
    Do(ChildEnded{0, end, {}});
    const std::optional<ChildLost> lost = The<ChildLost>();
    return lost ? lost->loss : ProcessLoss{};
  }
  static ProcessEnd Killed() { return {true, "killed by signal 9 (Killed)", -1}; }

  State state_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(5);
  // The fields of the welcomes.
  absl::Duration grace_;
  absl::Time began_ = absl::InfiniteFuture();
  std::vector<api::AdoptedExecutor> adopted_;
  std::vector<Effect> effects_;
};

// ---- Processes. ---------------------------------------------------------------------------------
TEST_F(CoreTest, EveryExecutorStartsAtOnce) {
  Begin(2);
  const std::vector<StartChild> starts = All<StartChild>();
  ASSERT_EQ(starts.size(), 2);
  EXPECT_EQ(starts[0].incarnation, 1001);
  EXPECT_EQ(starts[1].executor, 1);
  EXPECT_EQ(starts[1].incarnation, 2001);
}

TEST_F(CoreTest, TheWaitAfterAFailedStartDoubles) {
  Begin(1);
  for (const int wait : {50, 100, 200, 400, 800, 1600, 2000, 2000}) {
    Do(SpawnFailed{0, "no such file"});
    ASSERT_TRUE(Did<ChildLost>());
    EXPECT_EQ(The<ChildLost>()->loss.cause, LossCause::kOther);
    EXPECT_EQ(The<ChildLost>()->loss.reason, "no such file");
    EXPECT_FALSE(Did<StartChild>());
    const uint64_t last = Incarnation();
    EXPECT_EQ(TickOnTime(), wait * kMs);
    ASSERT_TRUE(Did<StartChild>());
    EXPECT_EQ(The<StartChild>()->incarnation, last + 1);
  }
}

TEST_F(CoreTest, TheWaitForTheNextProcessDependsOnHowLongTheLastWasReady) {
  Begin(1);
  BecomeReady();
  EXPECT_EQ(EndAndAwaitStart(), 50 * kMs) << "ready, for a moment";
  BecomeReady();
  EXPECT_EQ(EndAndAwaitStart(), 100 * kMs) << "ready, again for a moment";
  Do(ChildStarted{0});
  EXPECT_EQ(EndAndAwaitStart(), 200 * kMs) << "never ready";
  BecomeReady();
  now_ += absl::Seconds(5);
  EXPECT_EQ(EndAndAwaitStart(), absl::ZeroDuration()) << "ready for long";
}

TEST_F(CoreTest, ALossIsReportedBeforeTheNextProcessStarts) {
  Register();
  now_ += absl::Seconds(5);
  Do(ChildEnded{0, Killed(), {.launch = 4, .op = "dot", .waiting = false}});
  ASSERT_GE(effects_.size(), 3);
  EXPECT_TRUE(std::holds_alternative<ChildLost>(effects_[0]));
  EXPECT_TRUE(std::holds_alternative<SendReport>(effects_[1]));
  EXPECT_TRUE(std::holds_alternative<StartChild>(effects_[2]));
}

TEST_F(CoreTest, AProcessThatIsNotReadyInTimeIsKilled) {
  Begin(1);
  Do(ChildStarted{0});
  EXPECT_EQ(TickOnTime(), absl::Seconds(20));
  EXPECT_TRUE(Did<KillChild>());
  const ProcessLoss loss = LossAfter(Killed());
  EXPECT_EQ(loss.cause, LossCause::kNotReady);
  EXPECT_EQ(loss.reason, "killed: it was not ready in time");
  EXPECT_FALSE(loss.was_ready);
}

TEST_F(CoreTest, AProcessThatIsReadyInTimeIsNotKilled) {
  Begin(1);
  BecomeReady();
  After(absl::Seconds(21), Tick{});
  EXPECT_FALSE(Did<KillChild>());
}

TEST_F(CoreTest, AProcessWhoseSocketEndedIsKilledAfterTheGrace) {
  Begin(1);
  BecomeReady();
  Do(SocketEnded{0});
  After(999 * kMs, Tick{});
  EXPECT_FALSE(Did<KillChild>());
  After(1 * kMs, Tick{});
  EXPECT_TRUE(Did<KillChild>());
  EXPECT_EQ(LossAfter(Killed()).reason, "killed: it did not stop in time");
}

TEST_F(CoreTest, ASecondMessageEndsTheSocket) {
  Begin(1);
  BecomeReady();
  Do(ChildMessage{0, Info()});
  After(absl::Seconds(1), Tick{});
  EXPECT_TRUE(Did<KillChild>());
  const ProcessLoss loss = LossAfter(Killed());
  EXPECT_EQ(loss.cause, LossCause::kOther);
  EXPECT_TRUE(loss.was_ready);
}

TEST_F(CoreTest, AProcessWhoseMessageDoesNotParseIsKilled) {
  Begin(1);
  Do(ChildStarted{0});
  Do(ChildMessage{0, std::nullopt});
  EXPECT_TRUE(Did<KillChild>());
  EXPECT_FALSE(Did<Connect>());
  const ProcessLoss loss = LossAfter(Killed());
  EXPECT_EQ(loss.cause, LossCause::kProtocol);
  EXPECT_EQ(loss.reason, "killed: it does not speak our protocol");
}

TEST_F(CoreTest, TheFirstReasonOfAKillIsReported) {
  Register();
  Do(KillRequested{kEpoch, 0, Incarnation(), "it hangs"});
  EXPECT_TRUE(Did<KillChild>());
  Do(SocketEnded{0});
  After(absl::Seconds(2), Tick{});
  EXPECT_FALSE(Did<KillChild>()) << "it is killed once";
  const ProcessLoss loss = LossAfter(Killed());
  EXPECT_EQ(loss.cause, LossCause::kStuck);
  EXPECT_EQ(loss.reason, "it hangs");
}

TEST_F(CoreTest, AnExitAndASignalAreDifferentCauses) {
  const auto ends_as = [&](const ProcessEnd& end) {
    Begin(1);
    Do(ChildStarted{0});
    return LossAfter(end);
  };
  EXPECT_EQ(ends_as({false, "exited with status 1", 1}).cause, LossCause::kExit);
  EXPECT_EQ(ends_as({false, "exited with status 1", 1}).reason, "exited with status 1");
  EXPECT_EQ(ends_as(Killed()).cause, LossCause::kSignal);
}

TEST_F(CoreTest, AReadyProcessIsPingedOnceItHasAnsweredTheLastPing) {
  Begin(1);
  Do(ChildStarted{0});
  EXPECT_FALSE(Did<PingChild>());
  Do(ChildMessage{0, Info()});
  EXPECT_TRUE(Did<PingChild>());
  After(100 * kMs, ChildPonged{0});
  EXPECT_FALSE(Did<PingChild>());
  After(399 * kMs, Tick{});
  EXPECT_FALSE(Did<PingChild>());
  After(1 * kMs, Tick{});
  EXPECT_TRUE(Did<PingChild>());
  After(absl::Seconds(9), Tick{});
  EXPECT_FALSE(Did<PingChild>()) << "before it has answered";
  Do(ChildPonged{0});
  EXPECT_TRUE(Did<PingChild>());
}

// ---- Heartbeats. --------------------------------------------------------------------------------
TEST_F(CoreTest, AHeartbeatSaysHowLongAProcessIsSilent) {
  Register();  // the process has been pinged, too
  const auto silence = [&](absl::Duration later) {
    After(later, Tick{.link_idle = true});
    return Did<SendHeartbeat>() ? The<SendHeartbeat>()->silence.at(0) : -kMs;
  };
  EXPECT_EQ(silence(300 * kMs), absl::ZeroDuration()) << "not late yet";
  EXPECT_EQ(silence(300 * kMs), 600 * kMs);
  Do(ChildPonged{0});
  EXPECT_EQ(silence(300 * kMs), absl::ZeroDuration());
}

TEST_F(CoreTest, NoHeartbeatQueuesBehindAWrite) {
  Register();
  After(300 * kMs, Tick{.link_idle = false});
  EXPECT_FALSE(Did<SendHeartbeat>());
  After(300 * kMs, Tick{.link_idle = true});
  ASSERT_TRUE(Did<SendHeartbeat>());
  EXPECT_EQ(The<SendHeartbeat>()->epoch, kEpoch);
}

TEST_F(CoreTest, NoHeartbeatPrecedesTheWelcome) {
  Begin(1);
  BecomeReady();
  After(absl::Seconds(1), Tick{.link_idle = true});
  EXPECT_FALSE(Did<SendHeartbeat>());
}

TEST_F(CoreTest, TheCoordinatorsHeartbeatIntervalOutlivesTheConnection) {
  Begin(1);
  BecomeReady();
  Welcome(/*heartbeat=*/absl::ZeroDuration());
  EXPECT_EQ(state_.connection.heartbeat_interval, 10 * kMs);
  Do(LinkEnded{absl::UnavailableError("gone")});
  EXPECT_EQ(state_.connection.heartbeat_interval, 10 * kMs);
}

// ---- The coordinator. ---------------------------------------------------------------------------
TEST_F(CoreTest, AWorkerRegistersWhenAllItsExecutorsAreReady) {
  Begin(2);
  BecomeReady(0);
  EXPECT_FALSE(Did<Connect>());
  BecomeReady(1);
  ASSERT_TRUE(Did<Connect>());
  ASSERT_EQ(The<Connect>()->executors.size(), 2);
  EXPECT_EQ(The<Connect>()->executors[1].incarnation, 2001);
  Welcome();
  const std::vector<WelcomeChild> welcomes = All<WelcomeChild>();
  ASSERT_EQ(welcomes.size(), 2);
  EXPECT_EQ(welcomes[0].incarnation, 1001);
  EXPECT_EQ(welcomes[1].incarnation, 2001);
  EXPECT_EQ(welcomes[1].welcome.clock, now_ + absl::Hours(1));
  EXPECT_TRUE(Did<Registered>());
  EXPECT_FALSE(Did<SendReport>());
}

TEST_F(CoreTest, AnExecutorThatEndedDuringRegistrationIsReported) {
  Begin(2);
  BecomeReady(0);
  BecomeReady(1);
  const uint64_t first = Incarnation(0), second = Incarnation(1);
  Do(ChildEnded{0, Killed(), {}});
  EXPECT_FALSE(Did<SendReport>());
  Do(ChildEnded{1, Killed(), {}});
  while (Incarnation(1) == second) TickOnTime();
  BecomeReady(1);
  EXPECT_FALSE(Did<SendReport>());
  Welcome();
  const std::vector<SendReport> reports = All<SendReport>();
  ASSERT_EQ(reports.size(), 3);
  EXPECT_EQ(reports[0].report.incarnation, first);
  EXPECT_EQ(std::get<api::ExecutorLost>(reports[0].report.body).reason,
            "it ended during registration");
  EXPECT_EQ(reports[1].report.incarnation, second);
  EXPECT_TRUE(std::holds_alternative<api::ExecutorLost>(reports[1].report.body));
  EXPECT_EQ(reports[2].report.incarnation, Incarnation(1));
  EXPECT_TRUE(std::holds_alternative<api::ExecutorReady>(reports[2].report.body));
  EXPECT_EQ(All<WelcomeChild>().size(), 1);
}

TEST_F(CoreTest, ARegisteredWorkerReportsLostAndReadyExecutors) {
  Register();
  const uint64_t first = Incarnation();
  Do(ChildEnded{0, Killed(), {.launch = 4, .op = "dot", .waiting = false}});
  ASSERT_TRUE(Did<SendReport>());
  EXPECT_EQ(The<SendReport>()->epoch, kEpoch);
  EXPECT_EQ(The<SendReport>()->report.incarnation, first);
  const auto lost = std::get<api::ExecutorLost>(The<SendReport>()->report.body);
  EXPECT_EQ(lost.reason, "killed by signal 9 (Killed)");
  EXPECT_EQ(lost.launch, 4);
  EXPECT_EQ(lost.op, "dot");
  while (!Did<StartChild>()) TickOnTime();
  BecomeReady();
  EXPECT_THAT(The<WelcomeChild>(), Optional(Field(&WelcomeChild::incarnation, first + 1)));
  ASSERT_TRUE(Did<SendReport>());
  EXPECT_TRUE(std::holds_alternative<api::ExecutorReady>(The<SendReport>()->report.body));
  EXPECT_FALSE(Did<Connect>());
}

TEST_F(CoreTest, TheLossOfAProcessThatWasNeverReadyIsNotReported) {
  Register();
  Do(ChildEnded{0, Killed(), {}});
  while (!Did<StartChild>()) TickOnTime();
  Do(ChildStarted{0});
  Do(ChildEnded{0, Killed(), {}});
  EXPECT_TRUE(Did<ChildLost>());
  EXPECT_FALSE(Did<SendReport>());
}

TEST_F(CoreTest, AProcessThatAnswersAndWasNotToldToEndItsWorkIsSpared) {
  grace_ = absl::Seconds(60);
  Register();
  const auto kills = [&](bool if_told, absl::Duration told_for) {
    Do(KillRequested{kEpoch, 0, Incarnation(), "it hangs", if_told, told_for});
    return Did<KillChild>();
  };
  EXPECT_FALSE(kills(true, absl::ZeroDuration()));
  EXPECT_EQ(The<KillPostponed>()->reason, "it hangs");
  EXPECT_FALSE(kills(true, 249 * kMs));
  EXPECT_TRUE(kills(true, 250 * kMs));
  EXPECT_FALSE(Did<KillPostponed>());
}

TEST_F(CoreTest, AProcessThatDoesNotAnswerIsKilledThoughItWasNotTold) {
  grace_ = absl::Seconds(60);
  Register();  // the process has been pinged, too
  After(600 * kMs, Tick{.link_idle = true});
  Do(KillRequested{kEpoch, 0, Incarnation(), "it hangs", /*if_told=*/true});
  EXPECT_TRUE(Did<KillChild>());
}

TEST_F(CoreTest, AProcessIsNotSparedForLongerThanTheOutageGrace) {
  grace_ = absl::Seconds(60);
  Register();
  const auto kills = [&](absl::Duration later) {
    After(later, ChildPonged{0});
    Do(KillRequested{kEpoch, 0, Incarnation(), "it hangs", /*if_told=*/true});
    return Did<KillChild>();
  };
  EXPECT_FALSE(kills(kMs));
  // After a longer time than the grace the count begins anew.
  EXPECT_FALSE(kills(grace_ + kMs));
  EXPECT_FALSE(kills(grace_ / 2));
  EXPECT_FALSE(kills(grace_ / 2 - kMs));
  EXPECT_TRUE(kills(kMs));
}

TEST_F(CoreTest, OnlyTheCurrentCoordinatorMayKillARunningProcess) {
  Register();
  const auto kills = [&](uint64_t epoch, int32_t executor, uint64_t incarnation) {
    Do(KillRequested{epoch, executor, incarnation, "it hangs"});
    return Did<KillChild>();
  };
  EXPECT_FALSE(kills(kEpoch + 1, 0, Incarnation()));
  EXPECT_FALSE(kills(kEpoch, -1, Incarnation()));
  EXPECT_FALSE(kills(kEpoch, 1, Incarnation()));
  EXPECT_FALSE(kills(kEpoch, 0, Incarnation() - 1));
  EXPECT_TRUE(kills(kEpoch, 0, Incarnation()));
}

TEST_F(CoreTest, AnInvalidWelcomeCancelsTheConnection) {
  Begin(1);
  BecomeReady();
  Do(Welcomed{absl::InvalidArgumentError("no welcome")});
  EXPECT_TRUE(Did<CancelLink>());
  EXPECT_FALSE(Did<Registered>());
}

TEST_F(CoreTest, WithoutGraceALostConnectionKillsTheReadyExecutors) {
  Begin(2);
  BecomeReady(0);
  BecomeReady(1);
  Welcome();
  Do(ChildEnded{1, Killed(), {}});  // so that this executor is not ready
  Do(LinkEnded{absl::UnavailableError("gone")});
  EXPECT_THAT(All<KillChild>(), ElementsAre(Field(&KillChild::executor, 0)));
  Do(ChildEnded{0, Killed(), {}});
  ASSERT_TRUE(Did<ChildLost>());
  EXPECT_EQ(The<ChildLost>()->loss.cause, LossCause::kDisconnected);
  EXPECT_EQ(The<ChildLost>()->loss.reason, "killed: the coordinator was away for 0");
  EXPECT_FALSE(Did<SendReport>());
}

TEST_F(CoreTest, AConnectionThatEndsBeforeTheWelcomeKillsNothing) {
  Begin(1);
  BecomeReady();
  Do(LinkEnded{absl::UnavailableError("nobody there")});
  EXPECT_FALSE(Did<KillChild>());
}

TEST_F(CoreTest, TheWaitBetweenRegistrationsDoublesUntilOneSucceeds) {
  Begin(1);
  BecomeReady();
  const auto next = [&](absl::Duration wait) {
    Do(LinkEnded{absl::UnavailableError("nobody there")});
    After(wait - kMs, Tick{});
    const bool early = Did<Connect>();
    After(kMs, Tick{});
    return !early && Did<Connect>();
  };
  for (const int wait : {50, 100, 200, 400, 800, 1600, 2000, 2000}) {
    EXPECT_TRUE(next(wait * kMs)) << wait;
  }
  Welcome();
  Do(LinkEnded{absl::UnavailableError("gone")});
  EXPECT_EQ(state_.connection.connect_at - now_, 50 * kMs);
}

TEST_F(CoreTest, AfterAFinalErrorTheWorkerDoesNotConnectAgain) {
  Begin(1);
  BecomeReady();
  const absl::Status why = MakeError(ErrorKind::kTlsMismatch, "it speaks TLS");
  Do(LinkEnded{why});
  ASSERT_TRUE(Did<Refused>());
  EXPECT_EQ(The<Refused>()->why, why);
  After(absl::Seconds(9), Tick{});
  EXPECT_FALSE(Did<Connect>());
}

TEST_F(CoreTest, AfterAProtocolMismatchTheWorkerDoesNotConnectAgain) {
  const absl::Status why = MakeError(ErrorKind::kProtocolMismatch, "upgrade the worker");
  Begin(1);
  BecomeReady();
  Do(LinkEnded{why});
  ASSERT_TRUE(Did<Refused>());
  EXPECT_EQ(The<Refused>()->why, why);
  After(absl::Seconds(9), Tick{});
  EXPECT_FALSE(Did<Connect>());
}

TEST_F(CoreTest, ACoordinatorThatStatesNoProtocolSpeaksOnlyTheFirst) {
  Begin(1);
  BecomeReady();
  state_.config.build.protocol_min = 2;
  Welcome();
  ASSERT_TRUE(Did<Refused>());
  EXPECT_THAT(The<Refused>()->why,
              ReasonIs("PROTOCOL_MISMATCH", HasSubstr("the coordinator is an earlier build")));
  EXPECT_TRUE(Did<CancelLink>());
  EXPECT_FALSE(Did<WelcomeChild>());
  Do(LinkEnded{absl::CancelledError("")});
  After(absl::Seconds(9), Tick{});
  EXPECT_FALSE(Did<Connect>());
}

TEST_F(CoreTest, ATakenNameMayBelongToOurEarlierConnection) {
  const absl::Status taken = MakeError(ErrorKind::kAlreadyExists, "the name is taken");
  Begin(1);
  BecomeReady();
  After(absl::Seconds(60), LinkEnded{taken});
  EXPECT_FALSE(Did<Refused>()) << "the coordinator may have been silent for as long as the worker";
  const absl::Time first = now_;
  while (!Did<Refused>()) {
    ASSERT_LT(now_, first + absl::Seconds(8));
    TickOnTime();
    ASSERT_TRUE(Did<Connect>());
    Do(LinkEnded{taken});
  }
  EXPECT_GE(now_, first + absl::Seconds(5));
}

TEST_F(CoreTest, ATakenNameThatWasOursIsTriedAgain) {
  const absl::Status taken = MakeError(ErrorKind::kAlreadyExists, "the name is taken");
  Register();
  Do(LinkEnded{absl::UnavailableError("gone")});
  Do(ChildEnded{0, Killed(), {}});
  while (!Did<StartChild>()) TickOnTime();
  BecomeReady();
  if (!Did<Connect>()) TickOnTime();
  ASSERT_TRUE(Did<Connect>());
  After(absl::Seconds(9), LinkEnded{taken});
  EXPECT_FALSE(Did<Refused>()) << "refused because of its own earlier connection";
}

// ---- Outages. -----------------------------------------------------------------------------------
TEST_F(CoreTest, ExecutorsOutliveAnOutageAndAreRegisteredAgain) {
  grace_ = absl::Seconds(60);
  Register();
  const uint64_t incarnation = Incarnation();
  LoseLink();
  EXPECT_FALSE(Did<KillChild>());
  AwaitConnect();
  ASSERT_EQ(The<Connect>()->executors.size(), 1);
  EXPECT_EQ(The<Connect>()->executors[0].incarnation, incarnation);
  EXPECT_TRUE(The<Connect>()->executors[0].has_state);
  adopted_ = {{0, incarnation}};
  Welcome();
  EXPECT_FALSE(Did<KillChild>());
  EXPECT_FALSE(Did<SendReport>());
  EXPECT_THAT(The<WelcomeChild>(), Optional(Field(&WelcomeChild::incarnation, incarnation)));
  // The next outage has the whole grace again.
  now_ += absl::Seconds(50);
  LoseLink();
  After(absl::Seconds(59), Tick{});
  EXPECT_FALSE(Did<KillChild>());
}

TEST_F(CoreTest, ANewExecutorHasNoStateAndNeedsNoAdoption) {
  grace_ = absl::Seconds(60);
  Begin(2);
  BecomeReady(0);
  BecomeReady(1);
  EXPECT_FALSE(The<Connect>()->executors[0].has_state);
  Welcome();
  LoseLink();
  const uint64_t lost = Incarnation(1);
  Do(ChildEnded{1, Killed(), {}});
  while (Incarnation(1) == lost) TickOnTime();
  BecomeReady(1);
  if (!Did<Connect>()) AwaitConnect();
  EXPECT_TRUE(The<Connect>()->executors[0].has_state);
  EXPECT_FALSE(The<Connect>()->executors[1].has_state);
  // An executor without state needs no adoption.
  adopted_ = {{0, Incarnation(0)}};
  Welcome();
  EXPECT_FALSE(Did<KillChild>());
  EXPECT_EQ(All<WelcomeChild>().size(), 2);
}

TEST_F(CoreTest, AnExecutorThatIsNotAdoptedIsRestarted) {
  grace_ = absl::Seconds(60);
  Begin(2);
  BecomeReady(0);
  BecomeReady(1);
  Welcome();
  LoseLink();
  AwaitConnect();
  const uint64_t forgotten = Incarnation(0), adopted = Incarnation(1);
  adopted_ = {{0, forgotten + 1}, {1, adopted}};
  Welcome();
  EXPECT_THAT(All<KillChild>(), ElementsAre(Field(&KillChild::incarnation, forgotten)));
  EXPECT_THAT(All<WelcomeChild>(), ElementsAre(Field(&WelcomeChild::incarnation, adopted)));
  Do(ChildEnded{0, Killed(), {}});
  ASSERT_TRUE(Did<ChildLost>());
  EXPECT_EQ(The<ChildLost>()->loss.cause, LossCause::kDisconnected);
  EXPECT_EQ(The<ChildLost>()->loss.reason,
            "killed: the coordinator does not adopt its arrays and operations");
  while (Incarnation(0) == forgotten) TickOnTime();
  BecomeReady(0);
  ASSERT_TRUE(Did<SendReport>());
  const auto ready = std::get<api::ExecutorReady>(The<SendReport>()->report.body);
  EXPECT_EQ(ready.info.incarnation, forgotten + 1);
  EXPECT_FALSE(ready.info.has_state);
}

TEST_F(CoreTest, ExecutorsAreRestartedAfterTheGrace) {
  grace_ = absl::Seconds(60);
  Register();
  LoseLink();
  const absl::Time gone = now_;
  const uint64_t incarnation = Incarnation();
  while (!Did<KillChild>()) {
    TickOnTime();
    if (Did<Connect>()) LoseLink();
  }
  EXPECT_EQ(now_ - gone, absl::Seconds(60));
  Do(ChildEnded{0, Killed(), {}});
  EXPECT_EQ(The<ChildLost>()->loss.reason, "killed: the coordinator was away for 1m");
  while (Incarnation() == incarnation) TickOnTime();
  BecomeReady();
  if (!Did<Connect>()) AwaitConnect();
  EXPECT_FALSE(The<Connect>()->executors[0].has_state);
}

TEST_F(CoreTest, AnExecutorKilledWhileTheWorkerConnectsIsReported) {
  grace_ = absl::Seconds(60);
  Register();
  LoseLink();
  AwaitConnect();
  After(absl::Seconds(60), Tick{});
  EXPECT_TRUE(Did<KillChild>());
  adopted_ = {{0, Incarnation()}};
  Welcome();
  ASSERT_TRUE(Did<SendReport>());
  EXPECT_TRUE(std::holds_alternative<api::ExecutorLost>(The<SendReport>()->report.body));
  EXPECT_FALSE(Did<WelcomeChild>());
}

TEST_F(CoreTest, DuringTheGraceTheWorkerConnectsAtShortIntervals) {
  grace_ = absl::Seconds(60);
  Register();
  for (const int wait : {50, 100, 200, 400, 400, 400}) {
    LoseLink();
    EXPECT_EQ(AwaitConnect(), wait * kMs);
  }
}

// A coordinator whose epoch is older than that of the last one asks for the worker during the
// outage.
TEST_F(CoreTest, ACoordinatorOfAnEarlierEpochIsRefusedDuringAnOutage) {
  grace_ = absl::Seconds(60);
  Register();
  LoseLink();
  AwaitConnect();
  api::Welcome stale;
  stale.epoch = kEpoch - 1;
  stale.adopted = {{0, Incarnation()}};
  Do(Welcomed{stale});
  EXPECT_TRUE(Did<CancelLink>());
  EXPECT_FALSE(Did<Registered>());
  EXPECT_FALSE(Did<WelcomeChild>());
  EXPECT_FALSE(Did<KillChild>());
  ASSERT_TRUE(Did<RefusedStale>());
  EXPECT_EQ(The<RefusedStale>()->newest, kEpoch);
  Do(LinkEnded{absl::CancelledError("cancelled")});
  EXPECT_FALSE(Did<Refused>());
  AwaitConnect();
  // No state is kept once the grace is over, so the worker accepts any coordinator.
  After(absl::Seconds(60), LinkEnded{absl::UnavailableError("gone")});
  ASSERT_TRUE(Did<KillChild>());
  Do(ChildEnded{0, Killed(), {}});
  while (!Did<StartChild>()) TickOnTime();
  BecomeReady();
  if (!Did<Connect>()) AwaitConnect();
  Do(Welcomed{stale});
  EXPECT_TRUE(Did<Registered>());
}

// A coordinator begins on an empty folder during the outage, so that its first epoch is 1 again.
TEST_F(CoreTest, ACoordinatorThatBeganLaterIsAcceptedAndAdoptsNothing) {
  grace_ = absl::Seconds(60);
  began_ = absl::FromUnixSeconds(1000);
  Register();
  LoseLink();
  AwaitConnect();
  api::Welcome earlier;
  earlier.epoch = kEpoch + 5;
  earlier.state_began = absl::FromUnixSeconds(999);
  Do(Welcomed{earlier});
  EXPECT_TRUE(Did<RefusedStale>());
  Do(LinkEnded{absl::CancelledError("cancelled")});
  AwaitConnect();
  api::Welcome later;
  later.epoch = 1;
  later.state_began = absl::FromUnixSeconds(1001);
  Do(Welcomed{later});
  EXPECT_TRUE(Did<Registered>());
  EXPECT_FALSE(Did<WelcomeChild>());
  ASSERT_TRUE(Did<KillChild>());
  Do(ChildEnded{0, Killed(), {}});
  EXPECT_EQ(The<ChildLost>()->loss.reason,
            "killed: the coordinator does not adopt its arrays and operations");
}

// An upgrade of the coordinator is taken back. The earlier build does not say when its state began.
TEST_F(CoreTest, ACoordinatorThatDoesNotSayWhenItsStateBeganIsJudgedByItsEpoch) {
  grace_ = absl::Seconds(60);
  began_ = absl::FromUnixSeconds(1000);
  Register();
  LoseLink();
  AwaitConnect();
  api::Welcome older_build;
  older_build.epoch = kEpoch - 1;
  older_build.adopted = {{0, Incarnation()}};
  Do(Welcomed{older_build});
  EXPECT_TRUE(Did<RefusedStale>());
  Do(LinkEnded{absl::CancelledError("cancelled")});
  AwaitConnect();
  older_build.epoch = kEpoch + 1;
  Do(Welcomed{older_build});
  EXPECT_TRUE(Did<Registered>());
  EXPECT_FALSE(Did<KillChild>());
}

TEST_F(CoreTest, AStopInAnOutageEndsTheProcesses) {
  grace_ = absl::Seconds(60);
  Register();
  LoseLink();
  Do(Stop{});
  EXPECT_TRUE(Did<CloseChildInput>());
  EXPECT_EQ(TickOnTime(), absl::Seconds(1));
  EXPECT_TRUE(Did<KillChild>());
}

// ---- The end. -----------------------------------------------------------------------------------
TEST_F(CoreTest, AStopEndsTheConnectionThenTheProcesses) {
  Register();
  Do(Stop{});
  EXPECT_TRUE(Did<CancelLink>());
  EXPECT_FALSE(Did<CloseChildInput>());
  Do(LinkEnded{absl::CancelledError("cancelled")});
  EXPECT_TRUE(Did<CloseChildInput>());
  EXPECT_FALSE(Did<Connect>());
  Do(ChildEnded{0, {false, "exited with status 0", 0}, {}});
  ASSERT_TRUE(Did<ChildLost>());
  EXPECT_EQ(The<ChildLost>()->loss.cause, LossCause::kStopped);
  EXPECT_EQ(The<ChildLost>()->loss.reason, "the worker is stopping");
  EXPECT_FALSE(Did<StartChild>());
  EXPECT_TRUE(Did<Stopped>());
}

TEST_F(CoreTest, AfterAStopTheWorkerDoesNotConnectAgain) {
  Begin(1);
  BecomeReady();
  Do(Stop{});
  Do(LinkEnded{absl::UnavailableError("nobody there")});
  After(absl::Seconds(3), Tick{});
  EXPECT_FALSE(Did<Connect>());
}

TEST_F(CoreTest, AStopKillsAProcessThatDoesNotStopInTime) {
  Begin(1);
  Do(ChildStarted{0});
  Do(Stop{});
  EXPECT_TRUE(Did<CloseChildInput>());
  EXPECT_EQ(TickOnTime(), absl::Seconds(1));
  EXPECT_TRUE(Did<KillChild>());
  EXPECT_EQ(LossAfter(Killed()).cause, LossCause::kStopped);
  EXPECT_TRUE(Did<Stopped>());
}

TEST_F(CoreTest, AStopEndsAProcessThatIsBeingStarted) {
  Begin(1);
  Do(Stop{});
  EXPECT_FALSE(Did<Stopped>());
  Do(ChildStarted{0});
  EXPECT_TRUE(Did<CloseChildInput>());
}

TEST_F(CoreTest, NoProcessStartsAfterAStop) {
  Begin(1);
  Do(SpawnFailed{0, "no such file"});
  Do(Stop{});
  EXPECT_TRUE(Did<Stopped>());
  After(absl::Seconds(3), Tick{});
  EXPECT_FALSE(Did<StartChild>());
}

}  // namespace
}  // namespace tessera::worker::daemon
