// The behaviour that every implementation of Collectives must have. An implementation registers a
// factory:
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, CollectivesSuite, ::testing::Values(...), ImplName);
//
// Each rank has its own thread.
#pragma once
#include <atomic>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/testing/test_cluster.h"

namespace tessera::worker {

struct CollectivesImpl {
  std::string name;
  int ranks = 0;
  std::function<std::unique_ptr<Cluster>(absl::Duration timeout)> make;
};

inline std::string ImplName(const ::testing::TestParamInfo<CollectivesImpl>& info) {
  return info.param.name;
}

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& v) {
  return {reinterpret_cast<const std::byte*>(v.data()), v.size() * sizeof(T)};
}
template <typename T>
absl::Span<std::byte> MutableBytesOf(std::vector<T>& v) {
  return {reinterpret_cast<std::byte*>(v.data()), v.size() * sizeof(T)};
}

class CollectivesSuite : public ::testing::TestWithParam<CollectivesImpl> {
 protected:
  // The timeout is far longer than a call that should succeed takes.
  void SetUp() override { Make(absl::Seconds(60)); }
  void Make(absl::Duration timeout) { cluster_ = GetParam().make(timeout); }

  int n() const { return cluster_->ranks(); }
  std::vector<int> All() const {
    std::vector<int> group(n());
    std::iota(group.begin(), group.end(), 0);
    return group;
  }
  static CallKey Key(uint32_t op_sequence) {
    return {/*launch=*/7, op_sequence, "psum at model.cc:41", "train_step"};
  }
  std::vector<absl::Status> RunOk(const std::vector<int>& group,
                                  const std::function<absl::Status(int)>& body) {
    std::vector<absl::Status> results = cluster_->Run(group, body);
    for (const absl::Status& status : results) EXPECT_TRUE(status.ok()) << status;
    return results;
  }

  // inputs[i] and result i belong to the rank group[i].
  template <typename T>
  std::vector<std::vector<T>> AllReduce(const std::vector<int>& group, const CallKey& key,
                                        ir::ReduceKind reduce, ir::DType dtype,
                                        const std::vector<std::vector<T>>& inputs) {
    std::vector<std::vector<T>> outputs = inputs;
    RunOk(group, [&](int rank) {
      const size_t i = std::find(group.begin(), group.end(), rank) - group.begin();
      return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                     .rank = rank,
                                     .group = group,
                                     .key = key,
                                     .in = BytesOf(inputs[i]),
                                     .out = MutableBytesOf(outputs[i]),
                                     .reduce = reduce,
                                     .dtype = dtype});
    });
    return outputs;
  }

  // The inputs are small whole numbers: every type holds them exactly, and their products do not
  // overflow s8.
  template <typename T>
  void CheckArithmetic(ir::DType dtype, const std::function<T(int)>& make, bool ordered) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{3}, size_t{1025}, size_t{40001}}) {
      std::vector<std::vector<T>> inputs(n());
      for (int r = 0; r < n(); ++r) {
        for (size_t i = 0; i < size; ++i) inputs[r].push_back(make(1 + (i + r) % 3));
      }
      for (const ir::ReduceKind reduce : {ir::ReduceKind::kSum, ir::ReduceKind::kProd,
                                          ir::ReduceKind::kMax, ir::ReduceKind::kMin}) {
        if (!ordered && (reduce == ir::ReduceKind::kMax || reduce == ir::ReduceKind::kMin))
          continue;
        const auto outputs = AllReduce(All(), Key(op_++), reduce, dtype, inputs);
        std::vector<T> expected;
        for (size_t i = 0; i < size; ++i) {
          int value = 1 + i % 3;
          for (int r = 1; r < n(); ++r) {
            const int x = 1 + (i + r) % 3;
            if (reduce == ir::ReduceKind::kSum) value += x;
            if (reduce == ir::ReduceKind::kProd) value *= x;
            if (reduce == ir::ReduceKind::kMax) value = std::max(value, x);
            if (reduce == ir::ReduceKind::kMin) value = std::min(value, x);
          }
          expected.push_back(make(value));
        }
        for (int r = 0; r < n(); ++r) {
          ASSERT_TRUE(outputs[r] == expected)
              << ir::DTypeName(dtype) << " size " << size << " rank " << r << " reduce "
              << static_cast<int>(reduce);
        }
      }
    }
  }
  template <typename T>
  void CheckArithmetic(ir::DType dtype, bool ordered = true) {
    CheckArithmetic<T>(
        dtype, [](int x) { return static_cast<T>(x); }, ordered);
  }

  std::unique_ptr<Cluster> cluster_;
  uint32_t op_ = 0;
};

