// Proves that sharded programs that JAX exported give JAX's results, in the evaluator and on an
// embedded cluster of four devices with the shardings of the artifact.
//
// record_sharded.py writes the programs and results to recorded/sharded.jsonl.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "embed/embed.h"
#include "ir/eval/eval.h"
#include "ir/stablehlo/import.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "nlohmann/json.hpp"

namespace tessera::ir::stablehlo {
namespace {

using nlohmann::json;

constexpr absl::Duration kWait = absl::Seconds(60);
// Our sums add in another order than XLA's.
constexpr double kTolerance = 1e-5;

Array ArrayOf(const json& value) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(value["data"].get<std::string>(), &bytes));
  const std::string dtype = value["dtype"];
  const auto shape = value["shape"].get<std::vector<int64_t>>();
  return Array(dtype == "i32"  ? DType::kS32
               : dtype == "i1" ? DType::kBool
                               : DType::kF32,
               Dims(shape.begin(), shape.end()),
               {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

void ExpectNear(const std::vector<Array>& got, const std::vector<Array>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t r = 0; r < got.size(); ++r) {
    ASSERT_EQ(got[r].dtype(), expected[r].dtype());
    ASSERT_EQ(got[r].shape(), expected[r].shape());
    for (int64_t i = 0; i < got[r].num_elements(); ++i)
      ASSERT_NEAR(got[r].At(i), expected[r].At(i),
                  kTolerance * std::max(1.0, std::abs(expected[r].At(i))))
          << "result " << r << ", element " << i;
  }
}

absl::StatusOr<std::vector<Array>> Serve(api::Service& service, const Program& program,
                                         const std::vector<Array>& args) {
  api::CompileRequest compile;
  compile.program = program;
  TESSERA_ASSIGN_OR_RETURN(const api::CompileReply compiled, service.Compile(compile));
  api::ExecuteRequest execute;
  execute.executable = compiled.executable;
  for (size_t i = 0; i < args.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(execute.args.emplace_back(),
                             service.Put(args[i], compiled.in[i].placement, kWait));
  }
  TESSERA_ASSIGN_OR_RETURN(const api::ExecuteReply executed, service.Execute(execute));
  std::vector<Array> out;
  for (const uint64_t array : executed.outputs) {
    TESSERA_ASSIGN_OR_RETURN(out.emplace_back(), service.Get(array, kWait));
  }
  return out;
}

// The totals of manual computations, constraints and input shardings show that the importer drops
// none of them.
TEST(ShardedTest, WhatJaxExportsGivesItsResultsOnFourDevices) {
  EmbeddedOptions options;
  options.devices = 4;
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<api::Service> service, embed::Start(options));
  std::ifstream lines(SourcePath("tests/stablehlo/recorded/sharded.jsonl"));
  int programs = 0, on_shards = 0, constraints = 0, placed = 0;
  for (std::string line; std::getline(lines, line); ++programs) {
    const json test = json::parse(line);
    SCOPED_TRACE(test["name"].get<std::string>());
    std::string bytes;
    ASSERT_TRUE(absl::Base64Unescape(test["program"].get<std::string>(), &bytes));
    TESSERA_ASSERT_OK_AND_ASSIGN(
        const Artifact artifact,
        ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
    const absl::StatusOr<Program> program = ImportProgram(artifact);
    EXPECT_THAT(program.status(), IsOk());
    if (!program.ok()) continue;
    EXPECT_THAT(Verify(*program), IsOk());
    EXPECT_EQ(program->mesh().num_devices(), 4);
    std::vector<Array> args, expected;
    for (const json& value : test["inputs"]) args.push_back(ArrayOf(value));
    for (const json& value : test["expected"]) expected.push_back(ArrayOf(value));
    const absl::StatusOr<std::vector<Array>> evaluated = Evaluator().Run(*program->entry, args);
    EXPECT_THAT(evaluated.status(), IsOk());
    if (evaluated.ok()) ExpectNear(*evaluated, expected);
    const absl::StatusOr<std::vector<Array>> served = Serve(*service, *program, args);
    EXPECT_THAT(served.status(), IsOk());
    if (served.ok()) ExpectNear(*served, expected);
    const std::string text = PrintProgram(*program);
    on_shards += text.find("manual_computation") != std::string::npos ? 1 : 0;
    constraints += text.find("sharding_constraint") != std::string::npos ? 1 : 0;
    for (const auto& sharding : program->in_shardings) placed += sharding ? 1 : 0;
    if (HasFailure()) std::cout << text << "\n";
  }
  // These totals show that the importer left out no sharding of the artifacts.
  EXPECT_EQ(programs, 49);
  EXPECT_EQ(on_shards, 33);
  EXPECT_EQ(constraints, 20);
  EXPECT_EQ(placed, 41);
}

}  // namespace
}  // namespace tessera::ir::stablehlo
