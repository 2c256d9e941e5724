// Proves that jailed processes read and plan programs with the same answers as the coordinator's
// own process, and that a program which crashes, hangs or corrupts its process harms only itself.
// The test binary is also the jailed process; with --faulty it runs a planner with bugs.
#include "server/jail/jailed_reader.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/dump_folder.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_hash.h"
#include "ir/serial/program.h"
#include "ir/serial/source.h"
#include "ir/text.h"
#include "server/core/plan_dump.h"
#include "server/jail/wire.h"
#include "server/planner/planner.h"

namespace tessera::server::jail {
namespace {

using Source = api::ProgramSource;
using Form = Source::Form;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFaultyFlag[] = "--faulty";
constexpr char kText[] = R"(mesh (data=2)
func main(%x: f32[8,4] P('data'), %w: f32[4,6]) -> (f32[8,6]) {
  %y = dot_general(%x, %w) {lhs_batching_dimensions=[], rhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]}
  %s = tanh(%y)
  return %s
}
)";

PoolOptions TestOptions(const std::string& flag = kFaultyFlag) {
  PoolOptions options;
  options.process.binary = std::filesystem::read_symlink("/proc/self/exe").string();
  options.process.args = {flag};
  options.process.title = "jailed";
  return options;
}

ir::Program ParsedProgram(const std::string& text = kText) {
  absl::StatusOr<ir::Program> program = ir::ParseProgram(text);
  EXPECT_THAT(program, IsOk());
  return *std::move(program);
}

core::PlanRequest RequestOf(const std::string& name, const std::string& tenant = "a") {
  core::PlanRequest request;
  request.program = ParsedProgram();
  request.name = name;
  request.tenant = tenant;
  request.cluster.devices = {{1, "cpu", "h", "e0", 1 << 30, 2e10, 1e10, {3e9, 1e-5}, {1e9, 1e-4}},
                             {2, "cpu", "h", "e1"}};
  return request;
}

// A planner with bugs. The name of the program selects the bug.
absl::StatusOr<core::Plan> FaultyPlan(const core::PlanRequest& request) {
  if (request.name == "crash") raise(SIGSEGV);
  if (request.name == "hang") absl::Notification().WaitForNotification();
  if (request.name == "spin")
    while (true) static_cast<void>(SteadyNow());
  if (request.name == "hog") {
    std::vector<std::unique_ptr<std::string>> taken;
    while (true) taken.push_back(std::make_unique<std::string>(1 << 20, 'x'));
  }
  TESSERA_ASSIGN_OR_RETURN(core::Plan plan, planner::MakePlan(request));
  if (request.name == "fewer values") plan.in.pop_back();
  if (request.name == "another shape") plan.out[0].shape[0] = 80;
  if (request.name == "another sharding") plan.in[1].spec.dims = {{"data"}};
  if (request.name == "another mesh") plan.mesh.axes[0].size = 4;
  if (request.name == "another program")
    plan.device_program =
        ParsedProgram("func main(%x: f32[8,4]) -> (f32[8,4]) {\n  return %x\n}\n").entry;
  if (request.name == "large stages") {
    request.on_stage({"large", std::string(size_t{40} << 20, '\n')});
    request.on_stage({"too large", std::string(size_t{40} << 20, '\n')});
    request.on_stage({"small", "text"});
  }
  if (request.name == "who") plan.explain_text = absl::StrCat(getpid());
  return plan;
}