TEST_P(CollectivesSuite, ReducesIntegers) {
  CheckArithmetic<int8_t>(ir::DType::kS8);
  CheckArithmetic<int16_t>(ir::DType::kS16);
  CheckArithmetic<int32_t>(ir::DType::kS32);
  CheckArithmetic<int64_t>(ir::DType::kS64);
  CheckArithmetic<uint8_t>(ir::DType::kU8);
  CheckArithmetic<uint16_t>(ir::DType::kU16);
  CheckArithmetic<uint32_t>(ir::DType::kU32);
  CheckArithmetic<uint64_t>(ir::DType::kU64);
}

TEST_P(CollectivesSuite, ReducesFloatsAndComplex) {
  CheckArithmetic<float>(ir::DType::kF32);
  CheckArithmetic<double>(ir::DType::kF64);
  CheckArithmetic<std::complex<float>>(ir::DType::kC64, /*ordered=*/false);
  CheckArithmetic<std::complex<double>>(ir::DType::kC128, /*ordered=*/false);
  CheckArithmetic<uint16_t>(
      ir::DType::kBF16,
      [](int x) {
        return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16);
      },
      /*ordered=*/true);
  CheckArithmetic<uint16_t>(
      ir::DType::kF16,
      [](int x) {
        const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x));
        return static_cast<uint16_t>((bits - (112u << 23)) >> 13);
      },
      /*ordered=*/true);
}

TEST_P(CollectivesSuite, ReducesBits) {
  std::vector<std::vector<uint32_t>> words(n());
  std::vector<std::vector<uint8_t>> flags(n());
  uint32_t all = ~0u, any = 0;
  for (int r = 0; r < n(); ++r) {
    words[r] = {0xff00ff00u >> r, 1u << r};
    flags[r] = {1, 0, r == 0};
    all &= words[r][0];
    any |= words[r][0];
  }
  const uint8_t only_first = n() == 1;
  EXPECT_EQ(AllReduce(All(), Key(0), ir::ReduceKind::kAnd, ir::DType::kU32, words)[n() - 1][0],
            all);
  EXPECT_EQ(AllReduce(All(), Key(1), ir::ReduceKind::kOr, ir::DType::kU32, words)[n() - 1][0], any);
  for (const ir::ReduceKind reduce :
       {ir::ReduceKind::kAnd, ir::ReduceKind::kMin, ir::ReduceKind::kProd}) {
    EXPECT_THAT(AllReduce(All(), Key(2), reduce, ir::DType::kBool, flags)[0],
                ::testing::ElementsAre(1, 0, only_first));
  }
  for (const ir::ReduceKind reduce :
       {ir::ReduceKind::kOr, ir::ReduceKind::kMax, ir::ReduceKind::kSum}) {
    EXPECT_THAT(AllReduce(All(), Key(3), reduce, ir::DType::kBool, flags)[0],
                ::testing::ElementsAre(1, 0, 1));
  }
}

TEST_P(CollectivesSuite, FloatSumsAddInGroupOrderWithTheSameBitsEveryTime) {
  std::mt19937 random(20240229);
  std::uniform_real_distribution<float> uniform(-1e8f, 1e8f);
  for (const size_t size : {size_t{17}, size_t{50000}}) {
    std::vector<int> group = All();
    std::reverse(group.begin(), group.end());
    std::vector<std::vector<float>> inputs(n());
    for (auto& input : inputs) {
      for (size_t i = 0; i < size; ++i) input.push_back(uniform(random));
    }
    std::vector<float> expected = inputs[0];
    for (int r = 1; r < n(); ++r) {
      for (size_t i = 0; i < size; ++i) expected[i] += inputs[r][i];
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto outputs =
          AllReduce(group, Key(op_++), ir::ReduceKind::kSum, ir::DType::kF32, inputs);
      for (const auto& output : outputs) ASSERT_TRUE(output == expected);
    }
  }
}

TEST_P(CollectivesSuite, NarrowFloatSumsAreRoundedOnce) {
  // The sum is 256 + 1 + 1 + ...: bf16 has 8 bits, so rounding after each addition would lose every
  // 1.
  const uint16_t k256 = 0x4380, k1 = 0x3f80;
  std::vector<std::vector<uint16_t>> inputs(n(), {k1});
  inputs[0] = {k256};
  const float sum = 256.0f + static_cast<float>(n() - 1);
  const float rounded = n() == 1 ? 256.0f : n() == 2 ? 256.0f : std::nearbyint(sum / 2) * 2;
  const auto outputs = AllReduce(All(), Key(0), ir::ReduceKind::kSum, ir::DType::kBF16, inputs);
  for (const auto& output : outputs) {
    EXPECT_EQ(std::bit_cast<float>(uint32_t{output[0]} << 16), rounded);
  }
}

