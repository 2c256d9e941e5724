// Tests of kernels as GPU code. The emulator runs the code and compares it with the interpreter.
// ptxas assembles the PTX if it is installed. The plans and the cache of images are tested too.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/codegen/scalar_prim.h"
#include "worker/codegen/testing/simt_kernels.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr DType kComputed[] = {DType::kBool, DType::kS32, DType::kU32, DType::kS64,
                               DType::kBF16, DType::kF32, DType::kF64};

Kernel Parsed(absl::string_view text) {
  const absl::StatusOr<Kernel> kernel = ParseKernel(text);
  EXPECT_THAT(kernel, IsOk()) << text;
  return kernel.ok() ? *kernel : Kernel();
}
std::string NameOf(DType dtype) { return std::string(DTypeName(dtype)); }

// Returns whether the primitive is a function of floats, which may be off by 2 ulp; everything else
// is exact.
bool IsFunction(ScalarPrim prim) {
  return (ScalarPrim::kExp <= prim && prim <= ScalarPrim::kErf) && prim != ScalarPrim::kSqrt;
}

struct PrimCase {
  ScalarPrim prim;
  DType operand, result;
  std::string name() const {
    return absl::StrCat(ToAbsl(ScalarPrimName(prim)), " ", NameOf(operand), " to ", NameOf(result));
  }
};
std::vector<PrimCase> AllPrims() {
  std::vector<PrimCase> cases;
  for (int i = 2; i <= static_cast<int>(ScalarPrim::kBitcast); ++i)
    for (DType operand : kComputed)
      for (DType result : kComputed)
        if (FindScalarFn(static_cast<ScalarPrim>(i), operand, result) != nullptr)
          cases.push_back({static_cast<ScalarPrim>(i), operand, result});
  return cases;
}
// The number of elements: more than there are pairs of samples, and not a multiple of the length of
// a vector.
constexpr int64_t kSampled = 1787;
Kernel KernelOf(const PrimCase& c) { return KernelOfPrim(c.prim, c.operand, c.result, kSampled); }

TEST(GpuCode, EveryPrimitiveAgreesWithTheInterpreterOnEveryDtype) {
  const std::vector<PrimCase> cases = AllPrims();
  std::vector<Kernel> kernels;
  for (const PrimCase& c : cases) kernels.push_back(KernelOf(c));
  const SimtKernels compiled(kernels);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<ir::Array> inputs;
    for (const Param& param : kernels[i].params)
      if (!param.output)
        inputs.push_back(SamplesOf(param.dtype, static_cast<int>(inputs.size()), kSampled));
    Tolerance tolerance;
    if (IsFunction(cases[i].prim) && ir::IsFloat(cases[i].operand)) tolerance.ulps = 2;
    EXPECT_THAT(SimtDifference(compiled, static_cast<int>(i), kernels[i],
                               TestBuffers(kernels[i], inputs), tolerance),
                IsEmpty())
        << cases[i].name();
  }
  EXPECT_GT(cases.size(), 200u);
}

// Returns numbers of every magnitude, ordinary numbers, and numbers close to multiples of pi / 2.
ir::Array RandomFloats(DType dtype, int64_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  ir::Array out(dtype, {n});
  for (int64_t i = 0; i < n; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    double v = (unit - 0.5) * 20;
    if (i % 4 == 1) v = std::ldexp(unit - 0.5, static_cast<int>(random() % 2000) - 1000);
    if (i % 4 == 2) v = std::ldexp(unit - 0.5, static_cast<int>(random() % 60) - 30);
    if (i % 4 == 3) v = std::nextafter(M_PI_2 * static_cast<double>(random() % 100000), unit);
    out.Set(i, v);
  }
  return out;
}

// Returns the exact value of a function. The interpreter's functions of f64 are no reference, since
// they are the C library's, which are off by some ulps themselves.
long double ExactValue(ScalarPrim prim, long double x, long double y) {
  switch (prim) {
    case ScalarPrim::kExp:
      return std::exp(x);
    case ScalarPrim::kExpm1:
      return std::expm1(x);
    case ScalarPrim::kLog:
      return std::log(x);
    case ScalarPrim::kLog1p:
      return std::log1p(x);
    case ScalarPrim::kSin:
      return std::sin(x);
    case ScalarPrim::kCos:
      return std::cos(x);
    case ScalarPrim::kTan:
      return std::tan(x);
    case ScalarPrim::kTanh:
      return std::tanh(x);
    case ScalarPrim::kAtan2:
      return std::atan2(x, y);
    case ScalarPrim::kPow:
      return std::pow(x, y);
    case ScalarPrim::kRsqrt:
      return 1 / std::sqrt(x);
    case ScalarPrim::kCbrt:
      return std::cbrt(x);
    case ScalarPrim::kErf:
      return std::erf(x);
    default:
      return std::fmod(x, y);
  }
}

