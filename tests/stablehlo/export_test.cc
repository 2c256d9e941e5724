// Proves that every op sample and every edge program that StableHLO can express gives the same bits
// after it was exported and imported again. Further tests cover names, shardings, refusals and
// limits.
#include "ir/stablehlo/export.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/program_hash.h"
#include "ir/stablehlo/import.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/stablehlo/edges.h"
#include "tests/stablehlo/exports.h"

namespace tessera::ir::stablehlo {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<Program> Reread(const std::string& bytes) {
  TESSERA_ASSIGN_OR_RETURN(
      const Artifact artifact,
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return ImportProgram(artifact);
}

// Imports `bytes` and compares its results with those of the exported function. Returns "" or the
// first difference.
std::string Difference(const ExportedSample& e, const std::string& bytes,
                       const samples::Tolerance& tolerance) {
  const absl::StatusOr<Program> back = Reread(bytes);
  if (!back.ok()) return back.status().ToString();
  if (const absl::Status verified = Verify(*back); !verified.ok()) return verified.ToString();
  const absl::StatusOr<std::vector<Array>> want = Evaluator().Run(*e.function, e.args);
  const absl::StatusOr<std::vector<Array>> got = Evaluator().Run(*back->entry, e.args);
  if (!want.ok()) return want.status().ToString();
  if (!got.ok()) return got.status().ToString();
  if (got->size() != want->size()) return absl::StrCat(got->size(), " results");
  std::string text;
  for (size_t r = 0; r < got->size() && text.empty(); ++r)
    text = samples::Difference((*got)[r], (*want)[r], tolerance, nullptr);
  return text.empty() ? "" : absl::StrCat(text, "\n", PrintProgram(*back));
}

// The ops that the export refuses are compared with a golden file, so that a new refusal is
// noticed.
TEST(ExportTest, SamplesComeBackWithTheSameBits) {
  int said = 0, refused = 0, failed = 0, same = 0;
  std::map<std::string, int> versions;
  // Maps each refused op and the reason to the number of its refused samples.
  std::map<std::pair<std::string, std::string>, int> why;
  ForEachExport([&](const ExportedSample& e) {
    if (!e.artifact.ok()) {
      EXPECT_EQ(e.artifact.status().code(), absl::StatusCode::kUnimplemented)
          << e.sample->name << ": " << e.artifact.status();
      ++refused;
      ++why[{std::string(e.sample->def->name), std::string(e.artifact.status().message())}];
      return;
    }
    ++said;
    ++versions[e.artifact->substr(4, e.artifact->find('\0', 4) - 4)];
    const std::string difference = Difference(e, *e.artifact, samples::kExact);
    failed += difference.empty() ? 0 : 1;
    if (difference.empty())
      same += StructuralHash(*Reread(*e.artifact)->entry) == StructuralHash(*e.function) ? 1 : 0;
    EXPECT_EQ(difference, "") << e.sample->name;
  });
  EXPECT_EQ(failed, 0);
  std::cout << said << " samples are said, " << refused << " refused; " << same
            << " come back as the same ops\n";
  for (const auto& [version, n] : versions) std::cout << "  " << version << ": " << n << "\n";
  std::string text =
      "# The ops whose samples are not said in StableHLO, how many of them, and why. An op leaves\n"
      "# this list when it is said; none may come to it.\n";
  for (const auto& [key, n] : why)
    absl::StrAppend(&text, key.first, ": ", n, ": ", key.second, "\n");
  ExpectFileHolds("tests/golden/stablehlo/refused.txt", text);
}

TEST(ExportTest, ProgramsAtTheEdgesComeBackWithTheSameBits) {
  for (const EdgeProgram& edge : EdgePrograms()) {
    SCOPED_TRACE(edge.name);
    ASSERT_THAT(Verify(edge.program), IsOk());
    const absl::StatusOr<std::string> bytes = ExportProgram(edge.program);
    EXPECT_THAT(bytes.status(), IsOk());
    if (!bytes.ok()) continue;
    const absl::StatusOr<Program> back = Reread(*bytes);
    EXPECT_THAT(back.status(), IsOk());
    if (!back.ok()) continue;
    EXPECT_THAT(Verify(*back), IsOk());
    EXPECT_EQ(back->in_names, edge.program.in_names);
    EXPECT_EQ(back->out_names, edge.program.out_names);
    const absl::StatusOr<std::vector<Array>> want = Evaluator().Run(*edge.program.entry, edge.args);
    const absl::StatusOr<std::vector<Array>> got = Evaluator().Run(*back->entry, edge.args);
    ASSERT_THAT(want.status(), IsOk());
    EXPECT_THAT(got.status(), IsOk());
    if (!got.ok()) continue;
    EXPECT_TRUE(*got == *want) << PrintProgram(*back);
  }
}

// The mesh has the largest number of devices that a mesh may have.
TEST(ExportTest, GroupsOfManyDevicesComeBack) {
  const int64_t n = Limits().mesh_devices;
  const PartitionSpec along{{{"x", "y"}}, {}, {}, {}};
  Builder b(Scope{Mesh{{{"x", n / 2}, {"y", 2}}}}, "many");
  const Value x = b.Param(MakeType(DType::kS32, {n}));
  Builder body(ManualScope(b.scope(), {"x", "y"}, /*check_vma=*/false), "body");
  const Value shard = body.Param(MakeType(DType::kS32, {1}));
  const FunctionRef f = body.Build({Psum(Ppermute(shard, {"y"}, {{0, 1}, {1, 0}}), {"y", "x"})});
  const Program program{
      kOpset,
      b.Build(ManualComputation(b, f, {x}, {along}, {along}, {"x", "y"}, /*check_vma=*/false)),
      {},
      {}};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program back, Reread(bytes));
  EXPECT_THAT(PrintProgram(back), AllOf(HasSubstr("ppermute(%0) {axes=[\"y\"], perm=[0,1,1,0]}"),
                                        HasSubstr("psum(%1) {axes=[\"x\",\"y\"]}")));
}

TEST(ExportTest, NamesAndPlacesComeBack) {
  Builder b(Scope{}, "jit step");
  b.SetSite({InternFile("/home/user/model.py"), 12});
  const Value x = b.Param(MakeType(DType::kF32, {4})), y = b.Param(MakeType(DType::kF32, {4}));
  const Value sum = Add(x, y);
  b.SetSite({InternFile("/home/user/other.py"), 7});
  Program program{kOpset, b.Build({Tanh(sum), sum}), {}, {}};
  program.in_names = {"args[0]['w']", ""};
  program.out_names = {"", "result[1]"};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program back, Reread(bytes));
  EXPECT_EQ(back.entry->name, "jit_step");
  EXPECT_EQ(back.in_names, program.in_names);
  EXPECT_EQ(back.out_names, program.out_names);
  ASSERT_EQ(back.entry->ops.size(), 2);
  EXPECT_EQ(back.entry->sites[0], (Site{"/home/user/model.py", 12}));
  EXPECT_EQ(back.entry->sites[1], (Site{"/home/user/other.py", 7}));
  EXPECT_EQ(StructuralHash(back), StructuralHash(program));
}

