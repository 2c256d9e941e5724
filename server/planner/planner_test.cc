// Proves plans of whole programs. The plans are compared with the transcripts in
// tests/golden/partition. The reference evaluator also runs each device program on all devices of
// the mesh, and the results must be those of the logical program (the one that was planned).
// Further tests check stages and predicted times.
#include "server/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/program_hash.h"
#include "ir/strided.h"
#include "ir/text.h"
#include "server/planner/cost.h"
#include "server/planner/uses.h"

namespace tessera::server::planner {
namespace {

using ir::Array;
using ir::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns an array of small integers. Sums of small integers are exact in any order, so that
// results can be compared bit by bit.
Array SmallIntegers(const ir::Type& t, int seed) {
  Array a(t.dtype, t.shape);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    a.Set(i, t.dtype == DType::kBool ? (i * 5 + seed) % 2
                                     : (i * 7 + seed * 3) % 5 - (t.dtype == DType::kU32 ? 0 : 2));
  return a;
}

// Returns the start of the block that `device` holds under `spec`.
ir::Dims BlockStart(const ir::Mesh& mesh, const ir::PartitionSpec& spec, const ir::Dims& local,
                    int64_t device) {
  ir::Dims start(local.size());
  for (size_t d = 0; d < local.size(); ++d)
    start[d] = mesh.IndexAlong(device, spec.dims[d]) * local[d];
  return start;
}

// Returns the device's shard of a value. Along unreduced axes the shards are summands, which all
// differ and add up to the value.
Array ShardOf(const Array& value, const ir::Mesh& mesh, const ir::PartitionSpec& spec,
              const ir::Dims& local, int64_t device) {
  Array shard = ir::SliceBlock(value, BlockStart(mesh, spec, local, device), local);
  const int64_t num_summands = mesh.SizeOf(spec.unreduced);
  const int64_t index = mesh.IndexAlong(device, spec.unreduced);
  // The summands are 1, 2, ... times the value, except the last one, which is such that all add up
  // to the value.
  const auto factor = static_cast<double>(
      index + 1 < num_summands ? index + 1 : 1 - num_summands * (num_summands - 1) / 2);
  for (int64_t i = 0; num_summands > 1 && i < shard.num_elements(); ++i)
    shard.Set(i, factor * shard.At(i));
  return shard;
}

// Returns the sum of the summands of `device` and of the other devices along `axes`.
Array SumOf(const ir::Shards& shards, const ir::Mesh& mesh, const ir::AxisList& axes,
            int64_t device) {
  Array sum = shards[device];
  for (const int64_t other : mesh.GroupOf(device, axes))
    for (int64_t i = 0; other != device && i < sum.num_elements(); ++i)
      sum.Set(i, sum.At(i) + shards[other].At(i));
  return sum;
}

// Runs the plan on all devices at once. Returns an error text if a result differs from the logical
// program's, or "".
std::string CompareWithLogical(const ir::Program& program, const core::Plan& plan) {
  std::vector<Array> args;
  for (int i = 0; i < program.entry->num_params; ++i)
    args.push_back(SmallIntegers(program.entry->types[i], i + 1));
  auto expected = ir::Evaluate(*program.entry, args);
  if (!expected.ok()) return expected.status().ToString();

  const ir::Function& f = *plan.device_program;
  std::vector<int64_t> devices(plan.mesh.num_devices());
  for (size_t d = 0; d < devices.size(); ++d) devices[d] = static_cast<int64_t>(d);
  std::vector<ir::Shards> lanes;
  for (size_t i = 0; i < args.size(); ++i) {
    lanes.emplace_back();
    for (int64_t d : devices)
      lanes.back().push_back(ShardOf(args[i], plan.mesh, plan.in[i].spec, f.types[i].shape, d));
  }
  ir::Evaluator evaluator;
  auto got = evaluator.RunOnDevices(devices, f, lanes);
  if (!got.ok()) return got.status().ToString();
  for (size_t r = 0; r < expected->size(); ++r)
    for (int64_t d : devices) {
      const Array block = SumOf((*got)[r], plan.mesh, plan.out[r].spec.unreduced, d);
      const Array want = ir::SliceBlock(
          (*expected)[r], BlockStart(plan.mesh, plan.out[r].spec, block.shape(), d), block.shape());
      if (!(want == block))
        return absl::StrCat("result ", r, " on device ", d, " is ", block.ToString(), ", expected ",
                            want.ToString());
    }
  return "";
}

// Returns the output of one transcript: the explanation, or the device program with its
// collectives. A line that begins with WRONG reports that the text of a stage cannot be parsed
// again, or that a result is wrong.
std::string PlanText(const DataCase& c) {
  absl::StatusOr<ir::Program> program = ir::ParseProgram(c.input);
  if (!program.ok()) return program.status().ToString() + "\n";
  core::PlanRequest request;
  request.program = *program;
  request.cluster.devices.resize(program->mesh().num_devices());
  for (auto& device : request.cluster.devices)
    device.memory_bytes = c.Has("memory") ? std::stoll(c.args.at("memory")) : 0;
  std::string wrong_stages;
  request.on_stage = [&](const core::PlanStage& stage) {
    const absl::StatusOr<ir::Program> read = ir::ParseProgram(stage.text);
    if (!read.ok())
      absl::StrAppend(&wrong_stages, "WRONG: ", stage.name, ": ", read.status().ToString(), "\n",
                      stage.text);
  };
  absl::StatusOr<core::Plan> plan = MakePlan(request);
  if (!wrong_stages.empty()) return wrong_stages;
  if (!plan.ok())
    return absl::StrCat(ToAbsl(ReasonOf(plan.status())), ": ", plan.status().message(), "\n");
  if (c.command == "explain") return plan->explain_text;
  std::string out = ir::PrintFunction(*plan->device_program);
  for (const CollectiveUse& u : CollectivesOf(*plan->device_program))
    absl::StrAppend(&out, u.op, " over ", u.group, ": ", u.bytes, " B\n");
  if (std::string wrong = CompareWithLogical(*program, *plan); !wrong.empty())
    absl::StrAppend(&out, "WRONG: ", wrong, "\n");
  return out;
}

TEST(PlannerTest, Transcripts) {
  RunDataFolder("tests/golden/partition", [](const DataCase& c) {
    std::string text = PlanText(c);
    EXPECT_EQ(text.find("WRONG"), text.npos) << c.file << ":" << c.line << "\n" << text;
    return text;
  });
}

TEST(PlannerTest, EqualRequestsGiveEqualPlans) {
  const char* text = R"(
mesh (data=2, model=2)
func main(%x: f32[8,4] P('data'), %w: f32[4,6] P(None,'model')) -> (f32[8,6]) {
  %y = dot_general(%x, %w) {lhs_batching_dimensions=[], rhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]}
  return %y
})";
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Program program, ir::ParseProgram(text));
  core::PlanRequest request;
  request.program = program;
  request.cluster.devices.resize(4);
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan a, MakePlan(request));
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan b, MakePlan(request));
  EXPECT_EQ(ir::StructuralHash(*a.device_program), ir::StructuralHash(*b.device_program));
  EXPECT_EQ(a.explain_json, b.explain_json);
}