TEST(GpuCode, FunctionsAreWithinTwoUlpsEverywhere) {
  constexpr int64_t kNumbers = 40000;
  std::vector<Kernel> kernels;
  std::vector<PrimCase> cases;
  for (const PrimCase& c : AllPrims()) {
    if (!(IsFunction(c.prim) || c.prim == ScalarPrim::kRem) || !ir::IsFloat(c.operand)) continue;
    cases.push_back(c);
    kernels.push_back(KernelOfPrim(c.prim, c.operand, c.result, kNumbers));
  }
  EXPECT_EQ(cases.size(), 2u * 14);
  const SimtKernels compiled(kernels);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<ir::Array> inputs;
    for (uint32_t j = 0; j < static_cast<uint32_t>(InfoOf(cases[i].prim).arity()); ++j)
      inputs.push_back(RandomFloats(cases[i].operand, kNumbers, 11 + j));
    TestBuffers got(kernels[i], inputs), want(kernels[i], inputs);
    ASSERT_THAT(compiled.Run(static_cast<int>(i), &got), IsOk());
    ir::Array exact(cases[i].result, {kNumbers});
    for (int64_t n = 0; n < kNumbers; ++n)
      exact.Set(n, static_cast<double>(
                       ExactValue(cases[i].prim, inputs.front().At(n), inputs.back().At(n))));
    std::memcpy(want.pointers().back(), exact.data(), exact.num_bytes());
    const Tolerance tolerance = {.ulps = cases[i].prim == ScalarPrim::kRem ? 0 : 2};
    EXPECT_THAT(Difference(kernels[i], got, want, tolerance), IsEmpty()) << cases[i].name();
  }
}

// ---- Sizes and accesses. -----------------------------------------------------------------------

Kernel AddOf(DType dtype, int64_t n) {
  return KernelOfPrim(dtype == DType::kBool ? ScalarPrim::kXor : ScalarPrim::kAdd, dtype, dtype, n);
}

TEST(GpuCode, SizesNearBlockAndVectorSizesAgreeWithTheInterpreter) {
  std::vector<Kernel> kernels;
  for (int64_t n : {0,  1,   2,   3,   4,    5,    7,    8,    9,    31,   32,
                    33, 127, 128, 129, 1023, 1024, 1025, 2047, 2048, 2049, 5000})
    for (DType dtype : {DType::kF32, DType::kBool, DType::kF64}) kernels.push_back(AddOf(dtype, n));
  // These kernels only move elements.
  for (const char* dtype : {"bf16", "s8", "c64"})
    for (int n : {1, 7, 8, 9, 2047, 2048, 2049})
      kernels.push_back(Parsed(
          absl::StrCat("kernel [", n, "] reduced 0\nin ", dtype, " ", n, "\nout ", dtype, " ", n,
                       "\n%0 = load p0 [0: 1] : ", dtype, "\nstore %0 p1 [0: 1]\n")));
  kernels.push_back(
      Parsed("kernel [] reduced 0\nin f32 1\nout f32 1\n%0 = load p0 [0:] : f32\n"
             "store %0 p1 [0:]\n"));
  const SimtKernels compiled(kernels);
  for (size_t i = 0; i < kernels.size(); ++i)
    EXPECT_THAT(SimtDifference(compiled, static_cast<int>(i), kernels[i],
                               TestBuffers(kernels[i], /*seed=*/7), {}),
                IsEmpty())
        << kernels[i].ToString();
}

TEST(GpuCode, RandomKernelsAgreeWithTheInterpreter) {
  for (const bool reduce : {false, true}) {
    std::vector<Kernel> kernels;
    for (uint32_t seed = 0; seed < 150; ++seed)
      kernels.push_back(RandomKernel(1000 + seed, {.reduce = reduce, .exact_reductions = true}));
    const SimtKernels compiled(kernels);
    for (size_t i = 0; i < kernels.size(); ++i) {
      // The order decides which of two zeros is the larger.
      const Tolerance tolerance = {.zero_signs = !reduce};
      EXPECT_THAT(SimtDifference(compiled, static_cast<int>(i), kernels[i],
                                 TestBuffers(kernels[i], static_cast<uint32_t>(i)), tolerance),
                  IsEmpty())
          << "seed " << 1000 + i << "\n"
          << kernels[i].ToString();
    }
  }
}

// ---- Scans. -------------------------------------------------------------------------------------