TEST_P(CollectivesSuite, MaxAndMinKeepNan) {
  for (int where = 0; where < n(); ++where) {
    std::vector<std::vector<float>> inputs(n(), {1.0f});
    inputs[where] = {std::nanf("")};
    for (const ir::ReduceKind reduce : {ir::ReduceKind::kMax, ir::ReduceKind::kMin}) {
      for (const auto& output : AllReduce(All(), Key(op_++), reduce, ir::DType::kF32, inputs)) {
        EXPECT_TRUE(std::isnan(output[0]));
      }
    }
  }
}

TEST_P(CollectivesSuite, MinusZeroIsLessThanZero) {
  for (const size_t size : {size_t{1}, size_t{50000}}) {
    for (int where = 0; where < n(); ++where) {
      const auto with_one = [&](float one, float others) {
        std::vector<std::vector<float>> inputs(n(), std::vector<float>(size, others));
        inputs[where].assign(size, one);
        return inputs;
      };
      const auto check = [&](ir::ReduceKind reduce, float one, bool negative) {
        for (const auto& output :
             AllReduce(All(), Key(op_++), reduce, ir::DType::kF32, with_one(one, -one))) {
          for (const float x : output) {
            ASSERT_EQ(x, 0);
            ASSERT_EQ(std::signbit(x), negative) << "the different value is of rank " << where;
          }
        }
      };
      check(ir::ReduceKind::kMax, 0.0f, /*negative=*/false);
      check(ir::ReduceKind::kMin, -0.0f, /*negative=*/true);
    }
  }
}

TEST_P(CollectivesSuite, AllReduceMayBeInPlace) {
  for (const size_t size : {size_t{5}, size_t{100003}}) {
    std::vector<std::vector<int32_t>> data(n());
    for (int r = 0; r < n(); ++r) data[r].assign(size, r + 1);
    RunOk(All(), [&](int rank) {
      return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                     .rank = rank,
                                     .group = All(),
                                     .key = Key(op_),
                                     .in = BytesOf(data[rank]),
                                     .out = MutableBytesOf(data[rank]),
                                     .reduce = ir::ReduceKind::kSum,
                                     .dtype = ir::DType::kS32});
    });
    ++op_;
    const std::vector<int32_t> expected(size, n() * (n() + 1) / 2);
    for (int r = 0; r < n(); ++r) EXPECT_TRUE(data[r] == expected) << "rank " << r;
  }
}

TEST_P(CollectivesSuite, GathersInGroupOrder) {
  std::vector<int> group = All();
  std::rotate(group.begin(), group.begin() + n() / 2, group.end());
  for (const size_t size : {size_t{0}, size_t{1}, size_t{333}, size_t{300007}}) {
    std::vector<uint8_t> expected;
    for (const int rank : group) expected.insert(expected.end(), size, rank + 1);
    std::vector<std::vector<uint8_t>> outputs(n(), std::vector<uint8_t>(size * n()));
    RunOk(group, [&](int rank) {
      const std::vector<uint8_t> in(size, rank + 1);
      return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllGather,
                                     .rank = rank,
                                     .group = group,
                                     .key = Key(op_),
                                     .in = BytesOf(in),
                                     .out = MutableBytesOf(outputs[rank])});
    });
    ++op_;
    for (int r = 0; r < n(); ++r) EXPECT_TRUE(outputs[r] == expected) << size << " rank " << r;
  }
}

TEST_P(CollectivesSuite, ReduceScatterGivesEachPositionItsChunk) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{77}, size_t{50001}}) {
    std::vector<std::vector<int64_t>> outputs(n(), std::vector<int64_t>(size));
    RunOk(All(), [&](int rank) {
      std::vector<int64_t> in;
      for (int p = 0; p < n(); ++p) in.insert(in.end(), size, 100 * p + rank);
      return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kReduceScatter,
                                     .rank = rank,
                                     .group = All(),
                                     .key = Key(op_),
                                     .in = BytesOf(in),
                                     .out = MutableBytesOf(outputs[rank]),
                                     .reduce = ir::ReduceKind::kSum,
                                     .dtype = ir::DType::kS64});
    });
    ++op_;
    for (int r = 0; r < n(); ++r) {
      const std::vector<int64_t> expected(size, 100 * r * n() + n() * (n() - 1) / 2);
      EXPECT_TRUE(outputs[r] == expected) << size << " rank " << r;
    }
  }
}

