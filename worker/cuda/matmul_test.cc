// Tests of the table's products on the fake cuBLASLt. The results are compared with plain loops:
// every dtype and layout, empty products, trials and TF32.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "ir/dtype.h"
#include "worker/cuda/testing/device_fixture.h"
#include "worker/device/api_values.h"

namespace tessera::worker::cuda {
namespace {

using ir::DType;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

uint16_t ToBF16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float FromBF16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Converts elements of type T to doubles and back.
template <class T>
struct Codec {
  static T Encode(double value) { return static_cast<T>(value); }
  static double Decode(T value) { return value; }
};
template <>
struct Codec<uint16_t> {
  static uint16_t Encode(double value) { return ToBF16(static_cast<float>(value)); }
  static double Decode(uint16_t value) { return FromBF16(value); }
};

// Returns small numbers that every dtype holds exactly, and that differ from row to row.
double Sample(int64_t i) { return static_cast<double>((i * 7 + 3) % 13 - 6) / 4; }

int64_t Extent(int64_t batch, int64_t rows, int64_t cols, const int64_t s[3]) {
  return (batch - 1) * s[0] + (rows - 1) * s[1] + (cols - 1) * s[2] + 1;
}

class MatmulTest : public FakesTest {
 protected:
  // Runs the product on fresh operands and compares it with the loop. The memory between the rows
  // of C must stay as it was.
  template <class In, class Out>
  void Check(const tessera_matmul_shape& shape) {
    TestDevice device(0);
    std::vector<In> a(Extent(shape.batch, shape.m, shape.k, shape.a_strides));
    std::vector<In> b(Extent(shape.batch, shape.k, shape.n, shape.b_strides));
    std::vector<Out> expected(Extent(shape.batch, shape.m, shape.n, shape.c_strides),
                              Codec<Out>::Encode(-1000));
    for (size_t i = 0; i < a.size(); ++i) a[i] = Codec<In>::Encode(Sample(i));
    for (size_t i = 0; i < b.size(); ++i) b[i] = Codec<In>::Encode(Sample(i + 5));
    const uint64_t c = device.Put(expected);
    const auto at = [](const int64_t s[3], int64_t x, int64_t y, int64_t z) {
      return x * s[0] + y * s[1] + z * s[2];
    };
    for (int64_t x = 0; x < shape.batch; ++x) {
      for (int64_t i = 0; i < shape.m; ++i) {
        for (int64_t j = 0; j < shape.n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < shape.k; ++l) {
            sum += Codec<In>::Decode(a[at(shape.a_strides, x, i, l)]) *
                   Codec<In>::Decode(b[at(shape.b_strides, x, l, j)]);
          }
          expected[at(shape.c_strides, x, i, j)] = Codec<Out>::Encode(sum);
        }
      }
    }
    tessera_matmul* matmul = nullptr;
    int64_t scratch_bytes = -1;
    ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK)
        << ErrorText();
    ASSERT_GE(scratch_bytes, 0);
    const uint64_t scratch = device.Allocate(scratch_bytes + 1);
    EXPECT_EQ(api().matmul_run(device.stream(), matmul, device.Put(a), device.Put(b), c, scratch),
              TESSERA_OK)
        << ErrorText();
    EXPECT_EQ(device.Get<Out>(c, static_cast<int64_t>(expected.size())), expected);
    api().matmul_destroy(matmul);
  }

  // Returns a shape whose matrices are stored by rows or by columns, with `pad` unused elements
  // after each row or column.
  static tessera_matmul_shape Shape(DType in, DType out, bool a_rows, bool b_rows, bool c_rows,
                                    int64_t batch, int64_t pad) {
    tessera_matmul_shape shape = {};
    shape.batch = batch;
    shape.m = 3;
    shape.n = 5;
    shape.k = 4;
    shape.in = device::ApiValue(in);
    shape.out = device::ApiValue(out);
    const auto set_strides = [&](int64_t rows, int64_t cols, bool by_rows, int64_t* strides) {
      strides[1] = by_rows ? cols + pad : 1;
      strides[2] = by_rows ? 1 : rows + pad;
      strides[0] = (rows + pad) * (cols + pad) + pad;
    };
    set_strides(shape.m, shape.k, a_rows, shape.a_strides);
    set_strides(shape.k, shape.n, b_rows, shape.b_strides);
    set_strides(shape.m, shape.n, c_rows, shape.c_strides);
    return shape;
  }
  static tessera_matmul_shape DenseF32() {
    return Shape(DType::kF32, DType::kF32, true, true, true, /*batch=*/1, /*pad=*/0);
  }

