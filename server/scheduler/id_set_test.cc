#include "server/scheduler/id_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tessera::server::scheduler {
namespace {

TEST(IdSetTest, DoesAsStdSetDoes) {
  std::mt19937_64 random(1);
  for (const uint64_t ids_max : {3u, 40u, 1000u}) {
    IdSet ids;
    std::set<uint64_t> expected;
    for (int i = 0; i < 5000; ++i) {
      const uint64_t id = random() % ids_max;
      switch (random() % 4) {
        case 0:
        case 1:
          ids.insert(id);
          expected.insert(id);
          break;
        case 2:
          ids.erase(id);
          expected.erase(id);
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

}  // namespace
}  // namespace tessera::server::scheduler
