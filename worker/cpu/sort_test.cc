// Tests of the sort routine: every dtype, row length and layout gives the bits of a plain stable
// sort, with one thread and with several. The scratch memory has the requested size and a guard
// behind it.
#include "worker/cpu/sort.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/array.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::DType;

std::vector<DType> RealDTypes() {
  std::vector<DType> all;
  for (int d = 0; d < ir::kNumDTypes; ++d)
    if (!ir::IsComplex(static_cast<DType>(d))) all.push_back(static_cast<DType>(d));
  return all;
}

// For slow tests: a dtype of each width, and the floats.
constexpr DType kOfEachWidth[] = {DType::kS8,  DType::kBF16, DType::kF16, DType::kS32,
                                  DType::kF32, DType::kU64,  DType::kF64};

// If `few_values` is true, returns numbers of which many are equal, with both zeros, infinities and
// different NaNs among the floats. Otherwise returns random bits that are valid for the dtype.
Array Sample(DType dtype, const ir::Dims& shape, bool few_values, std::mt19937& random) {
  Array a(dtype, shape);
  const int64_t width = ir::ByteWidth(dtype);
  const double specials[] = {0, -0.0, 1, -1, 2, INFINITY, -INFINITY, 0.5, -3};
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    std::byte* const at = a.MutableData() + i * width;
    const uint64_t bits[2] = {random() | uint64_t{random()} << 32, random()};
    if (few_values && !ir::IsComplex(dtype)) {
      const size_t which = random() % (std::size(specials) + 2);
      if (which < std::size(specials)) {
        a.Set(i, ir::IsFloat(dtype) || std::isfinite(specials[which]) ? specials[which] : 3);
      } else if (ir::IsFloat(dtype) && width > 1) {
        a.Set(i, NAN);
        at[0] = static_cast<std::byte>(random() % 4);  // a part of the NaN's payload
        if (which % 2 == 0) at[width - 1] |= std::byte{0x80};
      }
    } else if (ir::BitWidth(dtype) < 8) {
      at[0] = static_cast<std::byte>(bits[0] % (uint64_t{1} << ir::BitWidth(dtype)));
      if (!ir::IsFloat(dtype)) a.Set(i, a.At(i));  // in the form of a narrow integer
    } else {
      std::memcpy(at, bits, width);
    }
  }
  return a;
}

// Returns whether element i of the row comes before element j. With `total`, compares floats in
// total order.
bool IsBefore(const Array& x, int64_t i, int64_t j, bool total) {
  if (!ir::IsFloat(x.dtype())) {
    const int64_t a = x.IntAt(i), b = x.IntAt(j);
    return ir::IsSignedInt(x.dtype()) ? a < b : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
  }
  const double a = x.At(i), b = x.At(j);
  if (total && ir::IsComputable(x.dtype())) {
    const auto position = [&](int64_t at) {
      const int64_t width = ir::ByteWidth(x.dtype());
      int64_t bits = 0;  // at the top, so that the sign is the sign bit
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 8 - width, x.data() + at * width, width);
      return bits < 0 ? std::numeric_limits<int64_t>::min() - bits - 1 : bits;
    };
    return position(i) < position(j);
  }
  return std::isnan(b) ? !std::isnan(a) : a < b;
}

// Returns the results of the sort, computed by std::stable_sort with IsBefore on each row. A
// descending sort swaps the operands of the comparison, which keeps equal elements in their order.
std::vector<Array> Expected(const SortShape& s, const std::vector<Array>& in) {
  std::vector<Array> out;
  for (size_t r = 0; r < s.num_results(); ++r)
    out.emplace_back(s.result(r).dtype, s.result(r).shape);
  for (int64_t row = 0; row < s.rows(); ++row) {
    const auto at = [&](int64_t i, int64_t n) {
      return (row / s.inner * n + i) * s.inner + row % s.inner;
    };
    std::vector<int64_t> order(s.n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      if (s.descending) std::swap(a, b);
      for (int k = 0; k < s.num_keys; ++k) {
        if (IsBefore(in[k], at(a, s.n), at(b, s.n), s.descending)) return true;
        if (IsBefore(in[k], at(b, s.n), at(a, s.n), s.descending)) return false;
      }
      return false;
    });
    for (int64_t i = 0; i < s.kept; ++i) {
      for (size_t r = 0; r < in.size(); ++r) {
        const int64_t width = ir::ByteWidth(in[r].dtype());
        std::memcpy(out[r].MutableData() + at(i, s.kept) * width,
                    in[r].data() + at(order[i], s.n) * width, width);
      }
      if (s.has_indices)
        out.back().MutableAs<int32_t>()[at(i, s.kept)] = static_cast<int32_t>(order[i]);
    }
  }
  return out;
}

