// Proves the names and contents of the files that --dump writes, and that a dump stops at its
// bounds and after errors, each with one log line. The tests write into a fresh temporary folder.
#include "base/dump_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/log.h"
#include "base/testing/status_matchers.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class DumpFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    LogOptions log;
    log.file = (root_ / "log").string();
    ASSERT_THAT(StartLogging(log), IsOk());
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string folder() const { return (root_ / "dumps" / "of this test").string(); }
  // Returns the paths of all files of the folder, relative to it and in order.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder()))
      if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder()).string());
    std::sort(files.begin(), files.end());
    return files;
  }
  // Returns how many lines of the log contain the text. Closes the log first.
  int LogLinesWith(const std::string& text) const {
    StopLogging();
    std::ifstream in(root_ / "log");
    int lines = 0;
    for (std::string line; std::getline(in, line);) lines += absl::StrContains(line, text);
    return lines;
  }

  fs::path root_;
};

TEST_F(DumpFolderTest, EachStageIsANumberedFileInTheProgramsFolder) {
  DumpFolder folder(this->folder());
  ProgramDump dump(&folder, "program_1");
  dump.Write("verify", "first");
  dump.Write("propagate", "second");
  ProgramDump(&folder, "program_2").Write("verify", "");
  EXPECT_THAT(Files(), ElementsAre("program_1/01_verify.txt", "program_1/02_propagate.txt",
                                   "program_2/01_verify.txt"));
  EXPECT_EQ(ReadAll(this->folder() + "/program_1/02_propagate.txt"), "second");
  // Other users cannot read the folder, because a program belongs to its tenant.
  EXPECT_EQ(fs::status(this->folder() + "/program_1").permissions(), fs::perms::owner_all);
}

TEST_F(DumpFolderTest, ALaterDumpOfAProgramReplacesTheEarlierOne) {
  DumpFolder folder(this->folder());
  ProgramDump(&folder, "p").Write("verify", "a long first text");
  ProgramDump(&folder, "p").Write("verify", "short");
  EXPECT_THAT(Files(), ElementsAre("p/01_verify.txt"));
  EXPECT_EQ(ReadAll(this->folder() + "/p/01_verify.txt"), "short");
}

TEST_F(DumpFolderTest, NamesCannotLeadOutOfTheFolder) {
  DumpFolder folder(this->folder());
  ProgramDump(&folder, "../../up").Write("../\n", "");
  ProgramDump(&folder, "").Write("", "");
  ProgramDump(&folder, std::string(1000, 'n')).Write(std::string(1000, 's'), "");
  EXPECT_THAT(Files(), ElementsAre("_.._.._up/01__..__.txt", "_/01__.txt",
                                   std::string(80, 'n') + "/01_" + std::string(80, 's') + ".txt"));
}

TEST_F(DumpFolderTest, WithoutAPathNothingIsWritten) {
  DumpFolder without_path("");
  ProgramDump dump(&without_path, "p");
  EXPECT_FALSE(dump.enabled());
  dump.Write("verify", "text");
  ProgramDump without_folder(nullptr, "p");
  EXPECT_FALSE(without_folder.enabled());
  without_folder.Write("verify", "text");
  EXPECT_EQ(LogLinesWith("dump"), 0);
}

TEST_F(DumpFolderTest, AtTheBoundOfProgramsItLogsOnceAndWritesNoMore) {
  DumpFolder folder(this->folder(), {.programs = 2, .bytes = 1000});
  for (const char* const program : {"a", "b", "c", "d"})
    ProgramDump(&folder, program).Write("verify", "text");
  EXPECT_THAT(Files(), ElementsAre("a/01_verify.txt", "b/01_verify.txt"));
  EXPECT_EQ(LogLinesWith("have reached their bound"), 1);
}

TEST_F(DumpFolderTest, AtTheBoundOfBytesItLogsOnceAndWritesNoMore) {
  DumpFolder folder(this->folder(), {.programs = 10, .bytes = 10});
  ProgramDump dump(&folder, "p");
  dump.Write("verify", "12345678");
  dump.Write("propagate", "123");
  dump.Write("partition", "1");
  EXPECT_THAT(Files(), ElementsAre("p/01_verify.txt"));
  EXPECT_EQ(LogLinesWith("have reached their bound"), 1);
}

TEST_F(DumpFolderTest, StagesAreBounded) {
  DumpFolder folder(this->folder());
  ProgramDump dump(&folder, "p");
  for (int i = 0; i < 2 * ProgramDump::kStagesMax; ++i) dump.Write("s", "");
  EXPECT_EQ(Files().size(), static_cast<size_t>(ProgramDump::kStagesMax));
}

TEST_F(DumpFolderTest, AFolderThatCannotBeWrittenIsLoggedOnce) {
  std::ofstream(root_ / "file") << "no folder";
  DumpFolder folder((root_ / "file").string());
  ProgramDump dump(&folder, "p");
  dump.Write("verify", "text");
  dump.Write("propagate", "text");
  EXPECT_EQ(LogLinesWith("a dump cannot be written"), 1);
}

}  // namespace
}  // namespace tessera