TEST(Jail, ReadsAndInspectsLikeTheCoordinatorsOwnProcess) {
  JailedReader jailed(TestOptions(kJailFlag), {});
  ASSERT_THAT(jailed.Check(), IsOk());
  const std::string message = ir::serial::ToProto(ParsedProgram()).SerializeAsString();
  const std::string artifact("ML\xefR\x0dStableHLO_v1.0.0\0", 22);
  for (const Source& source :
       {Source{Form::kText, kText}, Source{Form::kMessage, message},
        Source{Form::kText, "func main(%x: f32[8]) -> (f32[8]) {\n  %y = nonsense(%x)\n"},
        Source{Form::kText, ""}, Source{Form::kText, "func \xff"},
        Source{Form::kMessage, "no message"}, Source{Form::kStablehlo, artifact},
        Source{Form::kStablehlo, "no artifact"}}) {
    const auto there = jailed.Read("a", source, absl::InfiniteFuture());
    const auto here = ir::serial::ReadSource(source, {});
    ASSERT_EQ(there.status(), here.status());
    if (here.ok()) {
      EXPECT_EQ(ir::PrintProgram(*there), ir::PrintProgram(*here));
      EXPECT_EQ(ir::AnnotationHash(*there), ir::AnnotationHash(*here)) << "the call sites differ";
    }
    const auto described = jailed.Inspect("a", source, absl::InfiniteFuture());
    const auto described_here = ir::serial::InspectSource(source, {});
    ASSERT_EQ(described.status(), described_here.status());
    if (described.ok()) {
      v1::InspectProgramResponse there_found;
      ASSERT_TRUE(there_found.ParseFromString(*described));
      EXPECT_EQ(there_found.DebugString(), described_here->DebugString());
    }
  }
}

// The jailed process gets the limits and verifies the program, so the error about a program with
// too many ops comes from that process.
TEST(Jail, TheJailedProcessEnforcesTheLimits) {
  JailedReader jailed(TestOptions(kJailFlag), {.ops = 1});
  EXPECT_THAT(jailed.Read("a", Source{Form::kText, kText}, absl::InfiniteFuture()),
              ReasonIs("LIMIT_EXCEEDED"));
}

TEST(Jail, PlansLikeThePlanner) {
  JailedReader jailed(TestOptions(kJailFlag), {});
  for (const bool explain : {true, false}) {
    core::PlanRequest request = RequestOf("step");
    request.options.explain = explain;
    TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan here, planner::MakePlan(request));
    TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan there, jailed.Plan(request));
    EXPECT_EQ(wire::Plan(ToProto(there)).SerializeAsString(),
              wire::Plan(ToProto(here)).SerializeAsString());
    EXPECT_EQ(there.explain_text.empty(), !explain);
    EXPECT_EQ(there.predicted_seconds > 0, explain);
    EXPECT_EQ(there.source_lines, here.source_lines);
  }
  core::PlanRequest request = RequestOf("step");
  request.cluster.devices.pop_back();
  const absl::Status error = jailed.Plan(request).status();
  EXPECT_EQ(error, planner::MakePlan(request).status());
  EXPECT_THAT(error, ReasonIs("NOT_ENOUGH_DEVICES"));
  request.cluster = {{}, 1 << 20};
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan here, planner::MakePlan(request));
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan there, jailed.Plan(request));
  EXPECT_EQ(there.explain_text, here.explain_text);
}

using Stages = std::vector<std::pair<std::string, std::string>>;

// Returns the request with an on_stage that appends to `stages`.
core::PlanRequest WithStages(core::PlanRequest request, Stages* stages) {
  request.on_stage = [stages](const core::PlanStage& stage) {
    stages->emplace_back(stage.name, stage.text);
  };
  return request;
}

TEST(Jail, TheStagesOfAPlanAreReturned) {
  JailedReader jailed(TestOptions(kJailFlag), {});
  Stages here, there;
  ASSERT_THAT(planner::MakePlan(WithStages(RequestOf("step"), &here)), IsOk());
  ASSERT_THAT(jailed.Plan(WithStages(RequestOf("step"), &there)), IsOk());
  EXPECT_EQ(there.size(), 7u);
  EXPECT_EQ(there, here);
  // A plan that fails returns the stages before the failure.
  core::PlanRequest failing = RequestOf("step");
  failing.cluster.devices.pop_back();
  there.clear();
  EXPECT_THAT(jailed.Plan(WithStages(failing, &there)), ReasonIs("NOT_ENOUGH_DEVICES"));
  ASSERT_EQ(there.size(), 1u);
  EXPECT_EQ(there[0].first, "verify");
}

