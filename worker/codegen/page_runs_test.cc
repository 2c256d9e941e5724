// Tests of the runs of free pages: which run Take chooses, how Give joins neighbours, and a random
// sequence of both. Addresses are plain numbers, since PageRuns touches no memory.
#include "worker/codegen/page_runs.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::worker::codegen {
namespace {

constexpr PageRun kSpan{100, 200};

TEST(PageRuns, TakesTheLowestUntilNoneIsLeft) {
  PageRuns runs(kSpan);
  EXPECT_EQ(runs.Take(60), (PageRun{100, 160}));
  EXPECT_EQ(runs.Take(41), std::nullopt);
  EXPECT_EQ(runs.Take(40), (PageRun{160, 200}));
  EXPECT_EQ(runs.Take(1), std::nullopt);
}

TEST(PageRuns, TakesTheSmallestRunThatIsLargeEnough) {
  PageRuns runs(kSpan);
  EXPECT_EQ(runs.Take(90), (PageRun{100, 190}));
  runs.Give({110, 130});
  runs.Give({140, 145});
  EXPECT_EQ(runs.Take(4), (PageRun{140, 144}));
  EXPECT_EQ(runs.Take(10), (PageRun{190, 200}));
  EXPECT_EQ(runs.Take(10), (PageRun{110, 120}));
}

TEST(PageRuns, AReturnedRunJoinsItsNeighbours) {
  PageRuns runs(kSpan);
  ASSERT_TRUE(runs.Take(100));
  EXPECT_EQ(runs.Give({120, 130}), (PageRun{120, 130}));
  EXPECT_EQ(runs.Give({140, 150}), (PageRun{140, 150}));
  EXPECT_EQ(runs.Give({130, 140}), (PageRun{120, 150}));
  EXPECT_EQ(runs.Give({100, 110}), (PageRun{100, 110}));
  EXPECT_EQ(runs.Give({110, 120}), (PageRun{100, 150}));
  EXPECT_EQ(runs.Give({150, 200}), kSpan);
  EXPECT_EQ(runs.Take(100), kSpan);
}

TEST(PageRuns, RandomRunsDoNotOverlapAndEndAsOne) {
  std::mt19937 random(7);
  PageRuns runs({0, 1000});
  std::vector<PageRun> taken;
  std::vector<bool> in_use(1000, false);
  const auto mark = [&](PageRun run, bool use) {
    for (uintptr_t page = run.begin; page < run.end; ++page) {
      ASSERT_NE(in_use[page], use) << page;
      in_use[page] = use;
    }
  };
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 || taken.empty()) {
      const std::optional<PageRun> run = runs.Take(1 + random() % 20);
      if (!run) continue;
      mark(*run, true);
      taken.push_back(*run);
    } else {
      std::swap(taken[random() % taken.size()], taken.back());
      mark(taken.back(), false);
      runs.Give(taken.back());
      taken.pop_back();
    }
  }
  for (const PageRun run : taken) runs.Give(run);
  EXPECT_EQ(runs.Take(1000), (PageRun{0, 1000}));
}

}  // namespace
}  // namespace tessera::worker::codegen
