// Proves that RecordList keeps its records in order of their ids and forgets removed ones, first
// with a few ids and then against a std::set with random additions and removals.
#include "server/scheduler/record_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tessera::server::scheduler {
namespace {

constexpr int kRecords[40'000] = {};

using ::testing::ElementsAre;
using List = RecordList<const int>;

// Returns the ids of the list. Expects each entry to point to the record of its id.
std::vector<uint64_t> IdsOf(List& list) {
  std::vector<uint64_t> ids;
  for (const auto& [id, record] : list.entries()) {
    EXPECT_EQ(record, kRecords + id);
    ids.push_back(id);
  }
  return ids;
}

TEST(RecordList, KeepsEntriesInOrderOfTheirIds) {
  List list;
  for (const uint64_t id : {3, 5, 9}) list.Add(id, kRecords + id);
  list.Add(4, kRecords + 4);
  EXPECT_THAT(IdsOf(list), ElementsAre(3, 4, 5, 9));
  list.Remove(9);
  list.Remove(3);
  EXPECT_EQ(list.size(), 2u);
  EXPECT_THAT(IdsOf(list), ElementsAre(4, 5));
}

TEST(RecordList, BehavesLikeStdSet) {
  std::mt19937 random(1);
  List list;
  std::set<uint64_t> expected;
  for (int step = 0; step < 20'000; ++step) {
    const bool grow = expected.size() < 5 || random() % 2 == 0;
    if (grow) {
      const uint64_t id = random() % 4 == 0 ? random() % 10'000 : 10'000 + step;
      if (expected.insert(id).second) list.Add(id, kRecords + id);
    } else {
      const auto victim =
          std::next(expected.begin(), static_cast<long>(random() % expected.size()));
      list.Remove(*victim);
      expected.erase(victim);
    }
    ASSERT_EQ(list.size(), expected.size());
    if (step % 37 == 0) {
      ASSERT_THAT(IdsOf(list), ::testing::ElementsAreArray(expected));
    }
  }
}

}  // namespace
}  // namespace tessera::server::scheduler
