// Tests of the table's communicators on the fake NCCL. Ranks are threads, or processes that run
// this test's program again. Every failure between ranks that the fake can produce is tested.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ir/dtype.h"
#include "worker/cuda/testing/device_fixture.h"
#include "worker/device/api_values.h"

namespace tessera::worker::cuda {
namespace {

using ir::DType;
using ir::ReduceKind;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr tessera_dtype kF32 = TESSERA_F32, kS32 = TESSERA_S32;
constexpr tessera_reduce kSum = TESSERA_SUM;

int Enqueue(tessera_comm* comm, tessera_stream* stream, const tessera_collective& collective) {
  return FakeDevices().collective(comm, stream, &collective);
}

// One rank: a device, and its end of a communicator. One thread uses it.
class Rank {
 public:
  Rank(const tessera_comm_id& id, int num_ranks, int rank, int device)
      : device_(device), rank_(rank) {
    created_ = api().comm_create(device_.context(), &id, num_ranks, rank, &comm_);
  }
  Rank(const tessera_comm_id& id, int num_ranks, int rank) : Rank(id, num_ranks, rank, rank) {}
  ~Rank() { Destroy(); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void Destroy() {
    if (comm_ != nullptr) api().comm_destroy(std::exchange(comm_, nullptr));
  }

  static const tessera_device_api& api() { return FakeDevices(); }
  int rank() const { return rank_; }
  int created() const { return created_; }
  TestDevice& device() { return device_; }
  tessera_comm* comm() const { return comm_; }
  tessera_stream* stream() const { return device_.stream(); }
  int AwaitReady() {
    return Poll([&] { return api().comm_ready(comm_); });
  }

  // Each of these functions enqueues one operation, and waits until NCCL has enqueued it.
  template <class T>
  int AllReduce(DType dtype, ReduceKind reduce, uint64_t in, uint64_t out, int64_t elements) {
    return WaitUntilIdle(Enqueue(comm_, stream(),
                                 {.kind = TESSERA_ALL_REDUCE,
                                  .dtype = device::ApiValue(dtype),
                                  .reduce = device::ApiValue(reduce),
                                  .source = -1,
                                  .target = -1,
                                  .in = in,
                                  .out = out,
                                  .elements = elements,
                                  .order = nullptr}));
  }
  int AllReduceF32(uint64_t in, uint64_t out, int64_t elements) {
    return WaitUntilIdle(Enqueue(comm_, stream(),
                                 {.kind = TESSERA_ALL_REDUCE,
                                  .dtype = kF32,
                                  .reduce = kSum,
                                  .source = -1,
                                  .target = -1,
                                  .in = in,
                                  .out = out,
                                  .elements = elements,
                                  .order = nullptr}));
  }
  int WaitUntilIdle(int code) { return code == TESSERA_NOT_READY ? AwaitReady() : code; }

 private:
  TestDevice device_;
  const int rank_;
  int created_ = TESSERA_OK;
  tessera_comm* comm_ = nullptr;
};

class CommTest : public FakesTest {
 protected:
  CommTest() { SetFake("devices", 4); }

  tessera_comm_id Id() {
    tessera_comm_id id = {};
    EXPECT_EQ(api().comm_id(&id), TESSERA_OK) << ErrorText();
    return id;
  }