// Plans the program in `text` for `devices` devices and stores the plan in `plan`. Returns the
// stages that the planner reports.
std::vector<core::PlanStage> PlanInStages(const std::string& text, int devices,
                                          absl::StatusOr<core::Plan>* plan) {
  std::vector<core::PlanStage> stages;
  core::PlanRequest request;
  request.program = *ir::ParseProgram(text);
  request.cluster.devices.resize(devices);
  request.on_stage = [&](core::PlanStage stage) { stages.push_back(std::move(stage)); };
  *plan = MakePlan(request);
  return stages;
}

std::vector<std::string> NamesOf(const std::vector<core::PlanStage>& stages) {
  std::vector<std::string> names;
  for (const core::PlanStage& stage : stages) names.push_back(stage.name);
  return names;
}

TEST(PlannerTest, TheTextOfEachStageCanBeParsed) {
  const std::string text = R"(mesh (data=2, model=2)
func main(%x: f32[8,4] P('data'), %w: f32[4,6] P('model')) -> (f32[8,6]) {
  %y = dot_general(%x, %w) {lhs_batching_dimensions=[], rhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]}
  %dead = negate(%y)
  %z = tanh(%y)
  return %z
}
)";
  absl::StatusOr<core::Plan> plan;
  const std::vector<core::PlanStage> stages = PlanInStages(text, 4, &plan);
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(NamesOf(stages), ElementsAre("verify", "propagate", "cuts", "partition", "hoist",
                                           "memory", "explain"));
  std::vector<ir::Program> read;
  for (const core::PlanStage& stage : stages) {
    TESSERA_ASSERT_OK_AND_ASSIGN(read.emplace_back(), ir::ParseProgram(stage.text));
  }
  EXPECT_EQ(ir::StructuralHash(read[0]), ir::StructuralHash(*ir::ParseProgram(text)));
  EXPECT_EQ(ir::CountOps(*read[1].entry), 2) << "the dead op is removed";
  for (size_t i = 3; i < read.size(); ++i)
    EXPECT_EQ(ir::StructuralHash(*read[i].entry), ir::StructuralHash(*plan->device_program))
        << stages[i].name;
  EXPECT_THAT(stages[1].text, HasSubstr("# %0: f32[8@data,4], by argument 0 (%x)\n"));
  EXPECT_THAT(stages[1].text, HasSubstr("# %3: f32[8@data,6] of tanh, by "));
  EXPECT_THAT(
      stages[2].text,
      HasSubstr("# %2 = dot_general (f32[8@data,4@model], f32[4@model,6]); sums along model"));
  EXPECT_THAT(stages[5].text,
              HasSubstr("# device program " + ir::StructuralHash(*plan->device_program)));
  EXPECT_THAT(stages[5].text,
              HasSubstr(absl::StrCat("# at most ", plan->memory_bound_bytes, " B on a device")));
  EXPECT_THAT(stages[6].text, HasSubstr("# predicted time: "));
}