TEST(GpuCode, RandomScansHaveTheBitsOfTheInterpreter) {
  std::vector<Kernel> kernels;
  for (uint32_t seed = 0; seed < 100; ++seed)
    kernels.push_back(RandomKernel(seed, {.scan = true, .exact_reductions = true, .size_max = 20}));
  kernels.push_back(
      Parsed("kernel [70,50] scanned 1\nin f64 3500\nout f64 3500\n%0 = load p0 [49: 50,-1] : f64\n"
             "%1 = reduce sum %0 : f64\nstore %1 p1 [49: 50,-1]\n"));
  const SimtKernels compiled(kernels);
  for (size_t i = 0; i < kernels.size(); ++i)
    EXPECT_THAT(SimtDifference(compiled, static_cast<int>(i), kernels[i],
                               TestBuffers(kernels[i], static_cast<uint32_t>(i)), {}),
                IsEmpty())
        << "seed " << i << "\n"
        << kernels[i].ToString();
}

// Updates: 300 rows of 3 columns are added to 7 rows, and single elements are added at positions
// given by two numbers.
constexpr const char* kUpdates[] = {
    "kernel [3,300] scanned 1\nin f32 900\nin s32 300\nout f32 21\n"
    "%0 = load p0 [0: 1,3] : f32\n"
    "%1 = load p2 [0: 1,0] shift p1 [0: 0,1] max 6 stride 3 : f32\n"
    "%2 = Add %1, %0 : f32\n"
    "store %2 p2 [0: 1,0] shift p1 [0: 0,1] max 6 stride 3\n",
    "kernel [100,5] scanned 2\nin f64 500\nin s64 200\nout f64 77\n"
    "%0 = load p0 [0: 5,1] : f64\n"
    "%1 = load p2 [0: 0,1] shift p1 [0: 2,0] max 6 stride 11 shift p1 [1: 2,0] max 6 stride 1 : "
    "f64\n"
    "%2 = Add %1, %0 : f64\n"
    "store %2 p2 [0: 0,1] shift p1 [0: 2,0] max 6 stride 11 shift p1 [1: 2,0] max 6 stride 1\n"};

// Several threads of each column add floats at positions that come several times. The bits tell
// which update came first, and that none is lost.
TEST(GpuCode, UpdatesOfAnElementAreInOrder) {
  std::vector<Kernel> kernels;
  for (const char* text : kUpdates) kernels.push_back(Parsed(text));
  const SimtKernels compiled(kernels);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_GT(PlanGpu(Canonical(kernels[i]))->owners, 8);
    EXPECT_THAT(SimtDifference(compiled, static_cast<int>(i), kernels[i],
                               TestBuffers::Tame(kernels[i], 5), {}),
                IsEmpty());
  }
}

// Threads own elements if each point updates one element that is known only at run time.
TEST(GpuPlan, ScansThatUpdateElementsHaveOwners) {
  const auto owners = [](absl::string_view text) { return PlanGpu(Parsed(text))->owners; };
  constexpr char kCumsum[] =
      "kernel [3,300] scanned 1\nin f32 900\nout f32 900\n%0 = load p0 [0: 300,1] : f32\n"
      "%1 = reduce sum %0 : f32\nstore %1 p1 [0: 300,1]\n";
  EXPECT_EQ(owners(kCumsum), 1);
  const auto updates = [&](int columns, int rows) {
    return owners(absl::StrCat("kernel [", columns, ",", rows, "] scanned 1\nin f32 ",
                               columns * rows, "\nin s32 ", rows, "\nout f32 ", 7 * columns,
                               "\n%0 = load p0 [0: 1,", columns,
                               "] : f32\nstore %0 p2 [0: 1,0] "
                               "shift p1 [0: 0,1] max 6 stride ",
                               columns, "\n"));
  };
  EXPECT_EQ(updates(1, 8), 1);
  EXPECT_EQ(updates(1, 1 << 20), 1024);
  EXPECT_EQ(updates(256, 8192), 256);
  EXPECT_EQ(updates(1 << 16, 128), 1);
}

// ---- Reductions. -------------------------------------------------------------------------------

struct ReduceShape {
  const char* dims;     // the dims of the box
  const char* strides;  // the strides of the operand
  int num_reduced;
  int64_t kept, size;  // the numbers of elements of the result and of the operand
};
constexpr ReduceShape kShapes[] = {
    {"[1]", "1", 1, 1, 1},
    {"[7]", "1", 1, 1, 7},
    {"[1000]", "1", 1, 1, 1000},
    {"[100003]", "1", 1, 1, 100003},
    {"[3,10]", "10,1", 1, 3, 30},
    {"[33,32]", "32,1", 1, 33, 1056},
    {"[5,129]", "129,1", 1, 5, 645},
    {"[9,1024]", "1024,1", 1, 9, 9216},
    {"[2,5000]", "5000,1", 1, 2, 10000},
    {"[3,4,6]", "24,6,1", 2, 3, 72},
    {"[6,3,8]", "8,48,1", 2, 6, 144},    // rows of rows, which lie apart
    {"[10,3]", "1,10", 1, 10, 30},       // columns
    {"[64,300]", "1,64", 1, 64, 19200},  // columns that threads share
    {"[1000,17]", "1,1000", 1, 1000, 17000},
    {"[7,5,40]", "5,1,35", 1, 35, 1400},
    {"[300007]", "1", 1, 1, 300007},  // rows that blocks share
    {"[3,70000]", "70000,1", 1, 3, 210000},
    {"[40,9000]", "1,40", 1, 40, 360000},  // columns that blocks share
    {"[4,0]", "0,1", 1, 4, 0},
};

