// Proves that random texts differ, that comparison is exact, and that files are replaced whole and
// with the right mode. The tests work in a temporary folder.
#include "base/secret.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class SecretFile : public ::testing::Test {
 protected:
  SecretFile() : folder_(::testing::TempDir() + "secret-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  int ModeOf(const std::string& path) const {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  std::string folder_;
};

TEST(Secret, RandomTextsDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(RandomHex(16));
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(seen.begin()->size(), 32u);
}

TEST(Secret, TheHashIsSha256) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Secret, EqualTextsAreEqual) {
  EXPECT_TRUE(EqualInConstantTime("", ""));
  EXPECT_TRUE(EqualInConstantTime("abc", "abc"));
  EXPECT_FALSE(EqualInConstantTime("abc", "abd"));
  EXPECT_FALSE(EqualInConstantTime("abc", "abcd"));
}

TEST_F(SecretFile, OnlyTheOwnerReadsAPrivateFileWhateverTheUmask) {
  const mode_t old = umask(0);
  ASSERT_TRUE(ReplaceFile(Path("key"), "one", /*is_private=*/true).ok());
  umask(0077);
  ASSERT_TRUE(ReplaceFile(Path("cert"), "one", /*is_private=*/false).ok());
  umask(old);
  EXPECT_EQ(ModeOf(Path("key")), 0600);
  EXPECT_EQ(ModeOf(Path("cert")), 0644);
}

TEST_F(SecretFile, AFileIsReplacedAndNothingIsLeftBeside) {
  ASSERT_TRUE(ReplaceFile(Path("f"), "one", true).ok());
  ASSERT_TRUE(ReplaceFile(Path("f"), "two", true).ok());
  EXPECT_EQ(ReadWholeFile(Path("f")).value(), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(SecretFile, ErrorsNameTheFile) {
  const absl::Status missing = ReadWholeFile(Path("none")).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr(Path("none")));
  EXPECT_EQ(ReasonOf(missing), "VALUE_ERROR");
  ASSERT_TRUE(ReplaceFile(Path("big"), std::string(100, 'x'), true).ok());
  EXPECT_THAT(std::string(ReadWholeFile(Path("big"), 99).status().message()),
              HasSubstr("longer than 99 bytes"));
  EXPECT_FALSE(ReplaceFile(Path("no/such/folder"), "x", true).ok());
  // The target is a folder, so the rename fails; the temporary file must be removed again.
  std::filesystem::create_directory(Path("folder"));
  EXPECT_FALSE(ReplaceFile(Path("folder"), "x", true).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

}  // namespace
}  // namespace tessera