TEST(PlannerTest, StagesShowTheOpsOfRegions) {
  absl::StatusOr<core::Plan> plan;
  const std::vector<core::PlanStage> stages = PlanInStages(R"(mesh (x=2)
func main(%a: f32[4,8] P(None,'x')) -> (f32[8]) {
  %z = constant() {value=dense<f32[]: 0>}
  %c = broadcast_in_dim(%z) {broadcast_dimensions=[], shape=[8]}
  %r = scan(%c, %a) {length=4, num_carry=1, num_consts=0, reverse=false} with
    func body(%s: f32[8], %e: f32[8]) -> (f32[8]) {
      %t = add(%s, %e)
      return %t
    }
  return %r
}
)",
                                                           2, &plan);
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(stages[1].text, HasSubstr("# region 0 of scan\n#   %0: f32[8@x]"));
  EXPECT_THAT(stages[2].text, HasSubstr("# regions of scan\n#   %2 = add (f32[8@x], f32[8@x])\n"));
}

TEST(PlannerTest, AFailedPlanReportsTheStagesBeforeTheFailure) {
  const std::string text = "mesh (x=2)\nfunc main(%a: s32[8]) -> (s32[8]) {\n  return %a\n}\n";
  absl::StatusOr<core::Plan> plan;
  const std::vector<core::PlanStage> stages = PlanInStages(text, /*devices=*/3, &plan);
  EXPECT_THAT(plan, ReasonIs("NOT_ENOUGH_DEVICES"));
  EXPECT_THAT(NamesOf(stages), ElementsAre("verify"));
}

TEST(PlannerTest, AbsentDevicesNeedNotBeListed) {
  const char* text = R"(
mesh (data=64, model=8)
func main(%x: f32[128,4] P('data'), %w: f32[4,16] P(None,'model')) -> (f32[]) {
  %y = dot_general(%x, %w) {lhs_batching_dimensions=[], rhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]}
  %s = reduce_sum(%y) {dimensions=[0,1]}
  return %s
})";
  core::PlanRequest request;
  TESSERA_ASSERT_OK_AND_ASSIGN(request.program, ir::ParseProgram(text));
  EXPECT_THAT(MakePlan(request).status(), ReasonIs("NOT_ENOUGH_DEVICES"));
  request.cluster.absent_device_memory_bytes = 1000;
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan absent, MakePlan(request));
  EXPECT_THAT(absent.explain_text, HasSubstr("for absent devices"));
  EXPECT_THAT(absent.explain_text, HasSubstr(" B of 1000 B (arguments 64 B"));
  EXPECT_THAT(absent.explain_json, HasSubstr("\"absent_device_bytes\": 1000"));
  // The plan for absent devices is the plan for devices that exist.
  request.cluster.absent_device_memory_bytes = 0;
  request.cluster.devices.resize(512);
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan present, MakePlan(request));
  EXPECT_EQ(ir::StructuralHash(*absent.device_program),
            ir::StructuralHash(*present.device_program));
  EXPECT_EQ(absent.memory_bound_bytes, present.memory_bound_bytes);
}