Kernel ReduceOf(ReduceKind kind, DType dtype, const ReduceShape& shape) {
  const bool arg = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMin;
  const std::string name = NameOf(dtype), result = arg ? "s32" : name;
  std::vector<std::string> strides = absl::StrSplit(shape.strides, ',');
  // The result is dense over the kept dims.
  const std::vector<std::string> sizes =
      absl::StrSplit(absl::string_view(shape.dims).substr(1), absl::ByAnyChar(",]"));
  std::vector<int64_t> out(strides.size(), 0);
  int64_t stride = 1;
  for (int d = static_cast<int>(strides.size()) - shape.num_reduced - 1; d >= 0; --d) {
    out[d] = stride;
    stride *= std::stoll(sizes[d]);
  }
  return Parsed(absl::StrCat("kernel ", shape.dims, " reduced ", shape.num_reduced, "\nin ", name,
                             " ", shape.size, "\nout ", result, " ", shape.kept,
                             "\n%0 = load p0 [0: ", shape.strides, "] : ", name, "\n%1 = reduce ",
                             ToAbsl(ReduceKindName(kind)), " %0 : ", result,
                             "\nstore %1 p1 [0: ", absl::StrJoin(out, ","), "]\n"));
}

bool SupportsReduction(ReduceKind kind, DType dtype, const ReduceShape& shape) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProd:
      return dtype != DType::kBool;
    case ReduceKind::kAnd:
    case ReduceKind::kOr:
      return !ir::IsFloat(dtype);
    case ReduceKind::kArgMax:
    case ReduceKind::kArgMin:
      return shape.num_reduced == 1 && shape.size > 0;
    default:
      return true;
  }
}

TEST(GpuCode, EveryReductionOfEveryDtypeAndShapeAgreesWithTheInterpreter) {
  for (const ReduceShape& shape : kShapes) {
    std::vector<Kernel> kernels;
    for (int k = 1; k <= static_cast<int>(ReduceKind::kArgMin); ++k)
      for (DType dtype : kComputed) {
        // Every dtype is reduced within a warp, within a block and along columns; two dtypes in
        // every shape.
        const absl::string_view dims = shape.dims;
        const bool all =
            dims == "[3,10]" || dims == "[2,5000]" || dims == "[64,300]" || dims == "[3,70000]";
        if (dtype == DType::kBF16 || !(all || dtype == DType::kF32 || dtype == DType::kS64))
          continue;
        if (SupportsReduction(static_cast<ReduceKind>(k), dtype, shape))
          kernels.push_back(ReduceOf(static_cast<ReduceKind>(k), dtype, shape));
      }
    const SimtKernels compiled(kernels);
    for (size_t i = 0; i < kernels.size(); ++i) {
      const Node& node = kernels[i].nodes[1];
      const bool sums = (node.reduce == ReduceKind::kSum || node.reduce == ReduceKind::kProd) &&
                        ir::IsFloat(node.dtype);
      Tolerance tolerance = {.zero_signs = false};
      const double n = static_cast<double>(kernels[i].num_elements()) /
                       static_cast<double>(std::max<int64_t>(1, kernels[i].num_iterations()));
      if (sums) tolerance.relative = n * (node.dtype == DType::kF32 ? 0x1p-24 : 0x1p-53);
      const TestBuffers buffers = sums ? TestBuffers::Tame(kernels[i], 5)
                                       : TestBuffers(kernels[i], static_cast<uint32_t>(i));
      EXPECT_THAT(SimtDifference(compiled, static_cast<int>(i), kernels[i], buffers, tolerance),
                  IsEmpty())
          << kernels[i].ToString();
    }
  }
}