  // Runs `body` on a thread for each rank, once the rank's communicator is ready.
  void OnRanks(int num_ranks, const std::function<void(Rank&)>& body) {
    const tessera_comm_id id = Id();
    std::vector<std::thread> threads;
    for (int i = 0; i < num_ranks; ++i) {
      threads.emplace_back([&, i] {
        Rank rank(id, num_ranks, i);
        ASSERT_EQ(rank.created(), TESSERA_NOT_READY) << ErrorText();
        ASSERT_EQ(rank.AwaitReady(), TESSERA_OK) << ErrorText();
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

// Returns the input of a rank. It differs for every rank and element, and is exact in every dtype.
template <class T>
std::vector<T> Input(int rank, int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>((i + 3 * rank) % 5 + 1);
  return values;
}

template <class T>
void CheckReduction(Rank& rank, int num_ranks, DType dtype, ReduceKind reduce, int64_t count,
                    const std::function<T(T, T)>& combine) {
  const uint64_t in = rank.device().Put(Input<T>(rank.rank(), count));
  const uint64_t out = rank.device().Allocate(count * sizeof(T));
  ASSERT_EQ(rank.AllReduce<T>(dtype, reduce, in, out, count), TESSERA_OK)
      << rank.api().error_text();
  std::vector<T> expected = Input<T>(0, count);
  for (int other = 1; other < num_ranks; ++other) {
    const std::vector<T> next = Input<T>(other, count);
    for (int64_t i = 0; i < count; ++i) expected[i] = combine(expected[i], next[i]);
  }
  EXPECT_EQ(rank.device().Get<T>(out, count), expected);
  // Reduces once more, in place.
  ASSERT_EQ(rank.AllReduce<T>(dtype, reduce, in, in, count), TESSERA_OK);
  EXPECT_EQ(rank.device().Get<T>(in, count), expected);
}

class EveryCollectiveTest : public CommTest, public ::testing::WithParamInterface<int> {};

TEST_P(EveryCollectiveTest, AllReduce) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    CheckReduction<float>(rank, n, DType::kF32, ReduceKind::kSum, 5, std::plus<float>());
    CheckReduction<float>(rank, n, DType::kF32, ReduceKind::kProd, 5, std::multiplies<float>());
    CheckReduction<double>(rank, n, DType::kF64, ReduceKind::kSum, 3, std::plus<double>());
    const auto max = [](auto a, auto b) { return a > b ? a : b; };
    const auto min = [](auto a, auto b) { return a < b ? a : b; };
    CheckReduction<int32_t>(rank, n, DType::kS32, ReduceKind::kSum, 7, std::plus<int32_t>());
    CheckReduction<int32_t>(rank, n, DType::kS32, ReduceKind::kMax, 7, max);
    CheckReduction<uint32_t>(rank, n, DType::kU32, ReduceKind::kMin, 7, min);
    CheckReduction<int64_t>(rank, n, DType::kS64, ReduceKind::kProd, 2, std::multiplies<int64_t>());
    CheckReduction<uint64_t>(rank, n, DType::kU64, ReduceKind::kMax, 2, max);
    CheckReduction<int8_t>(rank, n, DType::kS8, ReduceKind::kSum, 9, std::plus<int8_t>());
    CheckReduction<uint8_t>(rank, n, DType::kU8, ReduceKind::kMin, 9, min);
    // This is more than one chunk of the fake NCCL.
    CheckReduction<float>(rank, n, DType::kF32, ReduceKind::kSum, 50000, std::plus<float>());
  });
}

TEST_P(EveryCollectiveTest, AllReduceOfBF16) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    // The bits of 1, 2, 3, 4 are 0x3f80, 0x4000, 0x4040, 0x4080.
    const uint16_t values[] = {0x3f80, 0x4000, 0x4040, 0x4080};
    const uint64_t in = rank.device().Put<uint16_t>({values[rank.rank()]});
    ASSERT_EQ(rank.AllReduce<uint16_t>(DType::kBF16, ReduceKind::kSum, in, in, 1), TESSERA_OK);
    const uint16_t sums[] = {0x3f80, 0x4040, 0x40c0, 0x4120};
    EXPECT_THAT(rank.device().Get<uint16_t>(in, 1), ElementsAre(sums[n - 1]));
  });
}

TEST_P(EveryCollectiveTest, AllReduceOfBools) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    // The bools are true at every rank, at one rank, and at no rank.
    const std::vector<uint8_t> bools = {1, static_cast<uint8_t>(rank.rank() == 0), 0};
    const uint8_t one = n == 1;
    const std::pair<ReduceKind, std::vector<uint8_t>> rows[] = {
        {ReduceKind::kAnd, {1, one, 0}},  {ReduceKind::kMin, {1, one, 0}},
        {ReduceKind::kProd, {1, one, 0}}, {ReduceKind::kOr, {1, 1, 0}},
        {ReduceKind::kMax, {1, 1, 0}},    {ReduceKind::kSum, {1, 1, 0}}};
    for (const auto& [reduce, expected] : rows) {
      const uint64_t in = rank.device().Put(bools);
      ASSERT_EQ(rank.AllReduce<uint8_t>(DType::kBool, reduce, in, in, 3), TESSERA_OK);
      EXPECT_EQ(rank.device().Get<uint8_t>(in, 3), expected);
    }
  });
}

TEST_P(EveryCollectiveTest, AllGatherOfEveryWidth) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    for (const DType dtype : {DType::kBool, DType::kS8, DType::kU16, DType::kS16, DType::kBF16,
                              DType::kF16, DType::kU32, DType::kF32, DType::kS64, DType::kF64,
                              DType::kC64, DType::kC128, DType::kF8E5M2}) {
      const int64_t width =
          dtype == DType::kC128                                                     ? 16
          : dtype == DType::kS64 || dtype == DType::kF64 || dtype == DType::kC64    ? 8
          : dtype == DType::kU32 || dtype == DType::kF32                            ? 4
          : dtype == DType::kBool || dtype == DType::kS8 || dtype == DType::kF8E5M2 ? 1
                                                                                    : 2;
      const int64_t bytes = 3 * width;
      const uint64_t in = rank.device().Put(Input<uint8_t>(rank.rank(), bytes));
      const uint64_t out = rank.device().Allocate(n * bytes);
      ASSERT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                           {.kind = TESSERA_ALL_GATHER,
                                            .dtype = device::ApiValue(dtype),
                                            .reduce = TESSERA_SUM,
                                            .source = -1,
                                            .target = -1,
                                            .in = in,
                                            .out = out,
                                            .elements = 3,
                                            .order = nullptr})),
                TESSERA_OK)
          << rank.api().error_text();
      std::vector<uint8_t> expected;
      for (int other = 0; other < n; ++other) {
        const std::vector<uint8_t> part = Input<uint8_t>(other, bytes);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_EQ(rank.device().Get<uint8_t>(out, n * bytes), expected);
    }
  });
}