  int Plan(const TestDevice& device, const tessera_matmul_shape& shape) {
    tessera_matmul* matmul = nullptr;
    int64_t scratch_bytes = 0;
    const int code = api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes);
    if (code == TESSERA_OK) api().matmul_destroy(matmul);
    return code;
  }
};

class LayoutTest
    : public MatmulTest,
      public ::testing::WithParamInterface<std::tuple<bool, bool, bool, int64_t, int64_t>> {};

TEST_P(LayoutTest, GivesTheProductOfEveryDtype) {
  const auto shape = [](DType in, DType out) {
    const auto& [a_rows, b_rows, c_rows, batch, pad] = GetParam();
    return Shape(in, out, a_rows, b_rows, c_rows, batch, pad);
  };
  Check<float, float>(shape(DType::kF32, DType::kF32));
  Check<double, double>(shape(DType::kF64, DType::kF64));
  Check<uint16_t, uint16_t>(shape(DType::kBF16, DType::kBF16));
  Check<uint16_t, float>(shape(DType::kBF16, DType::kF32));
}

INSTANTIATE_TEST_SUITE_P(All, LayoutTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(), ::testing::Bool(),
                                            ::testing::Values(1, 3), ::testing::Values(0, 2)));

TEST_F(MatmulTest, RowsAndColumnsOfOneElementFitWithAnyStride) {
  for (const int64_t m : {1, 4}) {
    for (const int64_t k : {1, 4}) {
      for (const int64_t n : {1, 4}) {
        tessera_matmul_shape shape = DenseF32();
        shape.m = m;
        shape.k = k;
        shape.n = n;
        const auto dense = [](int64_t rows, int64_t cols, int64_t* strides) {
          strides[0] = rows * cols;
          strides[1] = rows == 1 ? 0 : cols;
          strides[2] = cols == 1 ? 17 : 1;
        };
        dense(m, k, shape.a_strides);
        dense(k, n, shape.b_strides);
        dense(m, n, shape.c_strides);
        SCOPED_TRACE(::testing::Message() << m << " " << k << " " << n);
        Check<float, float>(shape);
      }
    }
  }
}

TEST_F(MatmulTest, ABatchMayShareAnOperand) {
  tessera_matmul_shape shape = DenseF32();
  shape.batch = 3;
  shape.a_strides[0] = 0;
  shape.b_strides[0] = shape.k * shape.n;
  shape.c_strides[0] = shape.m * shape.n;
  Check<float, float>(shape);
}

TEST_F(MatmulTest, AProductOverZeroElementsWritesOnlyZeros) {
  tessera_matmul_shape shape = Shape(DType::kF32, DType::kF32, true, true, true, 2, 2);
  shape.k = 0;
  TestDevice device(0);
  std::vector<float> expected(Extent(2, shape.m, shape.n, shape.c_strides), 9);
  const uint64_t c = device.Put(expected);
  for (int64_t x = 0; x < 2; ++x) {
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        expected[x * shape.c_strides[0] + i * shape.c_strides[1] + j] = 0;
      }
    }
  }
  tessera_matmul* matmul = nullptr;
  int64_t scratch_bytes = 0;
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK)
      << ErrorText();
  EXPECT_EQ(scratch_bytes, 0);
  EXPECT_EQ(api().matmul_run(device.stream(), matmul, 0, 0, c, 0), TESSERA_OK) << ErrorText();
  EXPECT_EQ(device.Get<float>(c, static_cast<int64_t>(expected.size())), expected);
  api().matmul_destroy(matmul);
}