TEST(GpuCode, ArgMaxReturnsTheFirstNaNOrTheFirstOfEqualElements) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  constexpr int64_t kSize = 3000;
  const std::vector<Kernel> kernels = {
      ReduceOf(ReduceKind::kArgMax, DType::kF32, {"[3000]", "1", 1, 1, kSize}),
      ReduceOf(ReduceKind::kArgMin, DType::kF32, {"[3000]", "1", 1, 1, kSize})};
  const SimtKernels compiled(kernels);
  const auto run = [&](int kernel, float all, std::vector<std::pair<int, float>> some) {
    std::vector<float> x(kSize, all);
    for (const auto& [i, v] : some) x[i] = v;
    const ir::Array input(
        DType::kF32, {kSize},
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(x.data()), kSize * sizeof(float)));
    TestBuffers buffers(kernels[kernel], {input});
    EXPECT_THAT(compiled.Run(kernel, &buffers), IsOk());
    return *static_cast<int32_t*>(buffers.pointers()[1]);
  };
  EXPECT_EQ(run(0, -inf, {}), 0);
  EXPECT_EQ(run(1, inf, {}), 0);
  EXPECT_EQ(run(0, 1, {{2999, 2}, {1777, 2}, {1778, 2}}), 1777);
  EXPECT_EQ(run(0, 1, {{2999, nan}, {2000, nan}, {1, inf}}), 2000);
  EXPECT_EQ(run(1, 1, {{2999, nan}, {5, -inf}}), 2999);
  EXPECT_EQ(run(1, nan, {}), 0);
}

// Two reductions, a value of each row beside them, and scalar ops after them, as in the mean and
// scale of a row.
TEST(GpuCode, SeveralReductionsAndLaterScalarOpsAgreeWithTheInterpreter) {
  const Kernel kernel = Parsed(R"(kernel [37,500] reduced 1
in f32 18500
in bf16 37
out f32 37
out bf16 37
%0 = load p0 [0: 500,1] : f32
%1 = load p1 [36: -1,0] : bf16
%2 = Convert %1 : f32
%3 = Mul %0, %2 : f32
%4 = reduce sum %3 : f32
%5 = Mul %3, %3 : f32
%6 = reduce sum %5 : f32
%7 = Constant 0.0020000000949949026 : f32
%8 = Mul %4, %7 : f32
%9 = Mul %6, %7 : f32
%10 = Add %9, %2 : f32
%11 = Rsqrt %10 : f32
%12 = Convert %11 : bf16
store %8 p2 [0: 1,0]
store %12 p3 [0: 1,0]
)");
  const SimtKernels compiled({kernel});
  EXPECT_THAT(SimtDifference(compiled, 0, kernel, TestBuffers::Tame(kernel, 3),
                             {.ulps = 1, .relative = 1e-5}),
              IsEmpty());
}

// The output is read before it is written, so that an element which is computed twice is wrong.
TEST(GpuCode, InPlaceUpdatesHappenOnce) {
  const auto kernel = [](absl::string_view dims, int reduced, absl::string_view from,
                         absl::string_view to) {
    return Parsed(absl::StrCat("kernel ", dims, " reduced ", reduced,
                               "\nin s32 9999\nout s32 999\n", "%0 = load p0 ", from, " : s32\n",
                               "%1 = load p1 ", to, " : s32\n",
                               reduced > 0 ? "%2 = reduce sum %0 : s32\n" : "%2 = Neg %0 : s32\n",
                               "%3 = Add %1, %2 : s32\nstore %3 p1 ", to, "\n"));
  };
  const std::vector<Kernel> kernels = {
      kernel("[999]", 0, "[0: 1]", "[0: 1]"),        kernel("[7,3]", 0, "[0: 1,7]", "[100: -3,1]"),
      kernel("[37,10]", 1, "[0: 10,1]", "[0: 1,0]"), kernel("[3,900]", 1, "[0: 900,1]", "[5: 2,0]"),
      kernel("[50,99]", 1, "[0: 1,50]", "[0: 1,0]"), kernel("[33,2]", 1, "[0: 1,33]", "[0: 1,0]")};
  const SimtKernels compiled(kernels);
  for (size_t i = 0; i < kernels.size(); ++i)
    EXPECT_THAT(
        SimtDifference(compiled, static_cast<int>(i), kernels[i], TestBuffers(kernels[i], 4), {}),
        IsEmpty())
        << kernels[i].ToString();
}

// ---- Plans. ------------------------------------------------------------------------------------