TEST_P(EveryCollectiveTest, ReduceScatter) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    const uint64_t in = rank.device().Put(Input<float>(rank.rank(), 3 * n));
    const uint64_t out = rank.device().Allocate(12);
    ASSERT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                         {.kind = TESSERA_REDUCE_SCATTER,
                                          .dtype = kF32,
                                          .reduce = kSum,
                                          .source = -1,
                                          .target = -1,
                                          .in = in,
                                          .out = out,
                                          .elements = 3,
                                          .order = nullptr})),
              TESSERA_OK);
    std::vector<float> expected(3);
    for (int other = 0; other < n; ++other) {
      for (int i = 0; i < 3; ++i) expected[i] += Input<float>(other, 3 * n)[3 * rank.rank() + i];
    }
    EXPECT_EQ(rank.device().Get<float>(out, 3), expected);
  });
}

TEST_P(EveryCollectiveTest, AllToAll) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    // The blocks are so large that sending all before receiving any would never end.
    constexpr int64_t kPart = 40000;
    const uint64_t in = rank.device().Put(Input<int32_t>(rank.rank(), kPart * n));
    const uint64_t out = rank.device().Allocate(kPart * n * 4);
    ASSERT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                         {.kind = TESSERA_ALL_TO_ALL,
                                          .dtype = kS32,
                                          .reduce = TESSERA_SUM,
                                          .source = -1,
                                          .target = -1,
                                          .in = in,
                                          .out = out,
                                          .elements = kPart,
                                          .order = nullptr})),
              TESSERA_OK);
    std::vector<int32_t> expected;
    for (int other = 0; other < n; ++other) {
      const std::vector<int32_t> theirs = Input<int32_t>(other, kPart * n);
      const auto begin = theirs.begin() + rank.rank() * kPart;
      expected.insert(expected.end(), begin, begin + kPart);
    }
    EXPECT_EQ(rank.device().Get<int32_t>(out, kPart * n), expected);
  });
}

TEST_P(EveryCollectiveTest, SendReceive) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    const int next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
    const uint64_t in = rank.device().Put<int32_t>({rank.rank(), 100 + rank.rank()});
    const uint64_t out = rank.device().Put<int32_t>({-1, -1});
    const auto send_receive = [&](int target, int source) {
      return rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                        {.kind = TESSERA_PERMUTE,
                                         .dtype = kS32,
                                         .reduce = TESSERA_SUM,
                                         .source = source,
                                         .target = target,
                                         .in = in,
                                         .out = out,
                                         .elements = 2,
                                         .order = nullptr}));
    };
    ASSERT_EQ(send_receive(next, before), TESSERA_OK);
    EXPECT_THAT(rank.device().Get<int32_t>(out, 2), ElementsAre(before, 100 + before));
    // Only the first rank sends, to the last one. The others neither send nor receive.
    const bool first = rank.rank() == 0, last = rank.rank() == n - 1;
    ASSERT_EQ(send_receive(first ? n - 1 : -1, last ? 0 : -1), TESSERA_OK);
    const int expected = last ? 0 : before;
    EXPECT_THAT(rank.device().Get<int32_t>(out, 2), ElementsAre(expected, 100 + expected));
  });
}

TEST_P(EveryCollectiveTest, OfZeroElements) {
  OnRanks(GetParam(), [](Rank& rank) {
    EXPECT_EQ(rank.AllReduceF32(0, 0, 0), TESSERA_OK);
    EXPECT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                         {.kind = TESSERA_ALL_TO_ALL,
                                          .dtype = kF32,
                                          .reduce = TESSERA_SUM,
                                          .source = -1,
                                          .target = -1,
                                          .in = 0,
                                          .out = 0,
                                          .elements = 0,
                                          .order = nullptr})),
              TESSERA_OK);
    EXPECT_EQ(rank.device().Sync(), TESSERA_OK);
    EXPECT_EQ(rank.AllReduceF32(0, 0, -1), TESSERA_INVALID);
    EXPECT_THAT(rank.api().error_text(), HasSubstr("all_reduce: -1 elements"));
  });
}

TEST_P(EveryCollectiveTest, RecordedInAGraph) {
  const int n = GetParam();
  OnRanks(n, [n](Rank& rank) {
    const uint64_t value = rank.device().Put<int32_t>({1});
    ASSERT_EQ(rank.api().graph_begin(rank.stream()), TESSERA_OK);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(rank.AllReduce<int32_t>(DType::kS32, ReduceKind::kSum, value, value, 1),
                TESSERA_OK);
    }
    tessera_graph* graph = nullptr;
    ASSERT_EQ(rank.api().graph_end(rank.stream(), &graph), TESSERA_OK) << rank.api().error_text();
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(rank.api().graph_launch(rank.stream(), graph), TESSERA_OK);
    }
    EXPECT_THAT(rank.device().Get<int32_t>(value, 1), ElementsAre(n * n * n * n));
    rank.api().graph_destroy(graph);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryCollectiveTest, ::testing::Values(1, 2, 4));

