#include "worker/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "worker/cpu/dot.h"
#include "worker/cpu/memory_bound.h"
#include "worker/cpu/onednn_matmul.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::Builder;
using ir::DType;
using ::testing::HasSubstr;

Array Random(DType dtype, ir::Dims shape, int seed) {
  std::mt19937 gen(seed);
  Array a(dtype, std::move(shape));
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    a.Set(i, static_cast<double>(static_cast<int32_t>(gen())) / 2147483648.0);
  }
  return a;
}

struct DotCase {
  const char* name;
  DType dtype;
  ir::Dims lhs, rhs;
  ir::DotDims dims;
};
void PrintTo(const DotCase& c, std::ostream* os) { *os << c.name; }

class DotTest : public ::testing::TestWithParam<DotCase> {};

// The hook must take the product, and agree with the evaluator within the bound of a reordered sum.
TEST_P(DotTest, OneDnnAgreesWithTheEvaluator) {
  const DotCase& c = GetParam();
  Builder b({});
  ir::FunctionRef f;
  ASSERT_THAT(CatchStatus([&] {
                ir::Value x = b.Param(ir::MakeType(c.dtype, c.lhs));
                ir::Value y = b.Param(ir::MakeType(c.dtype, c.rhs));
                f = b.Build({{ir::DotGeneral(x, y, c.dims)}});
              }),
              IsOk());
  const std::vector<Array> in = {Random(c.dtype, c.lhs, 1), Random(c.dtype, c.rhs, 2)};
  const ir::Op& dot = f->ops.back();
  ASSERT_EQ(dot.def->name, "dot_general");
  OneDnnMatmul matmul;
  const std::optional<Array> got = DotGeneral(matmul, dot, f->type(f->results[0]), in);
  if (c.dtype == DType::kBF16 && !got) GTEST_SKIP() << "oneDNN has no bf16 on this CPU";
  ASSERT_TRUE(got.has_value());
  TESSERA_ASSERT_OK_AND_ASSIGN(std::vector<Array> want, ir::Evaluate(*f, in));
  ASSERT_EQ(got->shape(), want[0].shape());
  int64_t k = 1;
  for (int64_t d : c.dims.lhs_contract) k *= c.lhs[d];
  const double eps = c.dtype == DType::kBF16 ? std::pow(2.0, -8) : std::pow(2.0, -23);
  for (int64_t i = 0; i < got->num_elements(); ++i) {
    // |sum| <= k here, every term being at most 1.
    const double bound = c.dtype == DType::kBF16
                             ? eps * (std::abs(want[0].At(i)) + k * std::pow(2.0, -20))
                             : eps * static_cast<double>(k * k);
    ASSERT_NEAR(got->At(i), want[0].At(i), bound) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DotTest,
    ::testing::Values(
        DotCase{"Plain", DType::kF32, {5, 7}, {7, 3}, {{}, {}, {1}, {0}}},
        DotCase{"LhsTransposed", DType::kF32, {7, 5}, {7, 3}, {{}, {}, {0}, {0}}},
        DotCase{"RhsTransposed", DType::kF32, {5, 7}, {3, 7}, {{}, {}, {1}, {1}}},
        DotCase{"BothTransposed", DType::kF32, {7, 5}, {3, 7}, {{}, {}, {0}, {1}}},
        DotCase{"Batched", DType::kF32, {4, 5, 7}, {4, 7, 3}, {{0}, {0}, {2}, {1}}},
        DotCase{"BatchInside", DType::kF32, {5, 4, 7}, {7, 4, 3}, {{1}, {1}, {2}, {0}}},
        DotCase{"BatchLast", DType::kF32, {5, 7, 4}, {7, 3, 4}, {{2}, {2}, {1}, {0}}},
        DotCase{"TwoContracted", DType::kF32, {2, 3, 5}, {3, 5, 4}, {{}, {}, {1, 2}, {0, 1}}},
        DotCase{"ContractedApart", DType::kF32, {3, 2, 5}, {5, 4, 3}, {{}, {}, {0, 2}, {2, 0}}},
        DotCase{"FreeApart", DType::kF32, {2, 7, 3}, {4, 7, 6}, {{}, {}, {1}, {1}}},
        DotCase{"VectorMatrix", DType::kF32, {7}, {7, 3}, {{}, {}, {0}, {0}}},
        DotCase{"MatrixVector", DType::kF32, {5, 7}, {7}, {{}, {}, {1}, {0}}},
        DotCase{"TransposedVector", DType::kF32, {7, 5}, {7}, {{}, {}, {0}, {0}}},
        DotCase{"Inner", DType::kF32, {9}, {9}, {{}, {}, {0}, {0}}},
        DotCase{"Outer", DType::kF32, {4}, {6}, {{}, {}, {}, {}}},
        DotCase{"SizeOne", DType::kF32, {1, 1}, {1, 8}, {{}, {}, {1}, {0}}},
        DotCase{"Large", DType::kF32, {65, 130}, {130, 33}, {{}, {}, {1}, {0}}},
        DotCase{"Bf16", DType::kBF16, {16, 32}, {32, 8}, {{}, {}, {1}, {0}}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DotTest, LeavesOtherDtypesAndEmptyArraysToTheEvaluator) {
  OneDnnMatmul matmul;
  for (const auto& [dtype, rows] :
       {std::pair{DType::kF64, 2}, {DType::kS32, 2}, {DType::kF32, 0}}) {
    Builder b({});
    ir::Value x = b.Param(ir::MakeType(dtype, {rows, 3}));
    ir::Value y = b.Param(ir::MakeType(dtype, {3, 2}));
    const ir::FunctionRef f = b.Build({{ir::Matmul2D(x, y)}});
    EXPECT_FALSE(DotGeneral(matmul, f->ops.back(), f->type(f->results[0]),
                            {Array(dtype, {rows, 3}), Array(dtype, {3, 2})})
                     .has_value());
  }
}

ir::FunctionRef Chain(int ops) {
  Builder b({});
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {256}));
  for (int i = 0; i < ops; ++i) {
    b.SetSite({"/src/model.cc", 10 + i});
    x = ir::Sin(x);
  }
  return b.Build({{x}});
}

ir::Program ProgramOf(ir::FunctionRef entry) {
  ir::Program program;
  program.entry = std::move(entry);
  return program;
}

TEST(CpuBackendTest, CancelStopsBetweenOps) {
  std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, backend->Compile(ProgramOf(Chain(4))));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto arg, backend->FromHost(0, Random(DType::kF32, {256}, 1)));
  CancelToken cancel;
  RunContext context;
  context.cancel = &cancel;
  ASSERT_THAT(backend->Enqueue(*executable, context, {arg}), IsOk());
  EXPECT_TRUE(cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough")));
  EXPECT_THAT(backend->Enqueue(*executable, context, {arg}), ReasonIs("CANCELLED", "enough"));
  EXPECT_FALSE(cancel.Cancel(MakeError(ErrorKind::kCancelled, "again")))
      << "the first reason stays";
}