TEST(PlannerTest, AClusterWithoutEnoughDevicesIsRefused) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const ir::Program program,
      ir::ParseProgram("mesh (x=2)\nfunc main(%x: f32[4]) -> (f32[4]) { return %x }"));
  core::PlanRequest request;
  request.program = program;
  EXPECT_THAT(MakePlan(request).status(), ReasonIs("NOT_ENOUGH_DEVICES"));
}

// ---- Time. ----

PredictedTime TimeOf(const char* text, const Speeds& speeds) {
  core::PlanRequest request;
  request.program = ir::ParseProgram(text).value();
  request.cluster.devices.resize(request.program.mesh().num_devices());
  return PredictTime(*MakePlan(request)->device_program, speeds);
}

TEST(CostTest, PredictsTheTimeOfAMatmulAndItsPsum) {
  const char* text = R"(
mesh (x=4)
func main(%a: f32[2,16] P(None,'x'), %b: f32[16,8] P('x')) -> (f32[2,8]) {
  %y = dot_general(%a, %b) {lhs_batching_dimensions=[], rhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]}
  return %y
})";
  Speeds speeds{.kind = "cpu",
                .flops_per_s = 64,
                .bytes_per_s = 1000,
                .narrow_speedup = 2,
                .kernel_start_s = 0.5,
                .links = {{"x", {{48, 0.25}}}}};
  // The product has 2 * 2 * 4 * 8 flops, at 64 per second. The psum sends 3/4 of a term of 64 B
  // twice, at 48 B per second, in 2 * 2 rounds.
  PredictedTime time = TimeOf(text, speeds);
  EXPECT_DOUBLE_EQ(time.compute_s, 2 + 0.5);
  EXPECT_DOUBLE_EQ(time.collective_s, 2 + 1);
  EXPECT_EQ(time.flops, 2 * 2 * 4 * 8);
  EXPECT_EQ(time.bytes, 32 + 128 + 64) << "bytes of one device, without the exchanged bytes";
  ASSERT_EQ(time.largest.size(), 2u);
  EXPECT_EQ(time.largest[0].op, "psum");
  EXPECT_TRUE(time.largest[0].is_collective);
  EXPECT_EQ(time.largest[1].op, "dot_general");
  EXPECT_FALSE(time.has_unknown_loops);
  // Shards of 32 and 128 B are read, and 64 B written.
  speeds.bytes_per_s = 56;
  time = TimeOf(text, speeds);
  EXPECT_DOUBLE_EQ(time.compute_s, 4 + 0.5);
}

TEST(CostTest, LoopsMultiplyTimesAndFusedValuesCauseNoMemoryTraffic) {
  const char* text = R"(
mesh (x=1)
func main(%c: f32[4], %i: s32[]) -> (f32[4], f32[4]) {
  %y = scan(%c) {length=3, num_carry=1, num_consts=0, reverse=false} with
    func step(%c: f32[4]) -> (f32[4]) {
      %e = exponential(%c)
      %r = add(%c, %e)
      return %r
    }
  %z = case(%i, %c) with
    func short(%c: f32[4]) -> (f32[4]) {
      return %c
    }
    func long(%c: f32[4]) -> (f32[4]) {
      %n = negate(%c)
      return %n
    }
  return %y, %z
})";
  const Speeds speeds{
      .kind = "cpu", .flops_per_s = 64, .bytes_per_s = 16, .kernel_start_s = 0.5, .links = {}};
  const PredictedTime time = TimeOf(text, speeds);
  // Each iteration reads 16 B for the exponential and 16 B for the add, and writes 16 B. The longer
  // branch reads 16 B and writes 16 B.
  EXPECT_DOUBLE_EQ(time.compute_s, 3 * (1 + 2 + 0.5) + 2 + 0.5);
  EXPECT_EQ(time.bytes, 3 * 48 + 32);
  EXPECT_GE(time.flops, 3 * 8 + 4);
  ASSERT_EQ(time.largest.size(), 3u);
  EXPECT_EQ(time.largest[0].op, "add");
  EXPECT_EQ(time.largest[0].runs, 3);
  EXPECT_DOUBLE_EQ(time.largest[0].seconds, 7.5);
  EXPECT_EQ(time.largest[2].op, "negate");
}

