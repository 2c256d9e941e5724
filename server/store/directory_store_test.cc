#include "server/store/directory_store.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/testing/status_matchers.h"

namespace tessera::server::store {
namespace {

class DirectoryStoreTest : public ::testing::Test {
 protected:
  DirectoryStoreTest() {
    folder_ = (std::filesystem::temp_directory_path() / "tessera-store-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~DirectoryStoreTest() override { std::filesystem::remove_all(folder_); }

  core::Life Start() {
    const auto store = DirectoryStore::Open(folder_ + "/state");
    EXPECT_THAT(store, IsOk());
    return store.ok() ? (*store)->life() : core::Life();
  }
  void Write(const std::string& text) { std::ofstream(folder_ + "/state/epoch") << text; }

  std::string folder_;
};

TEST_F(DirectoryStoreTest, EveryStartHasIdsOfItsOwn) {
  const core::Life first = Start(), second = Start(), third = Start();
  EXPECT_EQ(first.epoch, 1u);
  EXPECT_EQ(first.first_id, 0u);
  EXPECT_EQ(third.epoch, 3u);
  EXPECT_EQ(second.first_id, uint64_t{1} << core::kIdBits);
  EXPECT_EQ(third.first_id, 2 * second.first_id);
}

TEST_F(DirectoryStoreTest, OneCoordinatorAtATimeUsesAFolder) {
  const auto held = DirectoryStore::Open(folder_ + "/state");
  ASSERT_THAT(held, IsOk());
  EXPECT_THAT(DirectoryStore::Open(folder_ + "/state").status(),
              ReasonIs("VALUE_ERROR", "another coordinator uses"));
}

TEST_F(DirectoryStoreTest, WhatNobodyWroteIsRefusedAndKept) {
  Start();
  for (const char* text : {"", "seven", "-1", "1 2", "262144"}) {
    Write(text);
    EXPECT_THAT(DirectoryStore::Open(folder_ + "/state").status(), ReasonIs("VALUE_ERROR", "epoch"))
        << text;
    std::ifstream in(folder_ + "/state/epoch");
    const std::string kept((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_EQ(kept, text);
  }
  EXPECT_THAT(DirectoryStore::Open("/proc/nothing").status(), ReasonIs("VALUE_ERROR", "/proc"));
}

TEST_F(DirectoryStoreTest, DevicesAreTheSameInTheNextLife) {
  const std::vector<core::KnownExecutor> kept = {
      {.worker = "w1", .device_kind = "cpu", .index = 0, .num_devices = 2, .first_device = 0},
      {.worker = "a b", .device_kind = "gpu", .index = 3, .num_devices = 1, .first_device = 7}};
  {
    const auto store = DirectoryStore::Open(folder_ + "/state");
    ASSERT_THAT(store, IsOk());
    EXPECT_TRUE((*store)->is_persistent());
    EXPECT_TRUE((*store)->executors().empty());
    TESSERA_ASSERT_OK((*store)->KeepExecutors(kept));
  }
  {
    const auto store = DirectoryStore::Open(folder_ + "/state");
    ASSERT_THAT(store, IsOk());
    EXPECT_EQ((*store)->executors(), kept);
    TESSERA_ASSERT_OK((*store)->KeepExecutors({}));
  }
  EXPECT_TRUE((*DirectoryStore::Open(folder_ + "/state"))->executors().empty());
  for (const char* text : {"x", "0 0 0 cpu w", "0 1 0 cpu", "0 1 0 cpu ",
                           "3 1 0 cpu a\n3 1 0 cpu b", "-1 1 0 cpu a", "0 99999999999 0 cpu a"}) {
    std::ofstream(folder_ + "/state/executors") << text;
    EXPECT_THAT(DirectoryStore::Open(folder_ + "/state").status(),
                ReasonIs("VALUE_ERROR", "no executor"))
        << text;
  }
}

TEST(LifeTest, ALifeThatRemembersNothingBeginsSomewhere) {
  const core::Life a = core::RandomLife(7, 12), b = core::RandomLife(8, 13);
  EXPECT_EQ(a.epoch, 7u);
  EXPECT_NE(a.first_id, b.first_id);
  EXPECT_LT(core::RandomLife(1, ~uint64_t{0}).first_id, uint64_t{1} << 52);
}

}  // namespace
}  // namespace tessera::server::store