TEST_F(MatmulTest, AnEmptyProductRunsNothing) {
  TestDevice device(0);
  tessera_matmul_shape shape = DenseF32();
  shape.m = 0;
  tessera_matmul* matmul = nullptr;
  int64_t scratch_bytes = 0;
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  EXPECT_EQ(api().matmul_run(device.stream(), matmul, 0, 0, 0, 0), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_OK);
  api().matmul_destroy(matmul);
}

TEST_F(MatmulTest, APlanMayBeDestroyedWhileItsProductRuns) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const tessera_matmul_shape shape = DenseF32();
  tessera_matmul* matmul = nullptr;
  int64_t scratch_bytes = 0;
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  const uint64_t a = device.Put(std::vector<float>(12, 1)),
                 b = device.Put(std::vector<float>(20, 2));
  const uint64_t c = device.Allocate(60), scratch = device.Allocate(scratch_bytes + 1);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  ASSERT_EQ(api().matmul_run(device.stream(), matmul, a, b, c, scratch), TESSERA_OK);
  api().matmul_destroy(matmul);
  SetFake("gate", 1);
  EXPECT_THAT(device.Get<float>(c, 15), Each(8.0f));
  api().module_unload(module);
}

TEST_F(MatmulTest, InvalidShapesAreRefused) {
  TestDevice device(0);
  tessera_matmul_shape shape = DenseF32();
  shape.b_strides[1] = 2;
  EXPECT_EQ(Plan(device, shape), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("matmul_plan: b is [4, 5] with strides 20, 2, 1"));
  shape = DenseF32();
  shape.a_strides[1] = shape.a_strides[2] = 2;
  EXPECT_EQ(Plan(device, shape), TESSERA_INVALID);
  shape = DenseF32();
  shape.batch = 2;
  shape.c_strides[0] = -15;
  EXPECT_EQ(Plan(device, shape), TESSERA_INVALID);
  shape = DenseF32();
  shape.k = -1;
  EXPECT_EQ(Plan(device, shape), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("are 1, 3, 5, -1; expected each from 0"));
}

TEST_F(MatmulTest, UnsupportedDtypesAreRefused) {
  TestDevice device(0);
  for (const auto& [in, out] : {std::pair(DType::kS32, DType::kS32),
                                {DType::kF32, DType::kF64},
                                {DType::kF32, DType::kBF16},
                                {DType::kC64, DType::kC64}}) {
    EXPECT_EQ(Plan(device, Shape(in, out, true, true, true, 1, 0)), TESSERA_UNSUPPORTED);
    EXPECT_THAT(ErrorText(), HasSubstr("convert the operands"));
  }
  SetFake("cublaslt_none", 1);
  EXPECT_EQ(Plan(device, DenseF32()), TESSERA_UNSUPPORTED);
  EXPECT_THAT(ErrorText(), HasSubstr("status 15"));
}

TEST_F(MatmulTest, RefusesAddressesThatAreNotAligned) {
  TestDevice device(0);
  const tessera_matmul_shape shape = DenseF32();
  tessera_matmul* matmul = nullptr;
  int64_t scratch_bytes = 0;
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  const uint64_t a = device.Allocate(256), scratch = device.Allocate(scratch_bytes + 256);
  EXPECT_EQ(api().matmul_run(device.stream(), matmul, a, a + 4, a, scratch), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("expected multiples of 16"));
  EXPECT_EQ(api().matmul_run(device.stream(), matmul, a, a, a, scratch + 16), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("expected a multiple of 256"));
  api().matmul_destroy(matmul);
}