// Planner and dump are combined as in main.cc. The jailed process cannot open files, so the
// coordinator writes them.
TEST(Jail, TheStagesOfAJailedPlanAreDumpedToFiles) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / "tessera-jail-dump";
  fs::remove_all(root);
  DumpFolder folder(root.string());
  JailedReader jailed(TestOptions(kJailFlag), {});
  const core::PlanFn plan = core::WithDump(
      [&](const core::PlanRequest& request) { return jailed.Plan(request); }, &folder);
  ASSERT_THAT(plan(RequestOf("train step")), IsOk());
  const std::string hash = ir::StructuralHash(ParsedProgram()).substr(0, 12);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root / ("program_" + hash + "_train_step"))) {
    std::ifstream in(entry.path());
    EXPECT_THAT(ir::ParseProgram(std::string(std::istreambuf_iterator<char>(in), {})), IsOk());
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(
                         "01_verify.txt", "02_propagate.txt", "03_cuts.txt", "04_partition.txt",
                         "05_hoist.txt", "06_memory.txt", "07_explain.txt"));
  fs::remove_all(root);
}

TEST(Jail, StagesThatAreTooLargeAreLeftOut) {
  JailedReader jailed(TestOptions(), {});
  Stages stages;
  ASSERT_THAT(jailed.Plan(WithStages(RequestOf("large stages"), &stages)), IsOk());
  ASSERT_EQ(stages.size(), 10u);  // the planner's 7 and the 3 of FaultyPlan
  EXPECT_EQ(stages[7].second.size(), size_t{40} << 20);
  EXPECT_EQ(stages[8].second, "# left out: the stages of one plan have at most 67108864 bytes\n");
  EXPECT_EQ(stages[9].second, "text");
}

TEST(Jail, AProgramThatEndsItsProcessTwiceIsRefused) {
  std::map<JailEnd::Cause, int> ends;
  PoolOptions options = TestOptions();
  options.on_end = [&](JailEnd::Cause cause) { ++ends[cause]; };
  JailedReader jailed(std::move(options), {});
  EXPECT_THAT(jailed.Plan(RequestOf("crash")),
              ReasonIs("INTERNAL", AllOf(HasSubstr("plan crash: "), HasSubstr("report"))));
  EXPECT_THAT(jailed.Plan(RequestOf("step")), IsOk()) << "refused after only one crash";
  EXPECT_THAT(jailed.Plan(RequestOf("crash")), ReasonIs("INTERNAL"));
  for (const char* const name : {"crash", "step"})
    EXPECT_THAT(jailed.Plan(RequestOf(name)),
                ReasonIs("PROGRAM_QUARANTINED", HasSubstr("refused for another 59m")));
  EXPECT_THAT(jailed.Plan(RequestOf("step", "b")), IsOk()) << "refused for another tenant, too";
  core::PlanRequest other = RequestOf("step");
  other.program =
      ParsedProgram("mesh (data=2)\nfunc main(%x: f32[8]) -> (f32[8]) {\n  return %x\n}\n");
  EXPECT_THAT(jailed.Plan(other), IsOk());
  EXPECT_EQ(ends, (std::map<JailEnd::Cause, int>{{JailEnd::Cause::kCrash, 2}}));
}

TEST(Jail, PlanningIsLimitedInTime) {
  PoolOptions options = TestOptions();
  options.timeout = absl::Milliseconds(500);
  JailedReader jailed(std::move(options), {});
  EXPECT_THAT(jailed.Plan(RequestOf("hang")),
              ReasonIs("LIMIT_EXCEEDED", HasSubstr("longer than 500ms (jail_timeout_ms)")));
  EXPECT_THAT(jailed.Plan(RequestOf("step", "b")), IsOk());
}

TEST(Jail, PlanningIsLimitedInMemory) {
  PoolOptions options = TestOptions();
  options.process.memory_bytes_max = 256 << 20;
  JailedReader jailed(std::move(options), {});
  EXPECT_THAT(jailed.Plan(RequestOf("hog")),
              ReasonIs("LIMIT_EXCEEDED", HasSubstr("268435456 bytes (jail_memory_bytes_max)")));
  EXPECT_THAT(jailed.Plan(RequestOf("step")), IsOk());
}

// If a call ends because the caller's own deadline has passed, that is no strike against the
// program.
TEST(Jail, AnExceededDeadlineOfTheCallerIsNoStrike) {
  JailedReader jailed(TestOptions(), {});
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(jailed.Read("a", Source{Form::kText, kText}, SteadyNow() - absl::Seconds(1)),
                ReasonIs("DEADLINE_EXCEEDED", HasSubstr("than the time left for the call")));
  EXPECT_THAT(jailed.Read("a", Source{Form::kText, kText}, absl::InfiniteFuture()), IsOk());
}