TEST_F(CommTest, ReductionsThatNcclLacksAreUnsupported) {
  OnRanks(1, [](Rank& rank) {
    const auto try_it = [&](DType dtype, ReduceKind reduce) {
      return Enqueue(rank.comm(), rank.stream(),
                     {.kind = TESSERA_ALL_REDUCE,
                      .dtype = device::ApiValue(dtype),
                      .reduce = device::ApiValue(reduce),
                      .source = -1,
                      .target = -1,
                      .in = 0,
                      .out = 0,
                      .elements = 1,
                      .order = nullptr});
    };
    const auto text = [&] { return std::string(rank.api().error_text()); };
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      EXPECT_EQ(try_it(dtype, ReduceKind::kMax), TESSERA_UNSUPPORTED);
      EXPECT_THAT(text(), HasSubstr("drops NaNs; gather and reduce instead"));
      EXPECT_EQ(try_it(dtype, ReduceKind::kMin), TESSERA_UNSUPPORTED);
    }
    EXPECT_EQ(try_it(DType::kS32, ReduceKind::kAnd), TESSERA_UNSUPPORTED);
    EXPECT_EQ(try_it(DType::kU8, ReduceKind::kOr), TESSERA_UNSUPPORTED);
    EXPECT_THAT(text(), HasSubstr("no bitwise operations"));
    EXPECT_EQ(try_it(DType::kC64, ReduceKind::kProd), TESSERA_UNSUPPORTED);
    EXPECT_EQ(try_it(DType::kC64, ReduceKind::kMax), TESSERA_UNSUPPORTED);
    EXPECT_EQ(try_it(DType::kS16, ReduceKind::kSum), TESSERA_UNSUPPORTED);
    EXPECT_EQ(try_it(DType::kF8E4M3FN, ReduceKind::kSum), TESSERA_UNSUPPORTED);
    EXPECT_THAT(text(), HasSubstr("does not compute with it"));
    EXPECT_EQ(Enqueue(rank.comm(), rank.stream(),
                      {.kind = TESSERA_ALL_REDUCE,
                       .dtype = 99,
                       .reduce = kSum,
                       .source = -1,
                       .target = -1,
                       .in = 0,
                       .out = 0,
                       .elements = 1,
                       .order = nullptr}),
              TESSERA_INVALID);
    EXPECT_EQ(Enqueue(rank.comm(), rank.stream(),
                      {.kind = TESSERA_ALL_REDUCE,
                       .dtype = kF32,
                       .reduce = 6,
                       .source = -1,
                       .target = -1,
                       .in = 0,
                       .out = 0,
                       .elements = 1,
                       .order = nullptr}),
              TESSERA_INVALID);
    // Complex sums are sums of their parts.
    const uint64_t in = rank.device().Put<float>({1, 2});
    EXPECT_EQ(rank.AllReduce<float>(DType::kC64, ReduceKind::kSum, in, in, 1), TESSERA_OK);
    EXPECT_THAT(rank.device().Get<float>(in, 2), ElementsAre(1, 2));
    EXPECT_EQ(Enqueue(rank.comm(), rank.stream(),
                      {.kind = TESSERA_PERMUTE,
                       .dtype = kF32,
                       .reduce = TESSERA_SUM,
                       .source = -1,
                       .target = 1,
                       .in = 0,
                       .out = 0,
                       .elements = 1,
                       .order = nullptr}),
              TESSERA_INVALID);
    EXPECT_THAT(text(), HasSubstr("peer 1; expected -1 or a rank below 1"));
  });
}

TEST_F(CommTest, ACommunicatorIsNotReadyBeforeAllRanksJoin) {
  const tessera_comm_id id = Id();
  Rank first(id, 2, 0);
  ASSERT_EQ(first.created(), TESSERA_NOT_READY);
  EXPECT_EQ(api().comm_ready(first.comm()), TESSERA_NOT_READY);
  const uint64_t value = first.device().Put<float>({1});
  EXPECT_EQ(Enqueue(first.comm(), first.stream(),
                    {.kind = TESSERA_ALL_REDUCE,
                     .dtype = kF32,
                     .reduce = kSum,
                     .source = -1,
                     .target = -1,
                     .in = value,
                     .out = value,
                     .elements = 1,
                     .order = nullptr}),
            TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("ncclCommInitRank is still under way; ask comm_ready first"));
  std::thread([&] {
    Rank second(id, 2, 1);
    EXPECT_EQ(second.AwaitReady(), TESSERA_OK);
    const uint64_t mine = second.device().Put<float>({2});
    EXPECT_EQ(first.AwaitReady(), TESSERA_OK);
    EXPECT_EQ(second.AllReduceF32(mine, mine, 1), TESSERA_OK);
    EXPECT_EQ(first.AllReduceF32(value, value, 1), TESSERA_OK);
    EXPECT_THAT(second.device().Get<float>(mine, 1), ElementsAre(3));
  }).join();
  EXPECT_THAT(first.device().Get<float>(value, 1), ElementsAre(3));
}

