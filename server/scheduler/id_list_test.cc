#include "server/scheduler/id_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tessera::server::scheduler {
namespace {

using ::testing::ElementsAre;

TEST(IdList, IsInOrder) {
  IdList list;
  for (const uint64_t id : {3, 5, 9}) list.Add(id);
  list.Add(4);
  EXPECT_THAT(list.ids(), ElementsAre(3, 4, 5, 9));
  list.Remove(9);
  list.Remove(3);
  EXPECT_EQ(list.size(), 2u);
  EXPECT_THAT(list.ids(), ElementsAre(4, 5));
}

TEST(IdList, IsASet) {
  std::mt19937 random(1);
  IdList list;
  std::set<uint64_t> same;
  for (int step = 0; step < 20'000; ++step) {
    const bool grow = same.size() < 5 || random() % 2 == 0;
    if (grow) {
      const uint64_t id = random() % 4 == 0 ? random() % 10'000 : 10'000 + step;
      if (same.insert(id).second) list.Add(id);
    } else {
      const auto victim = std::next(same.begin(), static_cast<long>(random() % same.size()));
      list.Remove(*victim);
      same.erase(victim);
    }
    ASSERT_EQ(list.size(), same.size());
    if (step % 37 == 0) {
      ASSERT_THAT(list.ids(), ::testing::ElementsAreArray(same));
    }
  }
}

}  // namespace
}  // namespace tessera::server::scheduler