TEST(GpuPlan, LanesFollowAlignmentAndContiguity) {
  const auto lanes = [](absl::string_view text) {
    const absl::StatusOr<GpuPlan> plan = PlanGpu(Canonical(Parsed(text)));
    EXPECT_THAT(plan, IsOk());
    return plan.ok() ? plan->lanes : 0;
  };
  const auto copy = [](absl::string_view dims, absl::string_view from, absl::string_view to,
                       absl::string_view dtype = "f32") {
    return absl::StrCat("kernel ", dims, " reduced 0\nin ", dtype, " 9999\nin s32 1\nout ", dtype,
                        " 9999\n%0 = load p0 ", from, " : ", dtype, "\nstore %0 p2 ", to, "\n");
  };
  EXPECT_EQ(lanes(copy("[1000]", "[0: 1]", "[0: 1]")), 4);
  EXPECT_EQ(lanes(copy("[999]", "[0: 1]", "[0: 1]")), 4);
  EXPECT_EQ(lanes(copy("[1000]", "[0: 1]", "[0: 1]", "bf16")), 8);
  EXPECT_EQ(lanes(copy("[1000]", "[0: 1]", "[0: 1]", "f64")), 4);
  EXPECT_EQ(lanes(copy("[1000]", "[2: 1]", "[0: 1]")), 2);
  EXPECT_EQ(lanes(copy("[1000]", "[1: 1]", "[0: 1]")), 1);
  EXPECT_EQ(lanes(copy("[1000]", "[999: -1]", "[0: 1]")), 1);
  EXPECT_EQ(lanes(copy("[1000]", "[0: 2]", "[0: 1]")), 1);
  EXPECT_EQ(lanes(copy("[1000]", "[0: 1] shift p1 max 9 stride 1", "[0: 1]")), 1);
  EXPECT_EQ(lanes(copy("[1000]", "[0: 1] shift p1 max 9 stride 8", "[0: 1]")), 4);
  EXPECT_EQ(lanes(copy("[10,12]", "[0: 0,1]", "[0: 12,1]")), 4);
  EXPECT_EQ(lanes(copy("[10,12]", "[0: 1,0]", "[0: 12,1]")), 4);
  EXPECT_EQ(lanes(copy("[10,12]", "[0: 1,10]", "[0: 12,1]")), 1);
  EXPECT_EQ(lanes(copy("[10,10]", "[0: 0,1]", "[0: 10,1]")), 2);
  EXPECT_EQ(lanes(copy("[10,8]", "[0: 9,1]", "[0: 8,1]")), 1);
  EXPECT_EQ(lanes(copy("[10,8]", "[0: 12,1]", "[0: 8,1]")), 4);
}

TEST(GpuPlan, SeveralBlocksShareAReductionToFewResults) {
  const auto plan = [](const ReduceShape& shape) {
    return *PlanGpu(Canonical(ReduceOf(ReduceKind::kSum, DType::kF32, shape)));
  };
  const GpuPlan all = plan({"[16777216]", "1", 1, 1, 16777216});
  EXPECT_EQ(all.grid[0], 1u);
  EXPECT_EQ(all.grid[1], 128u);
  EXPECT_EQ(all.block[0], 1024u);
  const GpuPlan columns = plan({"[128,65536]", "1,128", 1, 128, 8388608});
  EXPECT_EQ(columns.grid[0], 4u);
  EXPECT_EQ(columns.grid[1], 128u);
  EXPECT_EQ(columns.block[1], 32u);
  // If there are many results, or little to do, one block reduces all of a result.
  EXPECT_EQ(plan({"[1024,65536]", "65536,1", 1, 1024, 67108864}).grid[1], 1u);
  EXPECT_EQ(plan({"[1000]", "1", 1, 1, 1000}).grid[1], 1u);
}

TEST(GpuCode, BlockCountersAreResetForEachLaunch) {
  const Kernel kernel = ReduceOf(ReduceKind::kSum, DType::kS32, {"[300007]", "1", 1, 1, 300007});
  const SimtKernels compiled({kernel});
  ASSERT_GT(compiled.code().kernels[0].grid[1], 1u);
  for (uint32_t seed = 0; seed < 3; ++seed)
    EXPECT_THAT(SimtDifference(compiled, 0, kernel, TestBuffers(kernel, seed), {}), IsEmpty());
}

TEST(GpuPlan, LargeKernelsHaveWideIndices) {
  const auto plan = [](absl::string_view text) { return *PlanGpu(Parsed(text)); };
  EXPECT_FALSE(plan("kernel [1000000000] reduced 0\nout s8 1000000000\nin s8 1\n"
                    "%0 = load p1 [0: 0] : s8\nstore %0 p0 [0: 1]\n")
                   .wide_index);
  EXPECT_TRUE(plan("kernel [3000000000] reduced 0\nout s8 3000000000\nin s8 1\n"
                   "%0 = load p1 [0: 0] : s8\nstore %0 p0 [0: 1]\n")
                  .wide_index);
  EXPECT_TRUE(plan("kernel [10] reduced 0\nout s64 10\n%0 = index [0: 1000000000] : s64\n"
                   "store %0 p0 [0: 1]\n")
                  .wide_index);
  EXPECT_THAT(PlanGpu(Parsed("kernel [36028797018963968] reduced 0\nout s8 36028797018963968\n"
                             "in s8 1\n%0 = load p1 [0: 0] : s8\nstore %0 p0 [0: 1]\n")),
              ReasonIs("NOT_IMPLEMENTED", HasSubstr("needs more than 2147483647 blocks")));
}