TEST(CostTest, AnOperandThatAnOpUsesTwiceIsReadFromMemoryOnce) {
  const PredictedTime time = TimeOf(
      "mesh (x=1)\nfunc main(%c: f32[4]) -> (f32[4]) {\n%y = multiply(%c, %c)\nreturn %y\n}",
      {.kind = "cpu", .flops_per_s = 64, .bytes_per_s = 16, .kernel_start_s = 0, .links = {}});
  EXPECT_DOUBLE_EQ(time.compute_s, 2);
}

TEST(CostTest, ALoopOfUnknownLengthCountsAsOneIteration) {
  const PredictedTime time = TimeOf(
      R"(
mesh (x=1)
func main(%i: f32[4]) -> (f32[4]) {
  %y = while(%i) {num_predicate_consts=0, num_body_consts=0} with
    func more(%i: f32[4]) -> (bool[]) {
      %f = constant() {value=dense<bool[]: 0>}
      return %f
    }
    func step(%i: f32[4]) -> (f32[4]) {
      %n = negate(%i)
      return %n
    }
  return %y
})",
      {.kind = "cpu", .flops_per_s = 64, .bytes_per_s = 16, .kernel_start_s = 0, .links = {}});
  EXPECT_TRUE(time.has_unknown_loops);
  EXPECT_GE(time.compute_s, 2);
}

TEST(CostTest, SpeedsAreMeasuredOrAssumed) {
  core::ClusterSnapshot cluster;
  const ir::Mesh mesh{{{"data", 2}, {"model", 2}}};
  for (int i = 0; i < 4; ++i)
    cluster.devices.push_back({.id = i,
                               .kind = "cpu",
                               .host = i < 2 ? "a" : "b",
                               .executor = i < 2 ? "v/0" : "w/0",
                               .flops_per_s = 4e9 - i,
                               .bytes_per_s = 1e9 + i});
  Speeds speeds = SpeedsOf(cluster, mesh);
  EXPECT_TRUE(speeds.measured);
  EXPECT_EQ(speeds.flops_per_s, 4e9 - 3);
  EXPECT_EQ(speeds.bytes_per_s, 1e9);
  const core::LinkFigures in_host = speeds.links.at("model").figures;
  const core::LinkFigures between_hosts = speeds.links.at("data").figures;
  EXPECT_GT(in_host.bytes_per_s, between_hosts.bytes_per_s);
  EXPECT_LT(in_host.latency_s, between_hosts.latency_s);
  EXPECT_FALSE(speeds.links.at("data").measured);
  // The slowest measured speed counts. Speeds that were not measured are assumed.
  cluster.devices[0].between_executors.bytes_per_s = 3e9;
  cluster.devices[2].between_executors.bytes_per_s = 2e9;
  cluster.devices[0].in_executor.latency_s = 1e-6;
  speeds = SpeedsOf(cluster, mesh);
  EXPECT_TRUE(speeds.links.at("data").measured);
  EXPECT_EQ(speeds.links.at("data").figures, (core::LinkFigures{2e9, between_hosts.latency_s}));
  EXPECT_EQ(speeds.links.at("model").figures, (core::LinkFigures{in_host.bytes_per_s, 1e-6}));
  // An executor with near and far neighbours does not say to which of its links a measurement
  // belongs.
  cluster.devices[1].executor = "v/1";
  EXPECT_FALSE(SpeedsOf(cluster, mesh).links.at("data").measured);
  cluster.devices[1].executor = "v/0";
  // If one device has measured nothing, the assumed speeds are used for all devices.
  cluster.devices[2].flops_per_s = 0;
  speeds = SpeedsOf(cluster, mesh);
  EXPECT_FALSE(speeds.measured);
  EXPECT_EQ(speeds.kind, "cpu");
  EXPECT_EQ(speeds.flops_per_s, 100e9);
  EXPECT_EQ(SpeedsOf({.devices = {}, .absent_device_memory_bytes = 1}, mesh).kind, "gpu");
}

}  // namespace
}  // namespace tessera::server::planner