TEST_F(CommTest, ACallMayBeInProgressForSeveralPolls) {
  SetFake("nccl_init_polls", 3);
  SetFake("nccl_in_progress_polls", 3);
  Rank rank(Id(), 1, 0);
  ASSERT_EQ(rank.AwaitReady(), TESSERA_OK);
  const uint64_t value = rank.device().Put<float>({4});
  ASSERT_EQ(Enqueue(rank.comm(), rank.stream(),
                    {.kind = TESSERA_ALL_REDUCE,
                     .dtype = kF32,
                     .reduce = kSum,
                     .source = -1,
                     .target = -1,
                     .in = value,
                     .out = value,
                     .elements = 1,
                     .order = nullptr}),
            TESSERA_NOT_READY);
  EXPECT_EQ(api().comm_ready(rank.comm()), TESSERA_NOT_READY);
  EXPECT_EQ(Enqueue(rank.comm(), rank.stream(),
                    {.kind = TESSERA_ALL_REDUCE,
                     .dtype = kF32,
                     .reduce = kSum,
                     .source = -1,
                     .target = -1,
                     .in = value,
                     .out = value,
                     .elements = 1,
                     .order = nullptr}),
            TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("all_reduce is still under way"));
  EXPECT_EQ(rank.AwaitReady(), TESSERA_OK);
  EXPECT_EQ(Enqueue(rank.comm(), rank.stream(),
                    {.kind = TESSERA_PERMUTE,
                     .dtype = kF32,
                     .reduce = TESSERA_SUM,
                     .source = 0,
                     .target = 0,
                     .in = value,
                     .out = value,
                     .elements = 0,
                     .order = nullptr}),
            TESSERA_NOT_READY);
  EXPECT_EQ(rank.AwaitReady(), TESSERA_OK);
  EXPECT_THAT(rank.device().Get<float>(value, 1), ElementsAre(4));
}

TEST_F(CommTest, InvalidRanksAreRefused) {
  TestDevice device(0);
  const tessera_comm_id id = Id();
  tessera_comm* comm = nullptr;
  EXPECT_EQ(api().comm_create(device.context(), &id, 2, 2, &comm), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("comm_create: rank 2 of 2; expected one from 0 to 1"));
  EXPECT_EQ(api().comm_create(device.context(), &id, 0, 0, &comm), TESSERA_INVALID);
  EXPECT_EQ(api().comm_create(device.context(), &id, 2, -1, &comm), TESSERA_INVALID);
}

TEST_F(CommTest, TwoRanksOnOneDeviceAreRefused) {
  const tessera_comm_id id = Id();
  Rank first(id, 2, 0, /*device=*/1), second(id, 2, 1, /*device=*/1);
  EXPECT_EQ(first.AwaitReady(), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("Duplicate GPU detected: rank 0 and rank 1 both on device 1"));
  EXPECT_EQ(second.AwaitReady(), TESSERA_INVALID);
}

TEST_F(CommTest, AFailedInitFailsTheCommunicator) {
  SetFake("nccl_init_error_at", 1);
  Rank rank(Id(), 1, 0);
  EXPECT_EQ(rank.AwaitReady(), TESSERA_PEER);
  EXPECT_THAT(ErrorText(), AllOf(HasSubstr("ncclCommInitRank, rank 0 of 1"),
                                 HasSubstr("unhandled system error")));
  EXPECT_EQ(rank.AwaitReady(), TESSERA_PEER);
}

// Rank 1 fails, and both ranks see it. Then the devices get a new communicator.
TEST_F(CommTest, AnAsynchronousErrorEndsOnlyTheCommunicator) {
  SetFake("nccl_fault_rank", 1);
  SetFake("nccl_error_at", 1);
  const tessera_comm_id id = Id(), next_id = Id();
  const auto on_rank = [&](int i) {
    Rank rank(id, 2, i);
    ASSERT_EQ(rank.AwaitReady(), TESSERA_OK);
    const uint64_t value = rank.device().Put<float>({1});
    ASSERT_EQ(rank.AllReduceF32(value, value, 1), TESSERA_OK);
    // Rank 1 has the error. Rank 0 learns of it when rank 1 aborts.
    const int code = Poll([&] {
      const int state = rank.api().comm_ready(rank.comm());
      return state == TESSERA_OK ? TESSERA_NOT_READY : state;
    });
    EXPECT_EQ(code, TESSERA_PEER);
    const std::string text = rank.api().error_text();
    EXPECT_THAT(text, i == 1 ? HasSubstr("rank 1 of 2: remote process exited")
                             : HasSubstr("rank 1 has aborted"));
    EXPECT_EQ(rank.AllReduceF32(value, value, 1), TESSERA_PEER);
    EXPECT_EQ(rank.api().error_text(), text) << "the first failure is kept";
    EXPECT_EQ(rank.api().comm_abort(rank.comm()), TESSERA_OK);
    EXPECT_EQ(rank.api().comm_abort(rank.comm()), TESSERA_OK) << "once more does nothing";
    EXPECT_EQ(rank.AwaitReady(), TESSERA_PEER);
    EXPECT_EQ(rank.device().Sync(), TESSERA_OK) << "the stream goes on";
    tessera_comm* next = nullptr;
    ASSERT_EQ(rank.api().comm_create(rank.device().context(), &next_id, 2, i, &next),
              TESSERA_NOT_READY);
    ASSERT_EQ(Poll([&] { return rank.api().comm_ready(next); }), TESSERA_OK);
    const uint64_t again = rank.device().Put<float>({1});
    ASSERT_EQ(Enqueue(next, rank.stream(),
                      {.kind = TESSERA_ALL_REDUCE,
                       .dtype = kF32,
                       .reduce = kSum,
                       .source = -1,
                       .target = -1,
                       .in = again,
                       .out = again,
                       .elements = 1,
                       .order = nullptr}),
              TESSERA_OK);
    EXPECT_THAT(rank.device().Get<float>(again, 1), ElementsAre(2));
    rank.api().comm_destroy(next);
  };
  std::thread other(on_rank, 1);
  on_rank(0);
  other.join();
}

