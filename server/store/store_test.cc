#include "server/store/store.h"

#include "base/testing/status_matchers.h"

namespace tessera::server::store {
namespace {

TEST(MemoryStoreTest, KeepsTheLastRecordsInOrder) {
  MemoryStore store({}, /*records_max=*/3);
  for (const char* text : {"a", "b", "c", "d", "e"}) TESSERA_ASSERT_OK(store.Append(text));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Record> all, store.Read(0, 10));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].number, 3u);
  EXPECT_EQ(all[0].text, "c");
  EXPECT_EQ(all[2].text, "e");
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Record> one, store.Read(4, 1));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].text, "d");
}

}  // namespace
}  // namespace tessera::server::store
