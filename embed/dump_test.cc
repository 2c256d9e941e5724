// Proves that an embedded cluster dumps the stages of the planner and of the compiler into the
// folder that TESSERA_DUMP names. The test compiles one program with the variable set and one
// without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/status_matchers.h"
#include "embed/embed.h"
#include "ir/ops.h"

namespace tessera::embed {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Compiles a program on an embedded cluster. Returns the names of the subfolders of `folder`.
std::vector<std::string> CompileAndListDumps(const fs::path& folder) {
  const absl::StatusOr<std::shared_ptr<api::Service>> service = Start({});
  EXPECT_THAT(service, IsOk());
  ir::Builder b({}, "double");
  const ir::Value x = b.Param(ir::MakeType(ir::DType::kF32, {4}));
  api::CompileRequest request;
  request.program.entry = b.Build({ir::Add(x, x)});
  request.name = "twice";
  EXPECT_THAT((*service)->Compile(request), IsOk());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

TEST(EmbeddedDump, IsWrittenToTheFolderThatTheEnvironmentNames) {
  std::string folder = ::testing::TempDir() + "/tessera-dump-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  unsetenv("TESSERA_DUMP");
  EXPECT_THAT(CompileAndListDumps(folder), IsEmpty());
  setenv("TESSERA_DUMP", folder.c_str(), /*overwrite=*/1);
  EXPECT_THAT(CompileAndListDumps(folder),
              UnorderedElementsAre(AllOf(StartsWith("program_"), HasSubstr("_twice")),
                                   AllOf(StartsWith("device_"), HasSubstr("_double"))));
  unsetenv("TESSERA_DUMP");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tessera::embed