TEST(ExportTest, MeshesAndShardingsComeBack) {
  const Scope scope{Mesh{{{"data", 2}, {"model", 4}}}};
  Builder b(scope, "sharded");
  const Type type = MakeType(DType::kF32, {8, 16});
  const Value x = b.Param(type), y = b.Param(type), z = b.Param(type);
  const Value sum = ShardingConstraint(Add(x, y), {{{}, {"model"}}, {}, {}, {}});
  Program program{kOpset, b.Build({Mul(sum, z), sum}), {}, {}};
  program.in_shardings = {PartitionSpec{{{"data", "model"}}, {}, {}, {}}, std::nullopt,
                          PartitionSpec{{{"data"}, {}}, {}, {}, {false, true}}};
  program.out_shardings = {PartitionSpec{}, std::nullopt};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program back, Reread(bytes));
  EXPECT_EQ(PrintProgram(back), PrintProgram(program));
}

TEST(ExportTest, WhatShardyCannotSayIsRefused) {
  const auto refused = [](const Scope& scope, const PartitionSpec& spec) {
    Builder b(scope, "main");
    const Value x = b.Param(MakeType(DType::kF32, {8}));
    Program program{kOpset, b.Build({Tanh(x)}), {}, {}};
    program.in_shardings = {spec};
    return ExportProgram(program).status();
  };
  EXPECT_THAT(refused(Scope{Mesh{{{"x", 2, AxisType::kExplicit}}}}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("(x=2:explicit)")));
  EXPECT_THAT(refused(Scope{Mesh{{{"x", 2}}}}, {{}, {"x"}, {}, {}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("unreduced")));
}

TEST(ExportTest, ShardingsNameAxesThatAreThereOnce) {
  const auto exported = [](const PartitionSpec& in, const PartitionSpec& out) {
    Builder b(Scope{Mesh{{{"x", 2}}}}, "main");
    const Value v = b.Param(MakeType(DType::kF32, {8, 8}));
    Program program{kOpset, b.Build({Tanh(v)}), {}, {}};
    program.in_names = {"weights"};
    program.in_shardings = {in};
    program.out_shardings = {out};
    return ExportProgram(program).status();
  };
  EXPECT_THAT(exported({{{"y"}}, {}, {}, {}}, {}),
              ReasonIs("UNKNOWN_AXIS", HasSubstr("argument 0 (weights): the sharding P('y') names "
                                                 "the axis 'y', which is not in the mesh (x=2)")));
  EXPECT_THAT(exported({}, {{AxisList{"x"}, AxisList{"x"}}, {}, {}, {}}),
              ReasonIs("VALUE_ERROR", HasSubstr("result 0: the sharding P('x', 'x') names the axis "
                                                "'x' twice")));
}

TEST(ExportTest, AFunctionIsWrittenOnceHoweverOftenItIsCalled) {
  Builder f(Scope{}, "f");
  const FunctionRef twice = [&] {
    const Value x = f.Param(MakeType(DType::kF32, {}));
    return f.Build({Add(x, x)});
  }();
  Builder b(Scope{}, "main");
  Value x = b.Param(MakeType(DType::kF32, {}));
  for (int i = 0; i < 3; ++i) x = Call(b, twice, {x})[0];
  const Program program{kOpset, b.Build({x}), {}, {}};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program));
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const Artifact artifact,
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  EXPECT_THAT(CountOps(artifact), ElementsAre(Pair("add", 1), Pair("builtin.module", 1),
                                              Pair("call", 3), Pair("func", 2), Pair("return", 2)));
}

