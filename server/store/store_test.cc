// Proves the contract of the store in memory, and the order and form of the keys of rows. The store
// on disk has a test of its own.
#include "server/store/store.h"

#include <gmock/gmock.h>

#include "base/testing/status_matchers.h"

namespace tessera::server::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RecordingListener final : public Store::Listener {
 public:
  void OnDurable(uint64_t commit) override { durable.push_back(commit); }
  void OnCommitsFailed(absl::Status why) override { ADD_FAILURE() << why; }
  std::vector<uint64_t> durable;
};

TEST(MemoryStoreTest, ACommitIsReportedAsDurableAtOnce) {
  MemoryStore store;
  EXPECT_FALSE(store.is_persistent());
  store.Commit(1, {});
  RecordingListener listener;
  store.Listen(&listener);
  store.Commit(2, {{core::RowKind::kArray, core::IdKey(7), "value"}});
  EXPECT_THAT(listener.durable, ElementsAre(2));
  store.Listen(nullptr);
  store.Commit(3, {});
  EXPECT_THAT(listener.durable, ElementsAre(2));
  TESSERA_EXPECT_OK(store.Flush(absl::ZeroDuration()));
  EXPECT_THAT(*store.Load(), IsEmpty()) << "nobody reads what it keeps";
}

TEST(RowsTest, KeysAreInTheOrderOfIds) {
  std::string before;
  for (const uint64_t id :
       {uint64_t{0}, uint64_t{1}, uint64_t{255}, uint64_t{256}, uint64_t{1} << 52, ~uint64_t{0}}) {
    const std::string key = core::IdKey(id);
    EXPECT_EQ(key.size(), 8u);
    EXPECT_EQ(core::IdOfKey(key), id);
    EXPECT_LT(before, key);
    before = key;
  }
  EXPECT_EQ(core::IdOfKey("1234567"), std::nullopt);
  EXPECT_EQ(core::IdOfKey(""), std::nullopt);
  EXPECT_EQ(NameOf(core::RowKind::kSession), "session");
  EXPECT_EQ(NameOf(core::RowKind::kAnswer), "answer");
}

}  // namespace
}  // namespace tessera::server::store
