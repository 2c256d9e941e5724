// Tests the flag --dump of the daemons. With it, they write the program after each stage of the
// coordinator's planner and of an executor's compiler, as files that can be parsed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"
#include "client/tessera.h"
#include "ir/ops.h"
#include "ir/program_hash.h"
#include "ir/text.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Key;
using ::testing::SizeIs;

using Files = std::map<std::string, std::string>;  // texts by file name

// Returns a program that sums sines over two devices. The worker compiles it, because a program
// with sin is not evaluated op by op.
ir::Program Sines() {
  ir::Builder b({ir::Mesh{{{"i", 2}}}, true}, "sines");
  ir::Program program;
  program.entry =
      b.Build({ir::ReduceSum(ir::Sin(b.Param(ir::MakeType(ir::DType::kF32, {64}))), {0})});
  program.in_shardings = {ir::PartitionSpec{{{"i"}}, {}, {}, {}}};
  return program;
}

class DumpTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "/tessera-dump-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Returns the files of the only folder whose name begins with `prefix`.
  Files FilesInFolder(const std::string& prefix) const {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (absl::StartsWith(entry.path().filename().string(), prefix))
        folders.push_back(entry.path());
    EXPECT_THAT(folders, SizeIs(1)) << prefix;
    Files files;
    if (folders.empty()) return files;
    for (const auto& entry : fs::directory_iterator(folders[0])) {
      std::ifstream in(entry.path());
      files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return files;
  }

  fs::path folder_;
};

// Compiles one program and compares the dump's files, in order, with the stages of the coordinator
// and of the executor.
TEST_P(DumpTest, CoordinatorAndExecutorWriteTheProgramAfterEachStage) {
  const std::string flag = "--dump=" + folder_.string();
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Cluster> cluster,
      Cluster::Start({1, 2, {"--canary-interval-ms=0", flag, GetParam()}, {flag}, 0, {}}));
  api::CompileRequest request;
  request.program = Sines();
  request.name = "my sines";
  const absl::Status compiled = cluster->session()->service().Compile(request).status();
  ASSERT_THAT(compiled, IsOk()) << cluster->Logs();

  const std::string program_hash = ir::StructuralHash(request.program).substr(0, 12);
  const Files planner_files = FilesInFolder(absl::StrCat("program_", program_hash, "_my_sines"));
  EXPECT_THAT(planner_files,
              ElementsAre(Key("01_verify.txt"), Key("02_propagate.txt"), Key("03_cuts.txt"),
                          Key("04_partition.txt"), Key("05_hoist.txt"), Key("06_memory.txt"),
                          Key("07_explain.txt")));
  for (const auto& [name, text] : planner_files)
    EXPECT_THAT(ir::ParseProgram(text), IsOk()) << name;
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Program device_program,
                               ir::ParseProgram(planner_files.at("06_memory.txt")));
  const std::string device_hash = ir::StructuralHash(*device_program.entry);
  EXPECT_TRUE(
      absl::StrContains(planner_files.at("06_memory.txt"), "# device program " + device_hash));

  const Files compiler_files = FilesInFolder(absl::StrCat("device_", device_hash.substr(0, 12)));
  EXPECT_THAT(compiler_files, ElementsAre(Key("01_device_program.txt"), Key("02_assign.txt"),
                                          Key("03_overlap.txt"), Key("04_row_tiles.txt")));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Program loaded,
                               ir::ParseProgram(compiler_files.at("01_device_program.txt")));
  EXPECT_EQ(ir::StructuralHash(*loaded.entry), device_hash);
}

INSTANTIATE_TEST_SUITE_P(Planner, DumpTest, ::testing::Values("--jail=true", "--jail=false"),
                         [](const auto& info) {
                           return info.param == "--jail=true" ? "Jailed" : "InTheCoordinator";
                         });

}  // namespace
}  // namespace tessera::service
