// Tests of the cache of compiled objects: damaged entries, the size limit, unusable folders, and
// several caches on one folder, which stand for several processes. Every test has a folder of its
// own.
#include "worker/codegen/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::codegen {
namespace {

namespace fs = std::filesystem;
using ::testing::Optional;

constexpr int64_t kMany = 1 << 20;

class ObjectCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "object_cache_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Folder() const { return root_ + "/deep/cache"; }
  static std::string Key(int i) { return absl::StrCat("abc", i); }
  std::string File(int i) const { return Folder() + "/" + Key(i) + ".o"; }
  // Sets the entry's time of last use to `seconds` after a fixed day.
  void SetUsed(int i, int seconds) const {
    const timespec at[2] = {{1'000'000'000 + seconds, 0}, {1'000'000'000 + seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, File(i).c_str(), at, 0), 0);
  }

  std::string root_;
};

TEST_F(ObjectCacheTest, AnyProcessGetsAnObjectThatWasPut) {
  const std::string object("ELF\0\n\xff", 6);
  ObjectCache(Folder(), kMany).Put(Key(1), object);
  ObjectCache other(Folder(), kMany);
  EXPECT_THAT(other.Get(Key(1)), Optional(object));
  EXPECT_EQ(other.Get(Key(2)), std::nullopt);
  struct stat info;
  ASSERT_EQ(stat(Folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(ObjectCacheTest, ADamagedEntryIsAMissAndIsRemoved) {
  ObjectCache cache(Folder(), kMany);
  cache.Put(Key(1), "the object");
  const auto size = fs::file_size(File(1));
  for (uintmax_t at = 0; at < size; ++at) {
    cache.Put(Key(1), "the object");
    std::fstream file(File(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    file.close();
    EXPECT_EQ(cache.Get(Key(1)), std::nullopt) << at;
    EXPECT_FALSE(fs::exists(File(1))) << at;
  }
  for (uintmax_t left = 0; left < size; ++left) {
    cache.Put(Key(1), "the object");
    fs::resize_file(File(1), left);
    EXPECT_EQ(cache.Get(Key(1)), std::nullopt) << left;
  }
}

TEST_F(ObjectCacheTest, TheLeastRecentlyUsedEntryIsRemovedFirst) {
  const std::string object(1000, 'x');
  ObjectCache unbounded(Folder(), kMany);
  for (int i = 0; i < 8; ++i) {
    unbounded.Put(Key(i), object);
    SetUsed(i, i);
  }
  // A read counts as a use.
  ASSERT_TRUE(unbounded.Get(Key(0)).has_value());
  const int64_t entry_bytes = static_cast<int64_t>(fs::file_size(File(0)));
  ObjectCache bounded(Folder(), 8 * entry_bytes);
  bounded.Put(Key(8), object);
  EXPECT_TRUE(bounded.Get(Key(0)).has_value());
  EXPECT_FALSE(bounded.Get(Key(1)).has_value());
  EXPECT_FALSE(bounded.Get(Key(2)).has_value());
  for (int i = 3; i <= 8; ++i) EXPECT_TRUE(bounded.Get(Key(i)).has_value()) << i;
}

TEST_F(ObjectCacheTest, EntriesOfOtherProcessesCountTowardsTheLimit) {
  const std::string object(1000, 'x');
  ObjectCache mine(Folder(), 20'000);
  mine.Put(Key(0), object);
  {
    ObjectCache others(Folder(), kMany);
    for (int i = 1; i < 100; ++i) others.Put(Key(i), object);
  }
  for (int i = 100; i < 200; ++i) mine.Put(Key(i), object);
  int64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(Folder()))
    bytes += static_cast<int64_t>(entry.file_size());
  // The second term covers the entries that other processes add between two counts.
  EXPECT_LE(bytes, 20'000 + 64 * 1100);
  EXPECT_TRUE(mine.Get(Key(199)).has_value());
}

TEST_F(ObjectCacheTest, AnObjectLargerThanTheLimitIsNotKept) {
  ObjectCache cache(Folder(), 100);
  cache.Put(Key(1), std::string(101, 'x'));
  EXPECT_EQ(cache.Get(Key(1)), std::nullopt);
}

TEST_F(ObjectCacheTest, AFolderThatOthersMayWriteIsNotUsed) {
  ObjectCache(Folder(), kMany).Put(Key(1), "code");
  ASSERT_EQ(chmod(Folder().c_str(), 0777), 0);
  ObjectCache cache(Folder(), kMany);
  EXPECT_EQ(cache.Get(Key(1)), std::nullopt);
  cache.Put(Key(2), "code");
  EXPECT_FALSE(fs::exists(File(2)));
}

TEST_F(ObjectCacheTest, WithoutAFolderNothingIsKept) {
  std::ofstream(root_ + "/file") << "no folder";
  for (const std::string& folder : {root_ + "/file", root_ + "/file/below", std::string()}) {
    ObjectCache cache(folder, kMany);
    cache.Put(Key(1), "code");
    EXPECT_EQ(cache.Get(Key(1)), std::nullopt) << folder;
  }
}

TEST_F(ObjectCacheTest, ThreadsShareACache) {
  ObjectCache cache(Folder(), 30'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache] {
      for (int i = 0; i < 100; ++i) {
        const std::string object(100 + i, static_cast<char>('a' + i % 20));
        cache.Put(Key(i), object);
        // The entry is gone, or it is whole.
        const std::optional<std::string> got = cache.Get(Key(i));
        EXPECT_EQ(got.value_or(object), object);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera::worker::codegen