TEST(Jail, InvalidPlansAreErrors) {
  JailedReader jailed(TestOptions(), {});
  for (const char* const lie :
       {"fewer values", "another shape", "another sharding", "another mesh", "another program"})
    EXPECT_THAT(jailed.Plan(RequestOf(lie)),
                ReasonIs("INTERNAL", HasSubstr("the planner's process sent an invalid plan")))
        << lie;
}

TEST(Jail, AProcessServesOneTenant) {
  JailedReader jailed(TestOptions(), {});
  std::map<std::string, std::string> process_of;
  for (int round = 0; round < 3; ++round) {
    for (const char* const tenant : {"a", "b", "c"}) {
      TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan plan, jailed.Plan(RequestOf("who", tenant)));
      const auto [at, is_new] = process_of.emplace(tenant, plan.explain_text);
      EXPECT_EQ(at->second, plan.explain_text) << "another process served the tenant before";
      EXPECT_EQ(is_new, round == 0);
    }
  }
  std::set<std::string> distinct;
  for (const auto& [tenant, pid] : process_of) distinct.insert(pid);
  EXPECT_EQ(distinct.size(), 3u);
}

TEST(Jail, TheNumberOfIdleProcessesIsBounded) {
  PoolOptions options = TestOptions();
  options.idle_max = 2;
  {
    JailedReader jailed(std::move(options), {});
    for (int i = 0; i < 10; ++i)
      ASSERT_THAT(jailed.Plan(RequestOf("step", absl::StrCat(i))), IsOk());
    // Two idle processes are left, and the spare one that no tenant has used.
    EXPECT_TRUE(testing::Eventually([] { return testing::ChildrenOf(getpid()).size() == 3; }));
  }
  EXPECT_EQ(testing::ChildrenOf(getpid()).size(), 0u);
}

// Processes are killed between requests, and still no request fails.
TEST(Jail, AKilledProcessIsReplaced) {
  JailedReader jailed(TestOptions(), {});
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(jailed.Plan(RequestOf("step")), IsOk());
    for (const int child : testing::ChildrenOf(getpid())) {
      kill(child, SIGKILL);
      // Waits until all threads of the child have ended. WNOWAIT leaves the reaping to the pool.
      siginfo_t end;
      ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT), 0);
    }
  }
}

TEST(Jail, StopEndsCallsInProgress) {
  JailedReader jailed(TestOptions(), {});
  ASSERT_THAT(jailed.Plan(RequestOf("step")), IsOk());
  absl::Status end;
  std::thread caller([&] { end = jailed.Plan(RequestOf("spin")).status(); });
  EXPECT_TRUE(testing::Eventually([] {
    const std::vector<int> children = testing::ChildrenOf(getpid());
    return std::any_of(children.begin(), children.end(),
                       [](int child) { return testing::CpuTicks(child) > 20; });
  }));
  jailed.Stop();
  caller.join();
  EXPECT_THAT(end, ReasonIs("SERVER_STOPPING"));
  EXPECT_THAT(jailed.Plan(RequestOf("step")), ReasonIs("SERVER_STOPPING"));
}

TEST(Jail, CheckFailsIfNoProcessStarts) {
  PoolOptions options = TestOptions();
  options.process.binary = "/no/such/program";
  JailedReader jailed(std::move(options), {});
  EXPECT_THAT(jailed.Check(), ReasonIs("INTERNAL", HasSubstr("/no/such/program")));
}

TEST(Jail, InvalidRequestsAreAnsweredWithAnError) {
  for (const std::string& bytes :
       {std::string(), std::string("nonsense"), std::string(100, '\0')}) {
    wire::Reply reply;
    ASSERT_TRUE(reply.ParseFromString(AnswerRequest(bytes, planner::MakePlan)));
    EXPECT_TRUE(reply.has_status());
  }
}

}  // namespace

int TestMain(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if (kind == kJailFlag) return RunJailedProcess(planner::MakePlan);
  if (kind == kFaultyFlag) return RunJailedProcess(FaultyPlan);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace tessera::server::jail

int main(int argc, char** argv) { return tessera::server::jail::TestMain(argc, argv); }