TEST(CpuBackendTest, RecordsTheOpInFlightWithItsLine) {
  std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, backend->Compile(ProgramOf(Chain(3))));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto arg, backend->FromHost(0, Random(DType::kF32, {256}, 1)));
  InFlightPage page(1);
  CancelToken cancel;
  RunContext context;
  context.cancel = &cancel;
  InFlightQueue queue(&page.slot(0));
  context.in_flight = queue.Begin(9);
  ASSERT_THAT(backend->Enqueue(*executable, context, {arg}), IsOk());
  // Another mapping sees it, as the daemon does.
  InFlightPage seen(page.fd(), 1);
  EXPECT_EQ(seen.Suspect().launch, 9u);
  EXPECT_EQ(seen.Suspect().op, "sin (model.cc:12)");
}

// The devices of an executor share the primitives.
TEST(CpuBackendTest, DevicesMultiplyAtTheSameTime) {
  OneDnnMatmul matmul;
  // Operands that oneDNN packs into scratch memory first.
  const MatmulShape shape{.batch = 1,
                          .m = 64,
                          .n = 64,
                          .k = 64,
                          .a_strides = {4096, 1, 64},
                          .b_strides = {4096, 1, 64}};
  constexpr int kThreads = 4, kRounds = 200;
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Array a = Random(DType::kF32, {64, 64}, t), b = Random(DType::kF32, {64, 64}, 9 + t);
      Array want(DType::kF32, {64, 64});
      for (int64_t i = 0; i < 64; ++i) {
        for (int64_t j = 0; j < 64; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < 64; ++k) sum += a.At(k * 64 + i) * b.At(j * 64 + k);
          want.Set(i * 64 + j, sum);
        }
      }
      for (int round = 0; round < kRounds; ++round) {
        Array c(DType::kF32, {64, 64});
        if (!matmul.Run(shape, a.data(), b.data(), c.MutableData())) wrong[t] = kRounds;
        for (int64_t i = 0; i < c.num_elements(); ++i) {
          if (std::abs(c.At(i) - want.At(i)) > 1e-4) {
            ++wrong[t];
            break;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0)) << "wrong products of " << kRounds << " by thread";
}

TEST(MemoryBoundTest, CountsWhatLivesAtOnce) {
  // Two of the three values of the chain live at a time, beside the argument.
  EXPECT_EQ(PeakBytes(*Chain(1)), 2 * 1024);
  EXPECT_EQ(PeakBytes(*Chain(3)), 3 * 1024);
}

}  // namespace
}  // namespace tessera::worker