TEST_P(CollectivesSuite, AllToAllTransposesChunks) {
  // The largest size needs several windows of a connection in both directions at once.
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1001}, size_t{2500001}}) {
    std::vector<std::vector<uint32_t>> outputs(n(), std::vector<uint32_t>(size * n()));
    RunOk(All(), [&](int rank) {
      std::vector<uint32_t> in;
      for (int p = 0; p < n(); ++p) in.insert(in.end(), size, 10 * rank + p);
      return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllToAll,
                                     .rank = rank,
                                     .group = All(),
                                     .key = Key(op_),
                                     .in = BytesOf(in),
                                     .out = MutableBytesOf(outputs[rank])});
    });
    ++op_;
    for (int r = 0; r < n(); ++r) {
      std::vector<uint32_t> expected;
      for (int p = 0; p < n(); ++p) expected.insert(expected.end(), size, 10 * p + r);
      EXPECT_TRUE(outputs[r] == expected) << size << " rank " << r;
    }
  }
}

TEST_P(CollectivesSuite, PermuteSendsAlongPairsAndFillsTheRestWithZeros) {
  std::vector<PermutePair> shift;  // position 0 receives nothing
  for (int p = 0; p + 1 < n(); ++p) shift.push_back({p, p + 1});
  const std::vector<PermutePair> stay = {{0, 0}};
  for (const size_t size : {size_t{0}, size_t{3}, size_t{400000}}) {
    for (const auto& pairs : {shift, stay}) {
      std::vector<std::vector<uint8_t>> outputs(n(), std::vector<uint8_t>(size, 99));
      RunOk(All(), [&](int rank) {
        const std::vector<uint8_t> in(size, rank + 1);
        return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kPermute,
                                       .rank = rank,
                                       .group = All(),
                                       .key = Key(op_),
                                       .in = BytesOf(in),
                                       .out = MutableBytesOf(outputs[rank]),
                                       .pairs = pairs});
      });
      ++op_;
      for (int r = 0; r < n(); ++r) {
        uint8_t value = 0;
        for (const PermutePair& pair : pairs) {
          if (pair.target == r) value = pair.source + 1;
        }
        EXPECT_TRUE(outputs[r] == std::vector<uint8_t>(size, value)) << size << " rank " << r;
      }
    }
  }
}

TEST_P(CollectivesSuite, ASlowReceiverDelaysOnlyItsSender) {
  // The first rank runs ahead of the last by as much as the transport allows. Meanwhile the other
  // ranks exchange data over the same connections.
  if (n() < 4) GTEST_SKIP() << "needs 4 ranks";
  const std::vector<int> outer = {0, n() - 1};
  const std::vector<int> inner = {1, n() - 1};
  constexpr size_t kBytes = 600000;
  RunOk({0, 1, n() - 1}, [&](int rank) -> absl::Status {
    const std::vector<uint8_t> in(kBytes, 5);
    std::vector<uint8_t> out(kBytes);
    if (rank != 0) {
      TESSERA_RETURN_IF_ERROR(cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                                      .rank = rank,
                                                      .group = inner,
                                                      .key = Key(1),
                                                      .in = BytesOf(in),
                                                      .out = MutableBytesOf(out),
                                                      .reduce = ir::ReduceKind::kSum,
                                                      .dtype = ir::DType::kU8}));
    }
    if (rank == 1) return absl::OkStatus();
    const std::vector<PermutePair> pairs = {{0, 1}};
    for (uint32_t i = 0; i < 40; ++i) {
      TESSERA_RETURN_IF_ERROR(cluster_->of(rank).Run({.kind = ir::CollectiveKind::kPermute,
                                                      .rank = rank,
                                                      .group = outer,
                                                      .key = Key(2 + i),
                                                      .in = BytesOf(in),
                                                      .out = MutableBytesOf(out),
                                                      .pairs = pairs}));
    }
    EXPECT_EQ(out[0], rank == 0 ? 0 : 5);
    return absl::OkStatus();
  });
}

TEST_P(CollectivesSuite, BarrierWaitsForAllRanks) {
  std::atomic<int> entered{0};
  for (uint32_t round = 1; round <= 200; ++round) {
    RunOk(All(), [&](int rank) {
      entered.fetch_add(1);
      const absl::Status status = cluster_->of(rank).Run(
          {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = Key(round)});
      EXPECT_GE(entered.load(), static_cast<int>(round) * n());
      return status;
    });
  }
}