TEST_F(CommTest, AStalledRankStallsTheOthersUntilTheyAbort) {
  SetFake("nccl_fault_rank", 1);
  SetFake("nccl_stall_at", 1);
  const tessera_comm_id id = Id();
  const auto on_rank = [&](int i) {
    Rank rank(id, 2, i);
    ASSERT_EQ(rank.AwaitReady(), TESSERA_OK);
    const uint64_t value = rank.device().Put<float>({1});
    ASSERT_EQ(rank.AllReduceF32(value, value, 1), TESSERA_OK);
    tessera_event* event = nullptr;
    ASSERT_EQ(rank.api().event_create(rank.device().context(), &event), TESSERA_OK);
    ASSERT_EQ(rank.api().event_record(event, rank.stream()), TESSERA_OK);
    EXPECT_EQ(rank.api().event_query(event), TESSERA_NOT_READY);
    EXPECT_EQ(rank.api().comm_ready(rank.comm()), TESSERA_OK) << "NCCL knows no deadline";
    EXPECT_EQ(rank.api().comm_abort(rank.comm()), TESSERA_OK);
    EXPECT_EQ(Poll([&] { return rank.api().event_query(event); }), TESSERA_OK);
    EXPECT_EQ(rank.AllReduceF32(value, value, 1), TESSERA_PEER);
    EXPECT_THAT(rank.api().error_text(), HasSubstr("was aborted; make a new one"));
    rank.api().event_destroy(event);
  };
  std::thread other(on_rank, 1);
  on_rank(0);
  other.join();
}

TEST_F(CommTest, AbortMayBeCalledDuringAnotherCall) {
  const tessera_comm_id id = Id();
  Rank rank(id, 2, 0);
  std::atomic<bool> polling{false};
  std::thread aborting([&] {
    EXPECT_EQ(Poll([&] { return polling ? TESSERA_OK : TESSERA_NOT_READY; }), TESSERA_OK);
    EXPECT_EQ(api().comm_abort(rank.comm()), TESSERA_OK);
  });
  EXPECT_EQ(Poll([&] {
              const int code = api().comm_ready(rank.comm());
              polling = true;
              return code;
            }),
            TESSERA_PEER);
  EXPECT_THAT(ErrorText(), HasSubstr("was aborted; make a new one"));
  aborting.join();
}

TEST_F(CommTest, AnAbortThatHangsBlocksNoOtherDevice) {
  Rank rank(Id(), 1, 0);
  ASSERT_EQ(rank.AwaitReady(), TESSERA_OK);
  SetFake("nccl_abort_hangs", 1);
  std::atomic<bool> ended{false};
  std::thread aborting([&] {
    EXPECT_EQ(rank.api().comm_abort(rank.comm()), TESSERA_OK);
    ended = true;
  });
  // Other devices go on meanwhile.
  TestDevice other(1);
  EXPECT_THAT(other.Get<int32_t>(other.Put<int32_t>({7}), 1), ElementsAre(7));
  EXPECT_FALSE(ended);
  SetFake("nccl_abort_hangs", 0);
  aborting.join();
}

TEST_F(CommTest, DestroyDoesNotWaitAndEnqueuedWorkGoesOn) {
  OnRanks(2, [](Rank& rank) {
    tessera_module* module = rank.device().Load();
    const uint64_t value = rank.device().Put<float>({1});
    ASSERT_EQ(rank.device().Launch(module, "gate", {}), TESSERA_OK);
    ASSERT_EQ(rank.AllReduceF32(value, value, 1), TESSERA_OK);
    rank.Destroy();
    SetFake("gate", 1);
    EXPECT_THAT(rank.device().Get<float>(value, 1), ElementsAre(2));
    rank.api().module_unload(module);
  });
}

// Waits until the communicator fails, and destroys it without an abort.
void FailAndDestroy(TestDevice& device) {
  const tessera_device_api& api = FakeDevices();
  tessera_comm_id id = {};
  ASSERT_EQ(api.comm_id(&id), TESSERA_OK) << api.error_text();
  SetFake("nccl_error_at", 1);
  Rank rank(id, 1, 0);
  ASSERT_EQ(rank.AwaitReady(), TESSERA_OK);
  // The memory is not freed, because nobody knows when the operation stops using it.
  uint64_t value = 0;
  ASSERT_EQ(api.allocate(device.context(), 4, &value), TESSERA_OK);
  ASSERT_EQ(rank.AllReduceF32(value, value, 1), TESSERA_OK);
  EXPECT_EQ(Poll([&] {
              const int state = api.comm_ready(rank.comm());
              return state == TESSERA_OK ? TESSERA_NOT_READY : state;
            }),
            TESSERA_PEER);
}

