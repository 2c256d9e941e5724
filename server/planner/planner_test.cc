// Plans of whole programs: transcripts in tests/golden/partition, and for each of them the device
// program run on every device must give what the logical program gives.
#include "server/planner/planner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/text.h"
#include "server/planner/explain.h"

namespace tessera::server::planner {
namespace {

using ir::Array;
using ir::DType;

// Small integers: sums of them are exact in any order, so that equality is bitwise.
Array SmallIntegers(const ir::Type& t, int seed) {
  Array a(t.dtype, t.shape);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    a.Set(i, t.dtype == DType::kBool ? (i * 5 + seed) % 2
                                     : (i * 7 + seed * 3) % 5 - (t.dtype == DType::kU32 ? 0 : 2));
  return a;
}

// Start of the block that `device` holds under `spec`.
ir::Dims BlockStart(const ir::Mesh& mesh, const ir::PartitionSpec& spec, const ir::Dims& local,
                    int64_t device) {
  ir::Dims start(local.size());
  for (size_t d = 0; d < local.size(); ++d)
    start[d] = mesh.IndexAlong(device, spec.dims[d]) * local[d];
  return start;
}

// Runs the plan on all devices at once; an error text when a result differs from the logical run.
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
      lanes.back().push_back(ir::SliceBlock(
          args[i], BlockStart(plan.mesh, plan.in[i].spec, f.types[i].shape, d), f.types[i].shape));
  }
  ir::Evaluator evaluator;
  auto got = evaluator.RunOnDevices(devices, f, lanes);
  if (!got.ok()) return got.status().ToString();
  for (size_t r = 0; r < expected->size(); ++r)
    for (int64_t d : devices) {
      const Array& block = (*got)[r][d];
      const Array want = ir::SliceBlock(
          (*expected)[r], BlockStart(plan.mesh, plan.out[r].spec, block.shape(), d), block.shape());
      if (!(want == block))
        return absl::StrCat("result ", r, " on device ", d, " is ", block.ToString(), ", expected ",
                            want.ToString());
    }
  return "";
}

std::string PlanText(const DataCase& c) {
  absl::StatusOr<ir::Program> program = ir::ParseProgram(c.input);
  if (!program.ok()) return program.status().ToString() + "\n";
  core::PlanRequest request;
  request.program = *program;
  request.cluster.devices.resize(program->mesh().num_devices());
  for (auto& device : request.cluster.devices)
    device.memory_bytes = c.Has("memory") ? std::stoll(c.args.at("memory")) : 0;
  absl::StatusOr<core::Plan> plan = MakePlan(request);
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

TEST(PlannerTest, TheSameRequestGivesTheSameBytes) {
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
  request.cluster.hypothetical_memory_bytes = 1000;
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan absent, MakePlan(request));
  EXPECT_THAT(absent.explain_text, ::testing::HasSubstr("of devices that are absent"));
  EXPECT_THAT(absent.explain_text, ::testing::HasSubstr("B at most of 1000 (arguments 64"));
  EXPECT_THAT(absent.explain_json, ::testing::HasSubstr("\"absent_device_bytes\": 1000"));
  // What is planned is what devices that are there would run.
  request.cluster.hypothetical_memory_bytes = 0;
  request.cluster.devices.resize(512);
  TESSERA_ASSERT_OK_AND_ASSIGN(const core::Plan there, MakePlan(request));
  EXPECT_EQ(ir::StructuralHash(*absent.device_program), ir::StructuralHash(*there.device_program));
  EXPECT_EQ(absent.memory_bound_bytes, there.memory_bound_bytes);
}

TEST(PlannerTest, AClusterOfAnotherSizeIsRefused) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const ir::Program program,
      ir::ParseProgram("mesh (x=2)\nfunc main(%x: f32[4]) -> (f32[4]) { return %x }"));
  core::PlanRequest request;
  request.program = program;
  EXPECT_THAT(MakePlan(request).status(), ReasonIs("NOT_ENOUGH_DEVICES"));
}

}  // namespace
}  // namespace tessera::server::planner