// Sorts with scratch memory of exactly the size that SortScratchBytes returns.
std::vector<Array> Sorted(const SortShape& s, const std::vector<Array>& in, ThreadPool& pool,
                          int num_threads, absl::FunctionRef<bool()> cancelled) {
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  std::vector<Array> out;
  for (const Array& x : in) from.push_back(x.data());
  for (size_t r = 0; r < s.num_results(); ++r)
    out.emplace_back(s.result(r).dtype, s.result(r).shape);
  for (Array& x : out) to.push_back(x.MutableData());
  const int64_t bytes = SortScratchBytes(s, num_threads);
  constexpr int64_t kGuard = 64;
  Array scratch(DType::kU8, {bytes + kGuard});
  std::fill_n(scratch.MutableData(), bytes + kGuard, std::byte{0xa5});
  Sort(s, {from, to, scratch.MutableData()}, pool, num_threads, cancelled);
  EXPECT_TRUE(std::all_of(scratch.data() + bytes, scratch.data() + bytes + kGuard,
                          [](std::byte b) { return b == std::byte{0xa5}; }));
  return out;
}
constexpr auto kNever = [] { return false; };

std::string ShapeText(const SortShape& s) {
  return absl::StrCat(s.outer, " x ", s.n, " x ", s.inner, " of ",
                      absl::StrJoin(s.dtypes, ", ",
                                    [](std::string* out, DType d) {
                                      absl::StrAppend(out, std::string(ir::DTypeName(d)));
                                    }),
                      " by ", s.num_keys, s.descending ? ", descending" : "", ", the first ",
                      s.kept, s.has_indices ? ", with indices" : "");
}

class SortTest : public ::testing::Test {
 protected:
  // Sorts with one thread and with several, and compares the bits.
  void Check(const SortShape& s) {
    SCOPED_TRACE(ShapeText(s));
    for (const bool few_values : {true, false}) {
      std::vector<Array> in;
      for (size_t i = 0; i < s.dtypes.size(); ++i)
        in.push_back(Sample(s.dtypes[i], s.operand(i).shape, few_values, random_));
      const std::vector<Array> want = Expected(s, in);
      for (const int threads : {1, 2, 4}) {
        const std::vector<Array> got = Sorted(s, in, pool_, threads, kNever);
        for (size_t r = 0; r < want.size(); ++r)
          ASSERT_TRUE(got[r] == want[r]) << "result " << r << ", " << threads << " threads"
                                         << (few_values ? ", few values" : "");
      }
    }
  }

  ThreadPool pool_{3};
  std::mt19937 random_{7};
};

TEST_F(SortTest, RowsOfAllSizesAndDTypes) {
  for (const DType dtype : RealDTypes())
    for (const int64_t n : {1, 2, 3, 31, 32, 33, 257, 1000})
      Check({.n = n, .kept = n, .dtypes = {dtype}});
  for (const DType dtype : kOfEachWidth) Check({.n = 70'000, .kept = 70'000, .dtypes = {dtype}});
}

TEST_F(SortTest, ManyRowsAndRowsThatAreNotContiguous) {
  for (const DType dtype : RealDTypes()) {
    Check({.outer = 110, .n = 300, .kept = 300, .dtypes = {dtype}});
    Check({.outer = 3, .n = 60, .inner = 5, .kept = 60, .dtypes = {dtype}});
  }
  for (const DType dtype : kOfEachWidth)
    Check({.outer = 2, .n = 33'000, .kept = 33'000, .dtypes = {dtype}});
}