TEST_F(CommTest, AFailedCommunicatorIsDestroyedWithoutAnAbort) {
  TestDevice device(0);
  FailAndDestroy(device);
  EXPECT_THAT(device.Get<int32_t>(device.Put<int32_t>({7}), 1), ElementsAre(7));
}

TEST_F(CommTest, ALostContextIsReportedAsLost) {
  Rank rank(Id(), 1, 0);
  ASSERT_EQ(rank.AwaitReady(), TESSERA_OK);
  tessera_module* module = rank.device().Load();
  const uint64_t value = rank.device().Put<float>({1});
  SetFake("sticky_at", 1);
  ASSERT_EQ(rank.device().Launch(module, "gate", {}), TESSERA_OK);
  EXPECT_EQ(Poll([&] {
              const int code = rank.AllReduceF32(value, value, 1);
              return code == TESSERA_OK ? TESSERA_NOT_READY : code;
            }),
            TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  rank.api().module_unload(module);
}

// Ranks that are processes: they run this test's program again, and the environment tells them
// their task.

constexpr char kChildRank[] = "TESSERA_TEST_CHILD_RANK", kChildId[] = "TESSERA_TEST_CHILD_ID";

std::string ToHex(const tessera_comm_id& id) {
  std::string text;
  for (const char byte : id.bytes) {
    const char* digits = "0123456789abcdef";
    text += digits[(byte >> 4) & 15];
    text += digits[byte & 15];
  }
  return text;
}
tessera_comm_id FromHex(const std::string& text) {
  tessera_comm_id id = {};
  for (size_t i = 0; i < sizeof id.bytes; ++i) {
    id.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

class Child {
 public:
  // Runs the disabled test `test` of this program in a process of its own.
  Child(const std::string& test, const std::vector<std::pair<std::string, std::string>>& env) {
    const std::string filter = "--gtest_filter=" + test;
    std::vector<std::string> variables;
    for (const auto& [name, value] : env) variables.push_back(name + "=" + value);
    std::vector<char*> envp;
    for (std::string& variable : variables) envp.push_back(variable.data());
    for (char** variable = environ; *variable != nullptr; ++variable) envp.push_back(*variable);
    envp.push_back(nullptr);
    const char* argv[] = {"child", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr};
    // After the fork the child only calls exec, because this process has threads.
    pid_ = fork();
    if (pid_ == 0) {
      execve("/proc/self/exe", const_cast<char**>(argv), envp.data());
      _exit(127);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { Wait(); }
  // Returns the status of waitpid.
  int Wait() {
    if (pid_ > 0) waitpid(std::exchange(pid_, -1), &status_, 0);
    return status_;
  }

 private:
  pid_t pid_ = -1;
  int status_ = -1;
};

// Runs each kind of collective once on a communicator of two ranks, and a large all-reduce at the
// end. Both processes of the test call it, each for its own rank, so every expectation is written
// for either rank.
void EveryCollectiveOnce(Rank& rank) {
  const int r = rank.rank();
  const tessera_device_api& api = rank.api();
  ASSERT_EQ(rank.AwaitReady(), TESSERA_OK) << api.error_text();
  TestDevice& device = rank.device();
  const uint64_t in = device.Put<float>({1.0f + r, 10.0f + r}), out = device.Allocate(64);
  ASSERT_EQ(rank.AllReduceF32(in, out, 2), TESSERA_OK) << api.error_text();
  EXPECT_THAT(device.Get<float>(out, 2), ElementsAre(3, 21));
  ASSERT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                       {.kind = TESSERA_ALL_GATHER,
                                        .dtype = kF32,
                                        .reduce = TESSERA_SUM,
                                        .source = -1,
                                        .target = -1,
                                        .in = in,
                                        .out = out,
                                        .elements = 2,
                                        .order = nullptr})),
            TESSERA_OK);
  EXPECT_THAT(device.Get<float>(out, 4), ElementsAre(1, 10, 2, 11));
  ASSERT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                       {.kind = TESSERA_REDUCE_SCATTER,
                                        .dtype = kF32,
                                        .reduce = kSum,
                                        .source = -1,
                                        .target = -1,
                                        .in = in,
                                        .out = out,
                                        .elements = 1,
                                        .order = nullptr})),
            TESSERA_OK);
  EXPECT_THAT(device.Get<float>(out, 1), ElementsAre(r == 0 ? 3 : 21));
  ASSERT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                       {.kind = TESSERA_ALL_TO_ALL,
                                        .dtype = kF32,
                                        .reduce = TESSERA_SUM,
                                        .source = -1,
                                        .target = -1,
                                        .in = in,
                                        .out = out,
                                        .elements = 1,
                                        .order = nullptr})),
            TESSERA_OK);
  EXPECT_THAT(device.Get<float>(out, 2), r == 0 ? ElementsAre(1, 2) : ElementsAre(10, 11));
  ASSERT_EQ(rank.WaitUntilIdle(Enqueue(rank.comm(), rank.stream(),
                                       {.kind = TESSERA_PERMUTE,
                                        .dtype = kF32,
                                        .reduce = TESSERA_SUM,
                                        .source = 1 - r,
                                        .target = 1 - r,
                                        .in = in,
                                        .out = out,
                                        .elements = 2,
                                        .order = nullptr})),
            TESSERA_OK);
  EXPECT_THAT(device.Get<float>(out, 2), r == 0 ? ElementsAre(2, 11) : ElementsAre(1, 10));
  const int64_t large = 1 << 20;
  const uint64_t many = device.Put(std::vector<float>(large, r + 1));
  ASSERT_EQ(rank.AllReduceF32(many, many, large), TESSERA_OK);
  EXPECT_THAT(device.Get<float>(many, large), Each(3.0f));
}