// If several regions share a function, the export writes it once for each region. So an artifact
// may be much larger than its program.
TEST(ExportTest, AProgramThatTakesTooManyOpsIsRefused) {
  const Type scalar = MakeType(DType::kF32, {});
  Builder leaf(Scope{}, "leaf");
  const Value v = leaf.Param(scalar);
  FunctionRef f = leaf.Build({Tanh(v)});
  EXPECT_THAT(ExportProgram({kOpset, f, {}, {}}, {.bytes = 100}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("bytes, at most 100")));
  for (int i = 0; i < 12; ++i) {
    Builder b(Scope{}, "twice");
    const Value x = b.Param(scalar);
    const Value once = Checkpoint(b, f, {x})[0];
    f = b.Build({Checkpoint(b, f, {once})[0]});
  }
  EXPECT_THAT(
      ExportProgram({kOpset, f, {}, {}}, {.ops = 1000}),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 1000 ops or regions")));
}

// A reader that does not know the names of our composites uses their decompositions. The test
// renames the composites, so that our own importer does not know them.
TEST(ExportTest, DecompositionsGiveWhatTheirOpsDo) {
  // The tolerances, in units in the last place, of ops whose decomposition computes in another way.
  const std::map<std::string, double> ulps = {{"erf", 2}, {"erfc", 2}, {"cumlogsumexp", 8}};
  constexpr std::string_view kOurs = "tessera.", kAnothers = "another.";
  std::map<std::string, int> decomposed;
  ForEachExport([&](const ExportedSample& e) {
    if (!e.artifact.ok() || e.family == "programs") return;
    std::string bytes = *e.artifact;
    bool found = false;
    for (size_t at = 0; (at = bytes.find(kOurs, at)) != std::string::npos; found = true)
      bytes.replace(at, kOurs.size(), kAnothers);
    if (!found) return;
    const std::string op(e.sample->def->name);
    ++decomposed[op];
    const auto bound = ulps.find(op);
    const samples::Tolerance tolerance =
        bound == ulps.end() ? samples::kExact : samples::Ulps(bound->second);
    EXPECT_EQ(Difference(e, bytes, tolerance), "") << e.sample->name;
  });
  EXPECT_GE(decomposed.size(), 20);
  for (const auto& [op, n] : decomposed) std::cout << "  " << op << ": " << n << "\n";
}

}  // namespace
}  // namespace tessera::ir::stablehlo