TEST(GpuCode, WideIndicesAgreeWithTheInterpreter) {
  // The strides of the index node are so large that 32 bits do not hold its numbers.
  const Kernel kernel = Parsed(R"(kernel [5,7] reduced 0
in f32 35
out s64 35
out f32 35
%0 = index [-5: 3000000000,-4000000000] : s64
%1 = load p0 [34: -7,-1] : f32
store %0 p1 [0: 1,5]
store %1 p2 [0: 7,1]
)");
  const SimtKernels compiled({kernel});
  EXPECT_THAT(SimtDifference(compiled, 0, kernel, TestBuffers(kernel, 3), {}), IsEmpty());
}

TEST(DeviceCode, ImagesAreTakenFromTheCache) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "tessera_device_code_cache");
  std::filesystem::remove_all(folder);
  const std::vector<Kernel> kernels = {AddOf(DType::kF32, 100)};
  for (const char* target : {"nvptx-sm_90", "nvptx-sm_80", "simt-host"}) {
    ObjectCache cache(folder, 1 << 20);
    const absl::StatusOr<DeviceCode> first = CompileForDevice(target, kernels, &cache);
    ASSERT_THAT(first, IsOk());
    EXPECT_EQ(CompileForDevice(target, kernels, nullptr)->image, first->image);
    // The cache entry gets other contents, which show that the second image comes from the cache.
    std::vector<std::string> keys;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      keys.push_back(entry.path().stem().string());
    ASSERT_EQ(keys.size(), 1u);
    cache.Put(keys[0], "another image");
    const absl::StatusOr<DeviceCode> second = CompileForDevice(target, kernels, &cache);
    ASSERT_THAT(second, IsOk());
    EXPECT_EQ(second->image, "another image");
    EXPECT_EQ(second->kernels[0].block[0], first->kernels[0].block[0]);
    EXPECT_NE(CompileForDevice(target, {AddOf(DType::kF32, 101)}, &cache)->image, second->image);
    std::filesystem::remove_all(folder);
  }
}

// ---- PTX. --------------------------------------------------------------------------------------

// Returns a chain of ops over contiguous arrays, like an optimizer's step.
Kernel Chain(absl::string_view dtype, int64_t n) {
  return Parsed(absl::StrCat("kernel [", n, "] reduced 0\nin ", dtype, " ", n, "\nin ", dtype, " ",
                             n, "\nout ", dtype, " ", n, "\n%0 = load p0 [0: 1] : ", dtype,
                             "\n%1 = load p1 [0: 1] : ", dtype, "\n%2 = Convert %0 : f32\n",
                             "%3 = Convert %1 : f32\n%4 = Mul %2, %3 : f32\n%5 = Tanh %4 : f32\n",
                             "%6 = Add %5, %2 : f32\n%7 = Convert %6 : ", dtype,
                             "\nstore %7 p2 [0: 1]\n"));
}

std::vector<Kernel> KernelsToAssemble() {
  std::vector<Kernel> kernels = {Chain("f32", 1 << 20), Chain("bf16", 1 << 20), Chain("f32", 1003)};
  for (const PrimCase& c : AllPrims()) kernels.push_back(KernelOf(c));
  for (const ReduceShape& shape : kShapes)
    for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kArgMax})
      if (SupportsReduction(kind, DType::kF32, shape))
        kernels.push_back(ReduceOf(kind, DType::kF32, shape));
  for (uint32_t seed = 0; seed < 30; ++seed)
    kernels.push_back(RandomKernel(seed, {.reduce = seed % 2 == 0, .functions = true}));
  for (uint32_t seed = 0; seed < 15; ++seed) kernels.push_back(RandomKernel(seed, {.scan = true}));
  for (const char* text : kUpdates) kernels.push_back(Parsed(text));
  return kernels;
}

int Count(absl::string_view text, absl::string_view word) {
  return static_cast<int>(std::vector<absl::string_view>(absl::StrSplit(text, word)).size()) - 1;
}

TEST(Ptx, ContiguousChainsLoadAndStore16BytesAtOnce) {
  for (const char* architecture : {"nvptx-sm_80", "nvptx-sm_90"}) {
    const absl::StatusOr<DeviceCode> code =
        CompileForDevice(architecture, {Chain("f32", 1 << 20), Chain("bf16", 1 << 20)});
    ASSERT_THAT(code, IsOk());
    EXPECT_EQ(Count(code->image, "ld.global.nc.v4."), 4) << code->image;
    EXPECT_EQ(Count(code->image, "st.global.v4."), 2) << code->image;
    EXPECT_EQ(Count(code->image, "ld.global"), 4) << code->image;
    EXPECT_EQ(Count(code->image, "st.global"), 2) << code->image;
    EXPECT_THAT(code->image, HasSubstr(absl::StrCat(".target ", architecture + 6)));
    EXPECT_THAT(code->image, HasSubstr(".maxntid 256, 1, 1"));
    // A multiply and an add are fused only where the code says so, and divisions round.
    EXPECT_THAT(code->image, Not(HasSubstr("mul.f32")));
    EXPECT_THAT(code->image, Not(HasSubstr("add.f32")));
    EXPECT_THAT(code->image, Not(HasSubstr("div.full")));
    EXPECT_THAT(code->image, Not(HasSubstr(".ftz")));
    EXPECT_THAT(code->image, Not(HasSubstr(".extern .func")));
  }
}