TEST_F(SortTest, OperandsFollowTheKeys) {
  for (const DType key : RealDTypes()) {
    for (const DType follower : {DType::kU8, DType::kBF16, DType::kS32, DType::kC64, DType::kC128})
      Check({.outer = 4, .n = 300, .kept = 300, .dtypes = {key, follower}});
    Check({.outer = 2, .n = 500, .inner = 3, .kept = 500, .dtypes = {key, DType::kS32}});
  }
  for (const DType key : kOfEachWidth)
    Check({.n = 70'000, .kept = 70'000, .dtypes = {key, DType::kS32}});
}

TEST_F(SortTest, LaterKeysDecideAmongEquals) {
  for (const DType a : RealDTypes())
    for (const DType b : {DType::kBool, DType::kF16, DType::kF32, DType::kS64}) {
      Check({.n = 30, .kept = 30, .dtypes = {a, b}, .num_keys = 2});
      Check({.outer = 3, .n = 400, .kept = 400, .dtypes = {a, b, a, a}, .num_keys = 3});
    }
  Check({.n = 140'000, .kept = 140'000, .dtypes = {DType::kBF16, DType::kF32}, .num_keys = 2});
}

TEST_F(SortTest, SelectsTheGreatestElementsOfEachRow) {
  for (const DType dtype : RealDTypes())
    for (const int64_t kept : {1, 2, 10, 60, 400, 999, 1000}) {
      Check({.outer = 3,
             .n = 1000,
             .kept = kept,
             .dtypes = {dtype},
             .descending = true,
             .has_indices = true});
      Check({.outer = 2,
             .n = 1000,
             .inner = 3,
             .kept = kept,
             .dtypes = {dtype},
             .descending = true,
             .has_indices = true});
    }
  for (const int64_t kept : {1, 10, 5'000, 30'000})
    Check({.n = 150'000,
           .kept = kept,
           .dtypes = {DType::kF32},
           .descending = true,
           .has_indices = true});
  Check(
      {.n = 150'000, .kept = 10, .dtypes = {DType::kS64}, .descending = true, .has_indices = true});
  Check({.n = 150'000, .kept = 10, .dtypes = {DType::kF32, DType::kC64}});
}

// In a row that rises, every element is one of the greatest so far.
TEST_F(SortTest, SelectsTheGreatestElementsOfAnAscendingRow) {
  SortShape s{
      .n = 100'000, .kept = 100, .dtypes = {DType::kS32}, .descending = true, .has_indices = true};
  Array x(DType::kS32, {s.n});
  for (int32_t i = 0; i < s.n; ++i) x.MutableAs<int32_t>()[i] = i / 3;
  for (const int threads : {1, 4})
    EXPECT_EQ(Sorted(s, {x}, pool_, threads, kNever), Expected(s, {x}));
}

// A cancel at any time ends the sort soon, and the sort stays within its memory. After the cancel
// each thread asks at most once more for each part of the work that it leaves out.
TEST_F(SortTest, ACancelEndsASort) {
  const SortShape shapes[] = {
      {.n = 70'000, .kept = 70'000, .dtypes = {DType::kF32}},
      {.n = 1'300'000, .kept = 1'300'000, .dtypes = {DType::kF32, DType::kS32}},
      {.n = 1'300'000,
       .kept = 10,
       .dtypes = {DType::kF32},
       .descending = true,
       .has_indices = true},
      {.outer = 500, .n = 100, .kept = 100, .dtypes = {DType::kF32}, .num_keys = 1}};
  for (const SortShape& s : shapes) {
    SCOPED_TRACE(ShapeText(s));
    std::vector<Array> in;
    for (size_t i = 0; i < s.dtypes.size(); ++i)
      in.push_back(Sample(s.dtypes[i], s.operand(i).shape, /*few_values=*/true, random_));
    for (const int threads : {1, 2}) {
      std::atomic<int> polls{0};
      Sorted(s, in, pool_, threads, [&] { return polls.fetch_add(1) < 0; });
      const int all = polls.load();
      EXPECT_GT(all, 2);
      for (int at = 0; at < all; at += 1 + all / 8) {
        std::atomic<int> num_polls{0};
        Sorted(s, in, pool_, threads, [&] { return num_polls.fetch_add(1) >= at; });
        EXPECT_LE(num_polls.load(), at + 12);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