TEST_F(CommTest, TwoProcessesRunEveryCollective) {
  const tessera_comm_id id = Id();
  Child child("CommChild.DISABLED_EveryCollectiveOnce", {{kChildRank, "1"}, {kChildId, ToHex(id)}});
  {
    Rank rank(id, 2, 0);
    EveryCollectiveOnce(rank);
  }
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(CommTest, AProcessThatDiesIsNamed) {
  const tessera_comm_id id = Id();
  Child child(
      "CommChild.DISABLED_EveryCollectiveOnce",
      {{kChildRank, "1"}, {kChildId, ToHex(id)}, {"TESSERA_FAKE", "devices=4,nccl_die_at=1"}});
  Rank rank(id, 2, 0);
  ASSERT_EQ(rank.AwaitReady(), TESSERA_OK) << ErrorText();
  const uint64_t value = rank.device().Put<float>({1, 2});
  ASSERT_EQ(rank.AllReduceF32(value, value, 2), TESSERA_OK);
  EXPECT_EQ(Poll([&] {
              const int state = rank.api().comm_ready(rank.comm());
              return state == TESSERA_OK ? TESSERA_NOT_READY : state;
            }),
            TESSERA_PEER);
  EXPECT_THAT(ErrorText(), HasSubstr("rank 1 has died"));
  EXPECT_EQ(api().comm_abort(rank.comm()), TESSERA_OK);
  EXPECT_EQ(rank.device().Sync(), TESSERA_OK);
  const int status = child.Wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST_F(CommTest, WithoutNcclTheRestWorks) {
  Child child("CommChild.DISABLED_WithoutNccl", {});
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(CommTest, AnOldNcclIsRefused) {
  Child child("CommChild.DISABLED_OldNccl", {{"TESSERA_FAKE", "nccl_version=21703"}});
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(CommTest, AnNcclWithoutRevokeIsUsed) {
  Child child("CommChild.DISABLED_OlderNccl", {{"TESSERA_FAKE", "nccl_version=22703"}});
  EXPECT_EQ(child.Wait(), 0);
}

// The tasks of the child processes. The tests above run them.

TEST(CommChild, DISABLED_EveryCollectiveOnce) {
  ASSERT_NE(getenv(kChildRank), nullptr);
  Rank rank(FromHex(getenv(kChildId)), 2, std::stoi(getenv(kChildRank)));
  EveryCollectiveOnce(rank);
}

TEST(CommChild, DISABLED_WithoutNccl) {
  TestDevice device(0);
  setenv("TESSERA_CUDA_NCCL", "libnonccl.so.2", 1);
  tessera_comm_id id = {};
  const tessera_device_api& api = FakeDevices();
  EXPECT_EQ(api.comm_id(&id), TESSERA_UNSUPPORTED);
  EXPECT_THAT(api.error_text(), AllOf(HasSubstr("no NCCL, so no collectives between GPUs: "
                                                "libnonccl.so.2: cannot open"),
                                      HasSubstr("install libnccl2")));
  tessera_comm* comm = nullptr;
  EXPECT_EQ(api.comm_create(device.context(), &id, 1, 0, &comm), TESSERA_UNSUPPORTED);
  EXPECT_THAT(device.Get<int32_t>(device.Put<int32_t>({7}), 1), ElementsAre(7));
}

TEST(CommChild, DISABLED_OldNccl) {
  tessera_comm_id id = {};
  EXPECT_EQ(FakeDevices().comm_id(&id), TESSERA_UNSUPPORTED);
  EXPECT_THAT(FakeDevices().error_text(),
              AllOf(HasSubstr("is too old: it is version 2.17; install 2.18 or newer")));
}

TEST(CommChild, DISABLED_OlderNccl) {
  // This NCCL has no ncclCommRevoke, so the communicator is left until the process ends.
  TestDevice device(0);
  FailAndDestroy(device);
  EXPECT_THAT(device.Get<int32_t>(device.Put<int32_t>({7}), 1), ElementsAre(7));
}

}  // namespace
}  // namespace tessera::worker::cuda