TEST_P(CollectivesSuite, ALoopMayRepeatItsKey) {
  std::vector<std::vector<int32_t>> totals(n(), {1});
  RunOk(All(), [&](int rank) -> absl::Status {
    for (int i = 0; i < 8; ++i) {
      const std::vector<int32_t> in = totals[rank];
      TESSERA_RETURN_IF_ERROR(cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                                      .rank = rank,
                                                      .group = All(),
                                                      .key = Key(3),
                                                      .in = BytesOf(in),
                                                      .out = MutableBytesOf(totals[rank]),
                                                      .reduce = ir::ReduceKind::kSum,
                                                      .dtype = ir::DType::kS32}));
    }
    return absl::OkStatus();
  });
  int32_t expected = 1;
  for (int i = 0; i < 8; ++i) expected *= n();
  for (const auto& total : totals) EXPECT_EQ(total[0], expected);
}

TEST_P(CollectivesSuite, SubgroupsWorkSideBySide) {
  if (n() < 4) GTEST_SKIP() << "needs 4 ranks";
  std::vector<std::vector<int32_t>> sums(n(), std::vector<int32_t>(20000));
  RunOk(All(), [&](int rank) -> absl::Status {
    // The groups are evens and odds, then halves; all of them use the same sequence numbers.
    const std::vector<std::vector<int>> groups = {{rank % 2, rank % 2 + 2},
                                                  {rank / 2 * 2 + 1, rank / 2 * 2}};
    std::vector<int32_t> in(20000, 1 << rank);
    for (uint32_t i = 0; i < 2; ++i) {
      TESSERA_RETURN_IF_ERROR(cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                                      .rank = rank,
                                                      .group = groups[i],
                                                      .key = Key(i),
                                                      .in = BytesOf(in),
                                                      .out = MutableBytesOf(sums[rank]),
                                                      .reduce = ir::ReduceKind::kSum,
                                                      .dtype = ir::DType::kS32}));
      in = sums[rank];
    }
    return absl::OkStatus();
  });
  for (int r = 0; r < 4; ++r) EXPECT_TRUE(sums[r] == std::vector<int32_t>(20000, 15)) << r;
}

TEST_P(CollectivesSuite, AMissingRankIsNamedAndFailsLaterCallsAtOnce) {
  if (n() < 2) GTEST_SKIP() << "needs 2 ranks";
  // The timeout is long enough that every rank that comes has arrived before the first one gives
  // up.
  Make(absl::Milliseconds(1500));
  RunOk(All(), [&](int rank) {
    return cluster_->of(rank).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = Key(0)});
  });
  const int missing = n() - 1;
  std::vector<int> present = All();
  present.pop_back();
  const auto call = [&](int rank) {
    return cluster_->of(rank).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = Key(1)});
  };
  std::vector<absl::Status> results = cluster_->Run(present, call);
  // A rank that comes late may still find the blocks that the others sent before they gave up. In
  // that case its next call fails.
  absl::Status late = call(missing);
  if (late.ok())
    late = cluster_->of(missing).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = missing, .group = All(), .key = Key(2)});
  results.push_back(late);
  const int executor = cluster_->executor_of_rank[missing];
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(ReasonOf(results[i]), "COLLECTIVE_TIMEOUT") << i << ": " << results[i];
    const std::string text(results[i].message());
    EXPECT_THAT(text, ::testing::HasSubstr(absl::StrCat(
                          "rank ", missing, " (", DeviceOf(missing), " of executor ",
                          ExecutorOf(executor), ", host ", HostOf(executor), "): not entered")));
    EXPECT_THAT(text, ::testing::HasSubstr("psum at model.cc:41: 1 of "));
    EXPECT_THAT(text, ::testing::HasSubstr("program train_step, launch 7, op 1"));
  }
}

