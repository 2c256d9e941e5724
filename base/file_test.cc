// Proves that files are read whole, replaced whole and given the right mode, and that errors name
// the file and say what to do. The tests work in a temporary folder.
#include "base/file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  FileTest() : folder_(::testing::TempDir() + "file-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  int ModeOf(const std::string& path) const {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }
  // Returns the number of files and folders in the folder of the test.
  int64_t Entries() const {
    return std::distance(std::filesystem::directory_iterator(folder_),
                         std::filesystem::directory_iterator());
  }

  std::string folder_;
};

TEST_F(FileTest, IsReadAsItWasWritten) {
  // The sizes are around those of the blocks in which a file is read.
  for (const size_t size : {0, 1, 65'535, 65'536, 65'537, 200'000}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 % 251);
    ASSERT_THAT(ReplaceFile(Path("f"), bytes, /*is_private=*/true), IsOk());
    EXPECT_EQ(ReadWholeFile(Path("f")).value(), bytes) << size;
  }
}

TEST_F(FileTest, TheModeIsTheRequestedOneWhateverTheUmask) {
  const mode_t old = umask(0);
  EXPECT_THAT(ReplaceFile(Path("key"), "one", /*is_private=*/true), IsOk());
  EXPECT_EQ(TryReplaceFile(Path("all"), "one", {.access = FileAccess::kByUmask}), 0);
  umask(0077);
  EXPECT_THAT(ReplaceFile(Path("cert"), "one", /*is_private=*/false), IsOk());
  EXPECT_EQ(TryReplaceFile(Path("mine"), "one", {.access = FileAccess::kByUmask}), 0);
  umask(old);
  EXPECT_EQ(ModeOf(Path("key")), 0600);
  EXPECT_EQ(ModeOf(Path("cert")), 0644);
  EXPECT_EQ(ModeOf(Path("all")), 0666);
  EXPECT_EQ(ModeOf(Path("mine")), 0600);
}

TEST_F(FileTest, IsReplacedAndNoTemporaryFileIsLeft) {
  ASSERT_THAT(ReplaceFile(Path("f"), "one", /*is_private=*/true), IsOk());
  ASSERT_THAT(ReplaceFile(Path("f"), "two", /*is_private=*/true), IsOk());
  EXPECT_EQ(ReadWholeFile(Path("f")).value(), "two");
  EXPECT_EQ(TryReplaceFile(Path("f"), "three", {.is_durable = false}), 0);
  EXPECT_EQ(ReadWholeFile(Path("f")).value(), "three");
  EXPECT_EQ(Entries(), 1);
}

// Replaces one file in several threads while another reads it. Each text has one letter only.
TEST_F(FileTest, AReaderFindsTheTextOfOneWriter) {
  constexpr int kThreads = 4, kRounds = 50;
  constexpr size_t kBytes = 10'000;
  ASSERT_THAT(ReplaceFile(Path("f"), std::string(kBytes, 'x'), /*is_private=*/true), IsOk());
  std::vector<std::thread> writers;
  for (int t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      const std::string text(kBytes, static_cast<char>('a' + t));
      for (int i = 0; i < kRounds; ++i)
        EXPECT_EQ(TryReplaceFile(Path("f"), text, {.is_durable = false}), 0);
    });
  }
  for (int i = 0; i < kRounds; ++i) {
    const std::string text = ReadWholeFile(Path("f")).value();
    EXPECT_EQ(text, std::string(kBytes, text.empty() ? '?' : text[0]));
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(Entries(), 1);
}

TEST_F(FileTest, ReadErrorsNameTheFileAndSayWhatToDo) {
  EXPECT_THAT(
      ReadWholeFile(Path("none")).status(),
      ReasonIs("VALUE_ERROR", AllOf(HasSubstr(Path("none")),
                                    HasSubstr("No such file or directory; check the path"))));
  EXPECT_THAT(ReadWholeFile(folder_).status(),
              ReasonIs("VALUE_ERROR", HasSubstr("name a file, not a folder")));
  std::string bytes;
  EXPECT_EQ(TryReadWholeFile(Path("none"), kWholeFileBytesMax, &bytes), ENOENT);
}

TEST_F(FileTest, AFileBeyondTheLimitIsNotRead) {
  ASSERT_THAT(ReplaceFile(Path("big"), std::string(100, 'x'), /*is_private=*/true), IsOk());
  EXPECT_THAT(
      ReadWholeFile(Path("big"), 99).status(),
      ReasonIs("VALUE_ERROR", AllOf(HasSubstr(Path("big")), HasSubstr("is longer than 99 bytes"))));
  EXPECT_EQ(ReadWholeFile(Path("big"), 100).value().size(), 100u);
  std::string bytes;
  EXPECT_EQ(TryReadWholeFile(Path("big"), 99, &bytes), EFBIG);
}

TEST_F(FileTest, WriteErrorsNameTheFileAndLeaveNoTemporaryFile) {
  EXPECT_THAT(ReplaceFile(Path("no/folder"), "x", /*is_private=*/true),
              ReasonIs("VALUE_ERROR", AllOf(HasSubstr(Path("no/folder: ")),
                                            HasSubstr("its folder has to exist"))));
  // The target is a folder, so the rename fails; the temporary file must be removed again.
  std::filesystem::create_directory(Path("folder"));
  EXPECT_THAT(ReplaceFile(Path("folder"), "x", /*is_private=*/true),
              ReasonIs("VALUE_ERROR", HasSubstr("name a file, not a folder")));
  EXPECT_EQ(Entries(), 1);
}

}  // namespace
}  // namespace tessera