TEST_F(MatmulTest, WithoutCublasLtTheRestWorks) {
  TestDevice device(0);
  setenv("TESSERA_CUDA_CUBLASLT", "libnocublas.so.13", 1);
  EXPECT_EQ(Plan(device, DenseF32()), TESSERA_UNSUPPORTED);
  EXPECT_THAT(
      ErrorText(),
      HasSubstr(
          "no cuBLASLt, so matrix products are slow kernels: libnocublas.so.13: cannot open shared "
          "object file: No such file or directory; install "
          "libcublas of CUDA 12 or 13"));
  setenv("TESSERA_CUDA_CUBLASLT", FakePath("cuda").c_str(), 1);
  EXPECT_EQ(Plan(device, DenseF32()), TESSERA_UNSUPPORTED);
  EXPECT_THAT(ErrorText(), HasSubstr("has no function cublasLtGetVersion"));
  EXPECT_THAT(device.Get<float>(device.Put<float>({3}), 1), Each(3.0f));
  // The failure is not remembered.
  setenv("TESSERA_CUDA_CUBLASLT", FakePath("cublaslt").c_str(), 1);
  EXPECT_EQ(Plan(device, DenseF32()), TESSERA_OK) << ErrorText();
}

TEST_F(MatmulTest, TrialsChooseTheFastest) {
  // The fake's first algorithm asks for 4096 bytes of scratch memory, and the second for none.
  TestDevice device(0);
  const tessera_matmul_shape shape = DenseF32();
  tessera_matmul* matmul = nullptr;
  int64_t scratch_bytes = 0;
  SetFake("cublaslt_slow_algorithm", 0);
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  EXPECT_EQ(scratch_bytes, 4096) << "without trials the first is taken";
  api().matmul_destroy(matmul);
  setenv("TESSERA_CUDA_MATMUL_TRIALS", "2", 1);
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  EXPECT_EQ(scratch_bytes, 0);
  api().matmul_destroy(matmul);
  // If there is too little memory for a trial, the first algorithm is taken.
  SetFake("oom_at", 1);
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  EXPECT_EQ(scratch_bytes, 4096);
  api().matmul_destroy(matmul);
  unsetenv("TESSERA_CUDA_MATMUL_TRIALS");
}

TEST_F(MatmulTest, OnlyF32ThatMayBeRoundedIsComputedInTf32) {
  const auto computed = [&](DType in, DType out, int32_t allow_tf32) {
    tessera_matmul_shape shape = Shape(in, out, true, true, true, /*batch=*/2, /*pad=*/1);
    shape.allow_tf32 = allow_tf32;
    if (in == DType::kF32) Check<float, float>(shape);
    if (in == DType::kF64) Check<double, double>(shape);
    if (in == DType::kBF16) Check<uint16_t, float>(shape);
    return GetFake("cublaslt_compute");
  };
  constexpr int64_t kF32 = 68, kF64 = 70, kTf32 = 77;
  EXPECT_EQ(computed(DType::kF32, DType::kF32, 0), kF32);
  EXPECT_EQ(computed(DType::kF32, DType::kF32, 1), kTf32);
  EXPECT_EQ(computed(DType::kF64, DType::kF64, 1), kF64);
  EXPECT_EQ(computed(DType::kBF16, DType::kF32, 1), kF32);
  // The library has no algorithm in TF32, and then no algorithm at all.
  SetFake("cublaslt_no_tf32", 1);
  EXPECT_EQ(computed(DType::kF32, DType::kF32, 1), kF32);
  TestDevice device(0);
  tessera_matmul_shape shape = DenseF32();
  shape.allow_tf32 = 1;
  SetFake("cublaslt_none", 1);
  EXPECT_EQ(Plan(device, shape), TESSERA_UNSUPPORTED);
}

TEST_F(MatmulTest, ALostContextIsReportedAsLost) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const tessera_matmul_shape shape = DenseF32();
  tessera_matmul* matmul = nullptr;
  int64_t scratch_bytes = 0;
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  const uint64_t a = device.Allocate(256), scratch = device.Allocate(scratch_bytes + 1);
  SetFake("sticky_at", 1);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  EXPECT_EQ(Poll([&] {
              const int code = api().matmul_run(device.stream(), matmul, a, a, a + 128, scratch);
              return code == TESSERA_OK ? TESSERA_NOT_READY : code;
            }),
            TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  api().matmul_destroy(matmul);
  api().module_unload(module);
}

}  // namespace
}  // namespace tessera::worker::cuda