TEST_P(CollectivesSuite, ATimeoutNamesExactlyTheMissingRanks) {
  if (n() < 3) GTEST_SKIP() << "needs 3 ranks";
  for (const std::vector<int>& missing : {std::vector<int>{0}, std::vector<int>{0, n() - 1}}) {
    // The timeout is long enough that every rank that comes has arrived before the first one gives
    // up.
    Make(absl::Milliseconds(1500));
    const auto sum = [&](int rank, uint32_t op) {
      const std::vector<float> in(3, 1);
      std::vector<float> out(3);
      return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                     .rank = rank,
                                     .group = All(),
                                     .key = Key(op),
                                     .in = BytesOf(in),
                                     .out = MutableBytesOf(out),
                                     .reduce = ir::ReduceKind::kSum,
                                     .dtype = ir::DType::kF32});
    };
    RunOk(All(), [&](int rank) { return sum(rank, 0); });
    std::vector<int> present;
    for (const int rank : All()) {
      if (std::find(missing.begin(), missing.end(), rank) == missing.end()) present.push_back(rank);
    }
    for (const absl::Status& status :
         cluster_->Run(present, [&](int rank) { return sum(rank, 1); })) {
      EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
      const std::string text(status.message());
      EXPECT_THAT(text, ::testing::HasSubstr(
                            absl::StrCat(": ", missing.size(), " of ", n(), " members missing")));
      for (const int rank : missing) {
        EXPECT_THAT(text,
                    ::testing::ContainsRegex(absl::StrCat("rank ", rank, " .*: not entered")));
      }
    }
  }
}

TEST_P(CollectivesSuite, AbortWakesEverybodyWithTheFirstFailure) {
  const absl::Status cause = MakeError(ErrorKind::kCancelled, "cancelled on request");
  std::vector<int> waiting = All();
  waiting.pop_back();
  std::thread aborter([&] {
    cluster_->of(n() - 1).Abort(cause);
    cluster_->of(n() - 1).Abort(MakeError(ErrorKind::kInternal, "too late"));
  });
  const auto call = [&](int rank) {
    return cluster_->of(rank).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = Key(0)});
  };
  std::vector<absl::Status> results = cluster_->Run(waiting, call);
  aborter.join();
  results.push_back(call(n() - 1));
  for (int rank = 0; rank < n(); ++rank) {
    const bool here = cluster_->executor_of_rank[rank] == cluster_->executor_of_rank[n() - 1];
    EXPECT_EQ(ReasonOf(results[rank]), here ? "CANCELLED" : "PEER_FAILED") << results[rank];
    EXPECT_THAT(std::string(results[rank].message()), ::testing::HasSubstr("cancelled on request"));
  }
}

// One member never comes to launch 7, which is aborted when the others have sent much of it. Then
// they all meet in launch 8, which must not be disturbed by frames of launch 7.
TEST_P(CollectivesSuite, AnAbortedLaunchDoesNotAffectOtherLaunches) {
  if (n() < 2) GTEST_SKIP() << "needs 2 ranks";
  Make(absl::Seconds(60));
  for (uint64_t round = 0; round < 3; ++round) {
    const auto of_launch = [&](uint64_t launch) {
      CallKey key = Key(5);
      key.launch = launch;
      return key;
    };
    const auto sum = [&](int rank, const CallKey& key) {
      const std::vector<float> in(300'000, static_cast<float>(rank + 1));
      std::vector<float> out(in.size());
      const absl::Status status = cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                                          .rank = rank,
                                                          .group = All(),
                                                          .key = key,
                                                          .in = BytesOf(in),
                                                          .out = MutableBytesOf(out),
                                                          .reduce = ir::ReduceKind::kSum,
                                                          .dtype = ir::DType::kF32});
      if (status.ok()) {
        const float expected = static_cast<float>(n() * (n() + 1)) / 2;
        EXPECT_EQ(out.front(), expected);
        EXPECT_EQ(out.back(), expected);
      }
      return status;
    };
    const uint64_t first = 100 + 2 * round;
    const absl::Status why = MakeError(ErrorKind::kPeerFailed, "launch cancelled");
    const std::vector<absl::Status> ended = cluster_->Run(All(), [&](int rank) {
      if (rank < n() - 1) return sum(rank, of_launch(first));
      // Any executor may abort the launch, at any time.
      cluster_->of(round == 1 ? 0 : rank).AbortLaunch(first, why);
      return sum(rank, of_launch(first));
    });
    for (const absl::Status& status : ended) {
      EXPECT_EQ(ReasonOf(status), "PEER_FAILED");
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("launch cancelled"));
    }
    RunOk(All(), [&](int rank) { return sum(rank, of_launch(first + 1)); });
    // The launch stays ended.
    EXPECT_EQ(ReasonOf(sum(0, of_launch(first))), "PEER_FAILED");
  }
}