// A param that is overwritten is not read through the non-coherent cache, which could keep the old
// contents of the param.
TEST(Ptx, OverwrittenParamsAreReadCoherently) {
  const Kernel kernel = Parsed(R"(kernel [4096] reduced 0
in place f32 4096
in f32 4096
out f32 4096
%0 = load p0 [0: 1] : f32
%1 = load p1 [0: 1] : f32
%2 = Sub %0, %1 : f32
store %2 p2 [0: 1]
)");
  TESSERA_ASSERT_OK_AND_ASSIGN(const DeviceCode code,
                               CompileForDevice("nvptx-sm_90", {kernel}, nullptr, nullptr));
  EXPECT_EQ(Count(code.image, "ld.global.nc.v4."), 1) << code.image;
  EXPECT_EQ(Count(code.image, "ld.global.v4."), 1) << code.image;
}

// Only a GPU that runs many blocks at once could get this wrong: the partial result is written
// before the count, and the last block reads no stale partial result.
TEST(Ptx, PartialResultsAreWrittenBeforeTheCount) {
  const absl::StatusOr<DeviceCode> code = CompileForDevice(
      "nvptx-sm_90", {ReduceOf(ReduceKind::kSum, DType::kF32, {"[4194304]", "1", 1, 1, 4194304})});
  ASSERT_THAT(code, IsOk());
  size_t at = 0;
  for (const char* step :
       {"ld.global.nc.v4.", "shfl.sync.bfly", "bar.sync", "st.global.f32", "membar.gl",
        "atom.global.add.u32", "membar.gl", "ld.volatile.global", "st.global.f32"}) {
    at = code->image.find(step, at);
    ASSERT_NE(at, std::string::npos) << step << "\n" << code->image;
    ++at;
  }
}

TEST(Ptx, UnknownTargetsAreRefused) {
  for (const char* target : {"nvptx-sm_100", "sm_90", "simt", ""})
    EXPECT_THAT(CompileForDevice(target, {AddOf(DType::kF32, 3)}), ReasonIs("VALUE_ERROR"));
}

TEST(Ptx, TheSameKernelsGiveTheSameText) {
  const std::vector<Kernel> kernels = {Chain("f32", 100), RandomKernel(3, {.reduce = true})};
  EXPECT_EQ(CompileForDevice("nvptx-sm_90", kernels)->image,
            CompileForDevice("nvptx-sm_90", kernels)->image);
}

std::string FindPtxas() {
  std::vector<std::string> folders = {"/usr/local/cuda/bin"};
  if (const char* path = std::getenv("PATH"))
    for (absl::string_view folder : absl::StrSplit(path, ':')) folders.emplace_back(folder);
  for (const std::string& folder : folders)
    if (std::filesystem::exists(folder + "/ptxas")) return folder + "/ptxas";
  return "";
}

TEST(Ptx, KernelsAssembleWithoutSpills) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas in PATH or /usr/local/cuda/bin";
  const std::vector<Kernel> kernels = KernelsToAssemble();
  for (const char* architecture : {"sm_80", "sm_90"}) {
    const absl::StatusOr<DeviceCode> code =
        CompileForDevice(absl::StrCat("nvptx-", architecture), kernels);
    ASSERT_THAT(code, IsOk());
    const std::string base = absl::StrCat(::testing::TempDir(), "tessera_ptx_", architecture);
    std::ofstream(base + ".ptx") << code->image;
    const std::string command = absl::StrCat(ptxas, " -v -O3 -arch=", architecture,
                                             " -o /dev/null ", base, ".ptx > ", base, ".log 2>&1");
    const int status = std::system(command.c_str());
    std::stringstream log;
    log << std::ifstream(base + ".log").rdbuf();
    ASSERT_EQ(status, 0) << log.str();
    int entries = 0;
    for (absl::string_view line : absl::StrSplit(log.str(), '\n')) {
      if (line.find("spill") == absl::string_view::npos) continue;
      ++entries;
      EXPECT_THAT(std::string(line),
                  HasSubstr("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
    }
    EXPECT_EQ(entries, static_cast<int>(kernels.size())) << log.str();
    std::filesystem::remove(base + ".ptx");
    std::filesystem::remove(base + ".log");
  }
}

}  // namespace
}  // namespace tessera::worker::codegen
