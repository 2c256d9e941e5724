// Checks that composed accesses name the same elements as reading through the view, that matrices
// are recognised by their strides, and that the order of nodes agrees with a search. The tests
// compare with direct computations on small random boxes and graphs.
#include "worker/program/access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "worker/program/matmul.h"
#include "worker/program/order.h"

namespace tessera::worker::program {
namespace {

using ir::Dims;

// The content of every value by which accesses are shifted.
int64_t NumberAt(int64_t element) { return (element * element * 31 + 7 * element) % 23 - 5; }

// Returns the elements that an access names, over a box in row-major order.
std::vector<int64_t> Elements(const Dims& box, const ValueAccess& access) {
  std::vector<int64_t> elements;
  Dims index(box.size(), 0);
  for (int64_t i = 0; i < NumElements(box); ++i) {
    int64_t at = access.offset;
    for (size_t d = 0; d < box.size(); ++d) at += access.strides[d] * index[d];
    for (const DynamicValueOffset& s : access.shifts) {
      int64_t from = s.offset;
      for (size_t d = 0; d < s.strides.size(); ++d) from += s.strides[d] * index[d];
      at += s.stride * std::clamp<int64_t>(NumberAt(from), 0, s.max);
    }
    elements.push_back(at);
    for (int d = static_cast<int>(box.size()) - 1; d >= 0; --d) {
      if (++index[d] < box[d]) break;
      index[d] = 0;
    }
  }
  return elements;
}

// Composes the access with the view, and makes the splits that Compose returns.
std::optional<ValueAccess> ComposeAll(Dims* box, ValueAccess access, const View& view) {
  while (true) {
    const ComposeResult composed = Compose(*box, access, view);
    if (composed.access || !composed.split) return composed.access;
    Apply(*composed.split, &access);
    Apply(*composed.split, box);
  }
}

TEST(AccessTest, AFlatReadOfATransposeSplitsTheBox) {
  Dims box = {24};
  const View transposed{{4, 6}, {0, {1, 4}, {}}};
  const auto access = ComposeAll(&box, DenseAccess(box, 1), transposed);
  ASSERT_TRUE(access.has_value());
  EXPECT_EQ(box, (Dims{4, 6}));
  EXPECT_EQ(access->strides, (Dims{1, 4}));
}

TEST(AccessTest, AReadAcrossRowsOfATransposeDoesNotCompose) {
  // Reads elements 1, 2, ... of a 4 x 6 matrix that is read transposed; no split helps.
  const View transposed{{4, 6}, {0, {1, 4}, {}}};
  EXPECT_FALSE(Compose({7}, {1, {1}, {}}, transposed).access.has_value());
  EXPECT_FALSE(Compose({7}, {1, {1}, {}}, transposed).split.has_value());
}

TEST(AccessTest, AShiftComposesLikeADimOfItsMaximum) {
  const View transposed{{4, 6}, {0, {1, 4}, {}}};
  // Row `start` of the transpose is column `start` of the source.
  const ComposeResult row = Compose({6}, {0, {1}, {{7, 3, 6}}}, transposed);
  ASSERT_TRUE(row.access.has_value());
  EXPECT_EQ(row.access->strides, (Dims{4}));
  ASSERT_EQ(row.access->shifts.size(), 1u);
  EXPECT_EQ(row.access->shifts[0], (DynamicValueOffset{7, 3, 1}));
  // A shift that may reach into the next row does not compose.
  EXPECT_FALSE(Compose({6}, {0, {1}, {{7, 3, 1}}}, transposed).access.has_value());
}

// Counts how many random reads compose. A read may be counted in several fields.
struct ComposeCounts {
  int all = 0;
  int split = 0;        // only after dims of the box were split
  int unshifted = 0;    // without any shift
  int own_shift = 0;    // the access has a shift
  int view_shift = 0;   // the view has a shift that is the same for its whole shape
  int view_gather = 0;  // the view has a shift that differs within its shape
};

// Random accesses through random views must read the same elements after composing, and at least as
// many of them must compose as the bounds below say.
TEST(AccessTest, AComposedAccessReadsTheElementsOfTheView) {
  // std::mt19937 gives the same numbers everywhere, so that the counts below are exact.
  std::mt19937 gen(1);
  const auto below = [&](int n) { return static_cast<int64_t>(gen() % n); };
  ComposeCounts counts;
  for (int round = 0; round < 20'000; ++round) {
    View view;
    int64_t n = 1;
    for (int64_t d = below(4); d > 0; --d) {
      view.shape.push_back(below(4) + 1);
      view.access.strides.push_back(below(41) - 20);
      n *= view.shape.back();
    }
    view.access.offset = below(50);
    const auto shift = [&](const Dims& dims, bool gathers) {
      DynamicValueOffset s{1, below(4), below(5) + 1, below(9), {}};
      for (size_t d = 0; gathers && d < dims.size(); ++d) s.strides.push_back(below(3));
      return s;
    };
    if (below(2) == 0) view.access.shifts.push_back(shift(view.shape, below(3) > 0));
    Dims box;
    ValueAccess access;
    access.offset = below(static_cast<int>(n));
    for (int64_t d = below(3); d > 0; --d) {
      box.push_back(below(6) + 1);
      access.strides.push_back(below(9) - 3);
    }
    if (below(3) == 0) access.shifts.push_back(shift(box, below(2) == 0));
    const std::vector<int64_t> read = Elements(box, access);
    const bool inside =
        std::all_of(read.begin(), read.end(), [&](int64_t e) { return e >= 0 && e < n; });
    if (!inside) continue;
    const std::vector<int64_t> through = Elements(view.shape, view.access);
    const size_t rank = box.size();
    const auto result = ComposeAll(&box, access, view);
    if (!result) continue;
    const bool view_shifts = !view.access.shifts.empty(), gathers = IsGather(view.access);
    ++counts.all;
    counts.split += box.size() > rank;
    counts.unshifted += access.shifts.empty() && !view_shifts;
    counts.own_shift += !access.shifts.empty();
    counts.view_shift += view_shifts && !gathers;
    counts.view_gather += gathers;
    std::vector<int64_t> want;
    for (int64_t e : read) want.push_back(through[e]);
    ASSERT_EQ(Elements(box, *result), want) << "round " << round;
  }
  // The bounds are the numbers that compose today. If an access no longer composes, a consumer is
  // no longer fused with the op that moves its data. Raise the numbers when more accesses compose.
  EXPECT_GE(counts.all, 7652);
  EXPECT_GE(counts.split, 47);
  EXPECT_GE(counts.unshifted, 3101);
  EXPECT_GE(counts.own_shift, 1328);
  EXPECT_GE(counts.view_shift, 1989);
  EXPECT_GE(counts.view_gather, 1890);
}

TEST(MatricesTest, DimsMergeWhereTheirStridesAllow) {
  const auto seen = AsMatrices({2, 3, 4, 5}, {60, 20, 5, 1}, 1, 2);
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->sizes[1], 12);
  EXPECT_EQ(seen->strides[0], 60);
  EXPECT_EQ(seen->strides[1], 5);
  EXPECT_EQ(seen->strides[2], 1);
  EXPECT_TRUE(AsMatrices({4, 5}, {1, 4}, 0, 1).has_value()) << "transposed";
  EXPECT_FALSE(AsMatrices({2, 3, 4}, {4, 8, 1}, 0, 2).has_value()) << "rows in two orders";
  EXPECT_FALSE(AsMatrices({4, 5}, {10, 2}, 0, 1).has_value()) << "no stride is 1";
  EXPECT_FALSE(AsMatrices({4, 5}, {0, 1}, 0, 1).has_value()) << "one row, repeated";
  EXPECT_FALSE(AsMatrices({4, 5}, {-5, 1}, 0, 1).has_value()) << "backwards";
}

// Random edges and merges, compared with a table of all paths.
TEST(PartialOrderTest, AgreesWithATableOfAllPaths) {
  constexpr int kNodes = 60;
  std::mt19937 gen(3);
  PartialOrder order;
  std::vector<std::vector<bool>> reaches(kNodes, std::vector<bool>(kNodes, false));
  for (int i = 0; i < kNodes; ++i) order.AddFirst();
  std::vector<bool> gone(kNodes, false);
  for (int round = 0; round < 2000; ++round) {
    const int a = static_cast<int>(gen() % kNodes), b = static_cast<int>(gen() % kNodes);
    if (a == b || gone[a] || gone[b]) continue;
    ASSERT_EQ(order.Precedes(a, b), reaches[a][b]) << a << " before " << b;
    if (reaches[a][b] || reaches[b][a]) continue;
    if (gen() % 4 == 0) {
      order.Merge(b, a);
      gone[b] = true;
      for (int n = 0; n < kNodes; ++n) {
        if (reaches[n][b]) reaches[n][a] = true;
        if (reaches[b][n]) reaches[a][n] = true;
        reaches[n][b] = reaches[b][n] = false;
      }
    } else {
      order.AddEdge(a, b);
      reaches[a][b] = true;
    }
    for (int k = 0; k < kNodes; ++k)
      for (int i = 0; i < kNodes; ++i)
        for (int j = 0; j < kNodes; ++j)
          if (reaches[i][k] && reaches[k][j]) reaches[i][j] = true;
  }
}

}  // namespace
}  // namespace tessera::worker::program
