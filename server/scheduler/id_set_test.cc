// Proves that IdSet and IdMap behave like std::set and std::map: random insertions and erasures go
// to both, over few and many distinct ids, and both must hold the same entries after each.
#include "server/scheduler/id_set.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace tessera::server::scheduler {
namespace {

// Erases at the front as often as elsewhere, because the free places at the front are the special
// case of IdSet.
TEST(IdSetTest, BehavesLikeStdSet) {
  std::mt19937_64 random(1);
  for (const uint64_t ids_max : {3u, 40u, 1000u}) {
    IdSet ids;
    std::set<uint64_t> expected;
    for (int i = 0; i < 5000; ++i) {
      const uint64_t id = random() % ids_max;
      switch (random() % 4) {
        case 0:
        case 1:
          ASSERT_EQ(ids.insert(id), expected.insert(id).second);
          break;
        case 2:
          ASSERT_EQ(ids.erase(id), expected.erase(id));
          break;
        case 3:
          if (expected.empty()) break;
          ids.erase(*ids.begin());
          expected.erase(expected.begin());
          break;
      }
      if (random() % 100 == 0) {
        ids.clear();
        expected.clear();
      }
      ASSERT_EQ(ids.size(), expected.size());
      ASSERT_EQ(ids.empty(), expected.empty());
      ASSERT_EQ(ids.count(id), expected.count(id));
      ASSERT_EQ(std::vector<uint64_t>(ids.begin(), ids.end()),
                std::vector<uint64_t>(expected.begin(), expected.end()));
    }
  }
}

// Compares lookups and assignments as well as the entries.
TEST(IdMapTest, BehavesLikeStdMap) {
  using Pairs = std::vector<std::pair<uint64_t, int>>;
  std::mt19937_64 random(2);
  for (const uint64_t ids_max : {3u, 40u, 1000u}) {
    IdMap<int> ids;
    std::map<uint64_t, int> expected;
    for (int i = 0; i < 5000; ++i) {
      const uint64_t id = random() % ids_max;
      if (random() % 2 == 0) {
        ids[id] = expected[id] = i;
      } else {
        ASSERT_EQ(ids.erase(id), expected.erase(id));
      }
      const auto found = ids.find(id), next = ids.lower_bound(id);
      const auto expected_next = expected.lower_bound(id);
      ASSERT_EQ(found == ids.end() ? -1 : found->second,
                expected.count(id) == 0 ? -1 : expected[id]);
      ASSERT_EQ(next == ids.end(), expected_next == expected.end());
      if (next != ids.end()) {
        ASSERT_EQ(next->first, expected_next->first);
      }
      ASSERT_EQ(Pairs(ids.begin(), ids.end()), Pairs(expected.begin(), expected.end()));
    }
    EXPECT_TRUE(ids == IdMap<int>(ids));
  }
  EXPECT_FALSE((IdMap<int>{{1, 2}} == IdMap<int>{{1, 3}}));
}

}  // namespace
}  // namespace tessera::server::scheduler