// A rank that was missing in one launch may come to the next.
TEST_P(CollectivesSuite, EveryExecutorHearsOfAFailedLaunch) {
  Make(absl::Seconds(60));
  for (const auto& executor : cluster_->executors)
    EXPECT_EQ(executor->LaunchFailure(9), absl::OkStatus());
  cluster_->of(0).AbortLaunch(9, MakeError(ErrorKind::kPeerAborted, "enough"));
  // A call of the launch ends when its executor has heard of the failure.
  CallKey failed = Key(0);
  failed.launch = 9;
  cluster_->Run(All(), [&](int rank) {
    return cluster_->of(rank).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = failed});
  });
  for (const auto& executor : cluster_->executors)
    EXPECT_THAT(std::string(executor->LaunchFailure(9).message()), ::testing::HasSubstr("enough"));
  EXPECT_EQ(ReasonOf(cluster_->of(0).LaunchFailure(9)), "PEER_ABORTED");
  // The failure of the communicator is not that of a launch.
  cluster_->of(0).Abort(MakeError(ErrorKind::kWorkerLost, "gone"));
  EXPECT_EQ(cluster_->of(0).LaunchFailure(10), absl::OkStatus());
}

TEST_P(CollectivesSuite, ATimeoutEndsOnlyItsLaunch) {
  if (n() < 2) GTEST_SKIP() << "needs 2 ranks";
  Make(absl::Milliseconds(1500));
  CallKey late = Key(0);
  late.launch = 50;
  std::vector<int> others = All();
  others.pop_back();
  for (const absl::Status& status : cluster_->Run(others, [&](int rank) {
         return cluster_->of(rank).Run(
             {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = late});
       })) {
    EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
  }
  RunOk(All(), [&](int rank) {
    return cluster_->of(rank).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = Key(1)});
  });
}

TEST_P(CollectivesSuite, AMismatchErrorDescribesBothCalls) {
  if (n() < 2) GTEST_SKIP() << "needs 2 ranks";
  struct Variant {
    std::string name;
    std::function<absl::Status(Collectives&, int rank, const std::vector<int>& group)> call;
    std::string expected_text;
  };
  const auto all_reduce = [](Collectives& c, int rank, const std::vector<int>& group, CallKey key,
                             size_t size, ir::ReduceKind reduce) {
    const std::vector<float> in(size, 1);
    std::vector<float> out(size);
    key.op = "psum at other.cc:9";
    return c.Run({.kind = ir::CollectiveKind::kAllReduce,
                  .rank = rank,
                  .group = group,
                  .key = key,
                  .in = BytesOf(in),
                  .out = MutableBytesOf(out),
                  .reduce = reduce,
                  .dtype = ir::DType::kF32});
  };
  const std::vector<Variant> variants = {
      {"sequence",
       [&](Collectives& c, int rank, const std::vector<int>& group) {
         return all_reduce(c, rank, group, Key(6), 8, ir::ReduceKind::kSum);
       },
       "psum at other.cc:9 (all_reduce sum f32, 32 bytes"},
      {"size",
       [&](Collectives& c, int rank, const std::vector<int>& group) {
         return all_reduce(c, rank, group, Key(5), 30000, ir::ReduceKind::kSum);
       },
       "psum at other.cc:9 (all_reduce sum f32, 120000 bytes"},
      {"reduction",
       [&](Collectives& c, int rank, const std::vector<int>& group) {
         return all_reduce(c, rank, group, Key(5), 8, ir::ReduceKind::kMax);
       },
       "psum at other.cc:9 (all_reduce max f32, 32 bytes"},
      {"kind",
       [&](Collectives& c, int rank, const std::vector<int>& group) {
         CallKey key = Key(5);
         key.op = "barrier at other.cc:9";
         return c.Run(
             {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = group, .key = key});
       },
       "barrier at other.cc:9 (barrier, 0 bytes"},
  };
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    Make(absl::Seconds(60));
    const std::vector<int> group = {0, n() - 1};
    const std::vector<absl::Status> results = cluster_->Run(group, [&](int rank) {
      if (rank != 0) return variant.call(cluster_->of(rank), rank, group);
      const std::vector<float> in(8, 1);
      std::vector<float> out(8);
      return cluster_->of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                     .rank = rank,
                                     .group = group,
                                     .key = Key(5),
                                     .in = BytesOf(in),
                                     .out = MutableBytesOf(out),
                                     .reduce = ir::ReduceKind::kSum,
                                     .dtype = ir::DType::kF32});
    });
    for (const absl::Status& status : results) {
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(
          std::string(status.message()),
          ::testing::AllOf(::testing::HasSubstr("made different calls"),
                           ::testing::HasSubstr(variant.expected_text),
                           ::testing::HasSubstr("psum at model.cc:41 (all_reduce sum f32, 32 "
                                                "bytes, 2 members, launch 7, op 5)")));
    }
    EXPECT_TRUE(ReasonOf(results[0]) == "INTERNAL" || ReasonOf(results[1]) == "INTERNAL");
  }
}

