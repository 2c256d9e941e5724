// Proves how notes of the scheduler become metrics, how programs enter and leave the list of top
// programs without a counter ever falling, and how gauges are read in parts. Notes are made by
// hand.
#include "server/telemetry/telemetry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "server/telemetry/top_programs.h"

namespace tessera::server::telemetry {
namespace {

using ::testing::SizeIs;

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

core::OperationEnded EndedRun(const std::string& program, absl::Duration busy,
                              absl::Time ended = kStart, const std::string& tenant = "acme") {
  core::OperationEnded note;
  note.tenant = tenant;
  note.name = program;
  note.device_kind = "cpu";
  note.created = ended - absl::Seconds(3);
  note.started = ended - absl::Seconds(2);
  note.ended = ended;
  note.run_longest = busy / 2;
  note.run_total = busy;
  note.bytes_moved = 10;
  return note;
}

bool AllTenants(const std::string&) { return true; }

TEST(TopPrograms, CountsAProgramsRuns) {
  TopPrograms top;
  top.Add(EndedRun("train", absl::Seconds(2)));
  top.Add(EndedRun("train", absl::Seconds(1)));
  core::OperationEnded failed = EndedRun("train", absl::Seconds(1));
  failed.state = api::OperationState::kFailed;
  top.Add(failed);
  const std::vector<ProgramUse> uses = top.List(AllTenants, /*with_others=*/false, kStart);
  ASSERT_THAT(uses, SizeIs(1));
  EXPECT_EQ(uses[0].program, "train");
  EXPECT_EQ(uses[0].tenant, "acme");
  EXPECT_EQ(uses[0].runs_succeeded, 2);
  EXPECT_EQ(uses[0].failures, 1);
  EXPECT_EQ(uses[0].run_time, absl::Seconds(4));
  EXPECT_EQ(uses[0].run_p50, absl::Seconds(2));
  EXPECT_EQ(uses[0].run_p99, absl::Seconds(2));
  EXPECT_EQ(uses[0].device_busy, absl::Seconds(3));
  EXPECT_EQ(uses[0].idle_input, absl::Seconds(3));
  EXPECT_EQ(uses[0].idle_peer, absl::Milliseconds(2500));
  EXPECT_EQ(uses[0].bytes_moved, 20);
  EXPECT_GT(uses[0].recent_devices_busy, 0);
}

TEST(TopPrograms, ListsKProgramsAndTheSumOfAllOthers) {
  TopPrograms top(/*k=*/3, /*candidates_max=*/5);
  for (int p = 0; p < 50; ++p) top.Add(EndedRun(absl::StrCat("p", p), absl::Seconds(1)));
  const std::vector<ProgramUse> uses = top.List(AllTenants, /*with_others=*/true, kStart);
  ASSERT_THAT(uses, SizeIs(4));
  EXPECT_EQ(uses[3].program, "");
  EXPECT_EQ(uses[3].runs_succeeded, 47);
}

TEST(TopPrograms, AnEnteringProgramStartsAtZeroAndALeavingProgramCountsAmongTheOthers) {
  TopPrograms top(/*k=*/1);
  top.Add(EndedRun("first", absl::Seconds(1)));
  top.Add(EndedRun("second", absl::Seconds(1)));  // equal use does not replace the listed program
  EXPECT_EQ(top.List(AllTenants, false, kStart)[0].program, "first");
  top.Add(EndedRun("second", absl::Seconds(1)));
  const std::vector<ProgramUse> uses = top.List(AllTenants, true, kStart);
  EXPECT_EQ(uses[0].program, "second");
  EXPECT_EQ(uses[0].runs_succeeded, 1);
  EXPECT_EQ(uses[1].runs_succeeded, 2);  // the first run of each program
}

// Returns the counters of programs by metric and labels.
std::map<std::string, double> CountersOf(Metrics* metrics) {
  std::map<std::string, double> values;
  for (const MetricFamily& family : metrics->Collect())
    for (const MetricSample& sample : family.samples)
      if (absl::StrContains(family.info->name, "tessera_program_"))
        values[absl::StrCat(family.info->name, " ", absl::StrJoin(sample.labels, " "))] =
            sample.value;
  return values;
}

TEST(TopPrograms, ANameOfTwoTenantsKeepsItsCounterWhenOneProgramLeavesTheList) {
  TopPrograms top(/*k=*/2);
  Metrics metrics;
  metrics.AddCollector([&](SampleSink& sink) { top.Collect(sink); });
  top.Add(EndedRun("train", absl::Seconds(1), kStart, "acme"));
  top.Add(EndedRun("train", absl::Seconds(9), kStart, "rival"));
  EXPECT_EQ(metrics.Value(Metric::kProgramSteps, {"train"}), 2);
  top.Add(EndedRun("busy", absl::Seconds(5)));  // takes the place of acme's "train"
  ASSERT_THAT(top.List(AllTenants, /*with_others=*/false, kStart), SizeIs(2));
  EXPECT_EQ(metrics.Value(Metric::kProgramSteps, {"train"}), 2);
  EXPECT_EQ(metrics.Value(Metric::kProgramBusySeconds, {"train"}), 10);
}

TEST(TopPrograms, NoCounterEverFalls) {
  // With few places and series, programs enter and leave the list all the time, and some names have
  // no series.
  TopPrograms top(/*k=*/3, /*candidates_max=*/8, /*series_max=*/6);
  Metrics metrics;
  metrics.AddCollector([&](SampleSink& sink) { top.Collect(sink); });
  std::mt19937 random(7);
  std::map<std::string, double> before;
  constexpr int kRuns = 2000;
  for (int i = 0; i < kRuns; ++i) {
    top.Add(EndedRun(absl::StrCat("p", random() % 12), absl::Seconds(1 + random() % 100),
                     kStart + absl::Minutes(i), absl::StrCat("tenant", random() % 3)));
    std::map<std::string, double> now = CountersOf(&metrics);
    for (const auto& [series, value] : before) {
      ASSERT_TRUE(now.contains(series)) << series << " after run " << i;
      ASSERT_GE(now[series], value) << series << " after run " << i;
    }
    before = std::move(now);
  }
  double steps = 0;
  for (const auto& [series, value] : before)
    if (absl::StartsWith(series, "tessera_program_steps_total ")) steps += value;
  EXPECT_EQ(steps, kRuns);
}

TEST(TopPrograms, OldUseCountsLess) {
  TopPrograms top(/*k=*/1);
  top.Add(EndedRun("old", absl::Seconds(100)));
  const absl::Time later = kStart + absl::Hours(2);  // twelve half-lives
  top.Add(EndedRun("new", absl::Seconds(1), later));
  EXPECT_EQ(top.List(AllTenants, false, later)[0].program, "new");
}

TEST(TopPrograms, ATenantSeesOnlyItsOwnPrograms) {
  TopPrograms top;
  top.Add(EndedRun("a", absl::Seconds(1), kStart, "acme"));
  top.Add(EndedRun("a", absl::Seconds(1), kStart, "rival"));
  const auto uses =
      top.List([](const std::string& tenant) { return tenant == "acme"; }, false, kStart);
  ASSERT_THAT(uses, SizeIs(1));
  EXPECT_EQ(uses[0].tenant, "acme");
}

TEST(Telemetry, OperationsAreCountedByTheirOutcome) {
  Metrics metrics;
  Telemetry telemetry(&metrics);
  telemetry.OnNote(core::OperationSubmitted{"acme", api::OperationKind::kExecute});
  telemetry.OnNote(EndedRun("p", absl::Seconds(1)));
  core::OperationEnded late = EndedRun("p", absl::Seconds(1));
  late.state = api::OperationState::kFailed;
  late.error = MakeError(ErrorKind::kDeadlineExceeded, "late");
  late.started = absl::InfiniteFuture();
  telemetry.OnNote(late);
  core::OperationEnded lost = EndedRun("p", absl::Seconds(1));
  lost.state = api::OperationState::kFailed;
  lost.error = MakeError(ErrorKind::kWorkerLost, "gone");
  telemetry.OnNote(lost);
  EXPECT_EQ(metrics.Value(Metric::kOperationsSubmitted, {"acme", "execute"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kOperationsCompleted, {"acme", "execute", "ok", "OK"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kOperationsCompleted,
                          {"acme", "execute", "deadline", "DEADLINE_EXCEEDED"}),
            1);
  EXPECT_EQ(
      metrics.Value(Metric::kOperationsCompleted, {"acme", "execute", "error", "WORKER_LOST"}), 1);
  // The operation that was never scheduled has no queue time and no run time.
  EXPECT_EQ(metrics.Value(Metric::kOperationQueue, {"acme", "normal"}), 2);
  EXPECT_EQ(metrics.Value(Metric::kOperationExecute, {"acme", "cpu"}), 2);
  EXPECT_EQ(metrics.Value(Metric::kOperationEndToEnd, {"acme", "execute"}), 3);
  EXPECT_EQ(metrics.Value(Metric::kProgramSteps, {"p"}), 1);
}

TEST(Telemetry, AStuckCollectiveHasAVerdict) {
  Metrics metrics;
  Telemetry telemetry(&metrics);
  core::OperationEnded stuck = EndedRun("p", absl::Seconds(1));
  stuck.state = api::OperationState::kFailed;
  stuck.error = MakeError(ErrorKind::kCollectiveTimeout,
                          "psum: 1 of 2 members missing after 5s: rank 1: not entered");
  telemetry.OnNote(stuck);
  EXPECT_EQ(metrics.Value(Metric::kCollectiveStuck, {"not_entered"}), 1);
  // The other counters exist from the beginning, so that their first event is an increase.
  EXPECT_EQ(metrics.Value(Metric::kCollectiveStuck, {"in_kernel"}), 0);
}

TEST(Telemetry, AllOtherNotesAreCounted) {
  Metrics metrics;
  Telemetry telemetry(&metrics);
  telemetry.OnStep(absl::Microseconds(5), /*execute=*/true);
  telemetry.OnStep(absl::Microseconds(5), /*execute=*/false);
  telemetry.OnPlan(absl::Milliseconds(1), /*ok=*/false);
  telemetry.OnNote(core::CacheLookup{core::CacheLookup::kCoalesced});
  telemetry.OnNote(core::ArraysLost{3});
  telemetry.OnNote(core::LeaseExpired{"w0"});
  telemetry.OnNote(core::ExecutorsNotAdopted{"w0", 2});
  telemetry.OnNote(core::PlanTooLarge{"gpu"});
  telemetry.OnNote(core::CancelDone{core::CancelDone::kStopped, absl::Milliseconds(2)});
  telemetry.OnNote(core::SessionEnded{"acme", "lease_expired"});
  EXPECT_EQ(metrics.Value(Metric::kSchedulerCycle), 2);
  EXPECT_EQ(metrics.Value(Metric::kDispatch, {"coordinator"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kPlan, {"error"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kCompileCacheRequests, {"coalesced"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kArrayLost, {"worker_lost"}), 3);
  EXPECT_EQ(metrics.Value(Metric::kWorkerLeaseExpired, {"w0"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kExecutorsNotAdopted, {"w0"}), 2);
  EXPECT_EQ(metrics.Value(Metric::kOom, {"admission", "gpu"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kCancelLatency, {"stopped"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kSessionEnd, {"acme", "lease_expired"}), 1);
}

core::ClusterReading ReadingOfArrays(double count, uint64_t next) {
  core::ClusterReading reading;
  reading.readings = {{Metric::kArrays, {"acme", "ready"}, count}};
  reading.next_array = next;
  return reading;
}

TEST(GaugeReader, AddsUpTheGaugesOfAllParts) {
  Metrics metrics;
  std::vector<uint64_t> requested;
  const GaugeReader reader(
      &metrics,
      [&](uint64_t first, const GaugeReader::Callback& answer) {
        requested.push_back(first);
        answer(ReadingOfArrays(10, first == 0 ? 100 : 0));
      },
      /*epoch=*/7);
  EXPECT_EQ(metrics.Value(Metric::kArrays, {"acme", "ready"}), 20);
  EXPECT_THAT(requested, ::testing::ElementsAre(0, 100));
  EXPECT_EQ(metrics.Value(Metric::kCoordinatorEpoch), 7);
}

TEST(GaugeReader, LeavesGaugesOutIfTheSchedulerDoesNotAnswer) {
  Metrics metrics;
  GaugeReader::Callback late;
  {
    const GaugeReader reader(
        &metrics,
        [&](uint64_t first, GaugeReader::Callback answer) {
          if (first == 0) return answer(ReadingOfArrays(10, 100));
          late = std::move(answer);
        },
        /*epoch=*/7, /*wait_max=*/absl::Milliseconds(20));
    const absl::Time start = absl::Now();
    for (const MetricFamily& family : metrics.Collect()) {
      EXPECT_NE(family.info->id, Metric::kArrays) << "a part is not the whole";
    }
    EXPECT_LT(absl::Now() - start, absl::Seconds(10));
    EXPECT_EQ(metrics.Value(Metric::kCoordinatorEpoch), 7);
  }
  // The scheduler's answer arrives after the scrape has given up waiting for it.
  late(ReadingOfArrays(10, 0));
}

}  // namespace
}  // namespace tessera::server::telemetry