TEST_P(CollectivesSuite, InvalidArgumentsAreRefused) {
  struct Row {
    std::string what;
    std::function<absl::Status(Collectives&)> call;
  };
  std::vector<uint8_t> a(8 * n()), b(8 * n());
  const std::vector<int> all = All();
  const std::vector<Row> rows = {
      {"is not one of",
       [&](Collectives& c) {
         return c.Run({.kind = ir::CollectiveKind::kBarrier,
                       .rank = 0,
                       .group = std::vector<int>{0, n()},
                       .key = Key(0)});
       }},
      {"in the group twice",
       [&](Collectives& c) {
         return c.Run({.kind = ir::CollectiveKind::kBarrier,
                       .rank = 0,
                       .group = std::vector<int>{0, 0},
                       .key = Key(0)});
       }},
      {"is not in the group",
       [&](Collectives& c) {
         return c.Run({.kind = ir::CollectiveKind::kBarrier,
                       .rank = 0,
                       .group = std::vector<int>{},
                       .key = Key(0)});
       }},
      {"sizes do not fit",
       [&](Collectives& c) {
         return c.Run({.kind = ir::CollectiveKind::kAllGather,
                       .rank = 0,
                       .group = all,
                       .key = Key(0),
                       .in = BytesOf(a),
                       .out = MutableBytesOf(b).subspan(1)});
       }},
      {"sizes do not fit",
       [&](Collectives& c) {
         return c.Run({.kind = ir::CollectiveKind::kAllReduce,
                       .rank = 0,
                       .group = all,
                       .key = Key(0),
                       .in = BytesOf(a).first(3),
                       .out = MutableBytesOf(b).first(3),
                       .reduce = ir::ReduceKind::kSum,
                       .dtype = ir::DType::kF32});
       }},
      {"outside the group or repeats",
       [&](Collectives& c) {
         const std::vector<PermutePair> pairs = {{0, n()}};
         return c.Run({.kind = ir::CollectiveKind::kPermute,
                       .rank = 0,
                       .group = all,
                       .key = Key(0),
                       .in = BytesOf(a),
                       .out = MutableBytesOf(b),
                       .pairs = pairs});
       }},
      {"in and out overlap",
       [&](Collectives& c) {
         return c.Run({.kind = ir::CollectiveKind::kPermute,
                       .rank = 0,
                       .group = all,
                       .key = Key(0),
                       .in = BytesOf(a),
                       .out = MutableBytesOf(a)});
       }},
      {"in and out overlap",
       [&](Collectives& c) {
         return c.Run({.kind = ir::CollectiveKind::kAllReduce,
                       .rank = 0,
                       .group = all,
                       .key = Key(0),
                       .in = BytesOf(a).first(4),
                       .out = MutableBytesOf(a).subspan(2, 4),
                       .reduce = ir::ReduceKind::kSum,
                       .dtype = ir::DType::kU8});
       }},
  };
  for (const Row& row : rows) {
    Make(absl::Seconds(60));
    const absl::Status status = row.call(cluster_->of(0));
    EXPECT_EQ(ReasonOf(status), "INTERNAL") << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(row.what));
  }
}

TEST_P(CollectivesSuite, AnUndefinedReductionLeavesTheCommunicatorUsable) {
  std::vector<uint8_t> a(16), b(16);
  const auto reduce = [&](ir::ReduceKind kind, ir::DType dtype) {
    return cluster_->of(0).Run({.kind = ir::CollectiveKind::kAllReduce,
                                .rank = 0,
                                .group = All(),
                                .key = Key(0),
                                .in = BytesOf(a),
                                .out = MutableBytesOf(b),
                                .reduce = kind,
                                .dtype = dtype});
  };
  EXPECT_EQ(ReasonOf(reduce(ir::ReduceKind::kMax, ir::DType::kC64)), "TYPE_ERROR");
  EXPECT_EQ(ReasonOf(reduce(ir::ReduceKind::kAnd, ir::DType::kF32)), "TYPE_ERROR");
  EXPECT_EQ(ReasonOf(reduce(ir::ReduceKind::kSum, ir::DType::kF8E5M2)), "NOT_IMPLEMENTED");
  RunOk(All(), [&](int rank) {
    return cluster_->of(rank).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = All(), .key = Key(1)});
  });
}

}  // namespace tessera::worker
