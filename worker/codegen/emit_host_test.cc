// Compares host code with the interpreter: every op and primitive on every dtype, reductions, scans
// and random kernels, on every target that this CPU runs. Kernels are compiled in this process,
// without a cache.
#include "worker/codegen/emit_host.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/codegen/compile.h"
#include "worker/codegen/host_code.h"
#include "worker/codegen/host_plan.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/loader.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/codegen/testing/kernel_cases.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ScalarPrim;

class EmitHostTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    TESSERA_ASSERT_OK_AND_ASSIGN(const HostTarget target, FindHostTarget(GetParam()));
    if (!CpuRuns(target)) GTEST_SKIP() << "this CPU does not run " << GetParam();
    HostCompilerOptions options;
    options.target = GetParam();
    compiler_ = std::make_unique<HostCompiler>(options);
  }

  std::shared_ptr<const HostCode> Compile(const std::vector<Kernel>& kernels) {
    absl::StatusOr<std::shared_ptr<const HostCode>> code = compiler_->Compile(kernels);
    EXPECT_THAT(code, IsOk());
    return code.ok() ? *code : nullptr;
  }

  // Runs each kernel in two parts, the second part first, and compares it with the interpreter.
  void ExpectAsInterpreted(const std::vector<Kernel>& kernels) {
    const auto code = Compile(kernels);
    ASSERT_NE(code, nullptr);
    for (size_t k = 0; k < kernels.size(); ++k) {
      const Kernel& kernel = kernels[k];
      const int64_t n = kernel.num_iterations(), cut = n * static_cast<int64_t>(k % 7) / 7;
      const auto seed = static_cast<int>(k);
      TestBuffers got(kernel, seed, k % 3), want(kernel, seed, k % 3);
      Interpret(kernel, want.pointers(), 0, n);
      code->function(k)(got.pointers().data(), cut, n);
      code->function(k)(got.pointers().data(), 0, cut);
      EXPECT_EQ(Difference(kernel, got, want, {}), "") << kernel.ToString();
      EXPECT_TRUE(got.GuardsHold()) << kernel.ToString();
    }
  }

  std::unique_ptr<HostCompiler> compiler_;
};

// The tolerance of an op that consists of several primitives: a few functions that are off by up to
// 2 ulps each, and the roundings between them.
constexpr Tolerance kOpTolerance{.ulps = 6};

TEST_P(EmitHostTest, EveryOpAgreesWithTheEvaluator) {
  const std::vector<OpCase> cases = ScalarOpCases();
  std::vector<Kernel> kernels;
  for (const OpCase& op : cases) kernels.push_back(op.kernel);
  const auto code = Compile(kernels);
  ASSERT_NE(code, nullptr);
  for (size_t i = 0; i < cases.size(); ++i) {
    const OpCase& op = cases[i];
    TestBuffers got(op.kernel, op.inputs), want(op.kernel, op.inputs);
    code->function(i)(got.pointers().data(), 0, op.kernel.num_iterations());
    size_t output = 0;
    for (size_t p = 0; p < op.kernel.params.size(); ++p) {
      if (!op.kernel.params[p].output) continue;
      const ir::Array& expected = op.outputs[output++];
      std::memcpy(want.pointers()[p], expected.data(), expected.num_bytes());
    }
    EXPECT_EQ(Difference(op.kernel, got, want, kOpTolerance), "") << op.name;
  }
}

TEST_P(EmitHostTest, RandomKernelsAgreeWithTheInterpreter) {
  constexpr int kKernels = 100;
  for (const bool reduce : {false, true}) {
    std::vector<Kernel> kernels;
    for (int seed = 0; seed < kKernels; ++seed)
      kernels.push_back(RandomKernel(seed, {.reduce = reduce, .size_max = seed % 3 ? 40 : 200}));
    const auto code = Compile(kernels);
    ASSERT_NE(code, nullptr);
    const Tolerance tolerance{.ulps = 0, .relative = reduce ? 1e-4 : 0, .zero_signs = !reduce};
    for (int seed = 0; seed < kKernels; ++seed) {
      const Kernel& kernel = kernels[seed];
      const int64_t n = kernel.num_iterations();
      TestBuffers got(kernel, seed, seed % 5), want(kernel, seed, seed % 5);
      Interpret(kernel, want.pointers(), 0, n);
      // The range of iterations is cut into two parts, and the second part runs first.
      const int64_t cut = n * (seed % 7) / 7;
      code->function(seed)(got.pointers().data(), cut, n);
      code->function(seed)(got.pointers().data(), 0, cut);
      EXPECT_EQ(Difference(kernel, got, want, tolerance), "") << "seed " << seed << "\n"
                                                              << kernel.ToString();
    }
  }
}

TEST_P(EmitHostTest, RandomScansHaveTheBitsOfTheInterpreter) {
  constexpr int kKernels = 60;
  std::vector<Kernel> kernels;
  for (int seed = 0; seed < kKernels; ++seed)
    kernels.push_back(RandomKernel(seed, {.scan = true, .exact_reductions = true, .size_max = 20}));
  const auto code = Compile(kernels);
  ASSERT_NE(code, nullptr);
  for (int seed = 0; seed < kKernels; ++seed) {
    const Kernel& kernel = kernels[seed];
    const int64_t n = kernel.num_iterations(), cut = n * (seed % 7) / 7;
    TestBuffers got(kernel, seed, seed % 5), want(kernel, seed, seed % 5);
    Interpret(kernel, want.pointers(), 0, n);
    code->function(seed)(got.pointers().data(), cut, n);
    code->function(seed)(got.pointers().data(), 0, cut);
    EXPECT_EQ(Difference(kernel, got, want, {}), "") << "seed " << seed << "\n"
                                                     << kernel.ToString();
    EXPECT_TRUE(got.GuardsHold()) << kernel.ToString();
  }
}

// The running results of a sum in f64 have the bits of the interpreter, and so has the sign of a
// zero.
TEST_P(EmitHostTest, ScansCombineInOrder) {
  std::vector<Kernel> kernels;
  for (const char* text : {"kernel [5000] scanned 1\nin f64 5000\nout f64 5000\n"
                           "%0 = load p0 [0: 1] : f64\n%1 = reduce sum %0 : f64\n"
                           "store %1 p1 [0: 1]\n",
                           "kernel [70,50] scanned 1\nin f64 3500\nout f64 3500\n"
                           "%0 = load p0 [0: 1,70] : f64\n%1 = reduce sum %0 : f64\n"
                           "store %1 p1 [0: 1,70]\n",
                           "kernel [70,50] scanned 1\nin f64 3500\nout f64 3500\n"
                           "%0 = load p0 [49: 50,-1] : f64\n%1 = reduce prod %0 : f64\n"
                           "store %1 p1 [49: 50,-1]\n"})
    kernels.push_back(*ParseKernel(text));
  const auto code = Compile(kernels);
  ASSERT_NE(code, nullptr);
  for (size_t k = 0; k < kernels.size(); ++k) {
    TestBuffers got = TestBuffers::Tame(kernels[k], 1), want = TestBuffers::Tame(kernels[k], 1);
    for (TestBuffers* buffers : {&got, &want}) *static_cast<double*>(buffers->pointers()[0]) = -0.0;
    Interpret(kernels[k], want.pointers(), 0, kernels[k].num_iterations());
    code->function(k)(got.pointers().data(), 0, kernels[k].num_iterations());
    EXPECT_EQ(Difference(kernels[k], got, want, {}), "") << kernels[k].ToString();
  }
}

// Only elements of the buffer are read, whatever the numbers that shift are.
TEST_P(EmitHostTest, GathersStayInTheirBuffers) {
  constexpr DType kNumbers[] = {DType::kS8, DType::kS16, DType::kS32, DType::kS64,
                                DType::kU8, DType::kU16, DType::kU32, DType::kU64};
  constexpr DType kMoved[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kF64};
  std::vector<Kernel> kernels;
  for (const DType number : kNumbers)
    for (const DType moved : kMoved)
      for (const bool windows : {false, true}) {
        // The kernel reads single elements, or windows of 5 at positions given by two numbers.
        const std::string text = windows
                                     ? "kernel [19,5] reduced 0\nin # 70\nin @ 38\nout # 95\n"
                                       "%0 = load p0 [0: 0,1] shift p1 [0: 2,0] max 5 stride 10"
                                       " shift p1 [1: 2,0] max 5 stride 1 : #\n"
                                       "store %0 p2 [0: 5,1]\n"
                                     : "kernel [38] reduced 0\nin # 70\nin @ 38\nout # 38\n"
                                       "%0 = load p0 [0: 0] shift p1 [0: 1] max 69 stride 1 : #\n"
                                       "store %0 p2 [0: 1]\n";
        kernels.push_back(*ParseKernel(absl::StrReplaceAll(
            text, {{"#", ToAbsl(DTypeName(moved))}, {"@", ToAbsl(DTypeName(number))}})));
      }
  const auto code = Compile(kernels);
  ASSERT_NE(code, nullptr);
  for (size_t k = 0; k < kernels.size(); ++k) {
    const Kernel& kernel = kernels[k];
    const DType number = kernel.params[1].dtype;
    TestBuffers got(kernel, 1), want(kernel, 1);
    const std::vector<int64_t> samples = IntSamples(number);
    for (TestBuffers* buffers : {&got, &want})
      for (int64_t i = 0; i < kernel.params[1].size; ++i)
        std::memcpy(static_cast<char*>(buffers->pointers()[1]) + i * ir::ByteWidth(number),
                    &samples[(i * 7) % samples.size()], ir::ByteWidth(number));
    Interpret(kernel, want.pointers(), 0, kernel.num_iterations());
    code->function(k)(got.pointers().data(), 0, kernel.num_iterations());
    EXPECT_EQ(Difference(kernel, got, want, {}), "") << kernel.ToString();
    EXPECT_TRUE(got.GuardsHold()) << kernel.ToString();
  }
}

// Covers loads that together read memory without gaps, in any order, and loads with gaps. Blocks
// are full or partial, in one row or in several.
TEST_P(EmitHostTest, InterleavedLoadsAgreeWithTheInterpreter) {
  constexpr DType kDTypes[] = {DType::kBool, DType::kU8, DType::kBF16, DType::kS32, DType::kF64};
  std::vector<Kernel> kernels;
  std::vector<size_t> num_groups;
  for (const DType dtype : kDTypes)
    for (const int loads : {2, 3, 4, 8, 16})
      for (const int size : {5, 45, 128})
        for (const bool gap : {false, true}) {
          const int rows = gap ? 1 : 3;
          const int row = size * loads + rows - 1;  // elements from one row to the next
          std::string text, stores;
          absl::StrAppend(&text, "kernel [", rows, ",", size, "] reduced 0\nin # ",
                          rows * row + 2 * loads, "\n");
          for (int k = 0; k < loads; ++k) {
            // The positions of the loads are mixed; the gap is before the last position.
            const int position = (5 * k + 3) % loads,
                      at = position + (gap && position == loads - 1);
            absl::StrAppend(&text, "out # ", rows * size, "\n");
            absl::StrAppend(&stores, "%", k, " = load p0 [", 1 + at, ": ", row, ",", loads,
                            "] : #\n");
          }
          for (int k = 0; k < loads; ++k)
            absl::StrAppend(&stores, "store %", k, " p", k + 1, " [0: ", size, ",1]\n");
          absl::StrAppend(&text, stores);
          kernels.push_back(
              *ParseKernel(absl::StrReplaceAll(text, {{"#", ToAbsl(DTypeName(dtype))}})));
          num_groups.push_back(gap || loads == 3 ? 0 : 1);
        }
  for (const char* reduced : {"kernel [40] reduced 0\nin s32 320\nout s32 40\n",
                              "kernel [1,40] reduced 1\nin s32 320\nout s32 1\n"}) {
    const bool sums = absl::StrContains(reduced, "reduced 1");
    std::string text = reduced;
    for (int k = 0; k < 8; ++k)
      absl::StrAppend(&text, "%", k, " = load p0 [", k, ": ", sums ? "0," : "", "8] : s32\n");
    for (int k = 8; k < 15; ++k)
      absl::StrAppend(&text, "%", k, " = Add %", 2 * (k - 8), ", %", 2 * (k - 8) + 1, " : s32\n");
    if (sums) absl::StrAppend(&text, "%15 = reduce sum %14 : s32\n");
    absl::StrAppend(&text, sums ? "store %15 p1 [0: 1,0]\n" : "store %14 p1 [0: 1]\n");
    kernels.push_back(*ParseKernel(text));
    num_groups.push_back(1);
  }
  ExpectAsInterpreted(kernels);
  for (size_t k = 0; k < kernels.size(); ++k)
    EXPECT_EQ(PlanHost(kernels[k], *FindHostTarget(GetParam())).interleaved_groups.size(),
              num_groups[k])
        << kernels[k].ToString();
}

// Covers stores whose elements interleave, like the parts of complex numbers, in rows of any
// length. The second store is the later or the earlier one. Another pair lies beside them. With a
// gap between the two stores they are not a pair.
TEST_P(EmitHostTest, InterleavedStoresAgreeWithTheInterpreter) {
  std::vector<Kernel> kernels;
  std::vector<size_t> num_pairs;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kS8})
    for (const int64_t size : {1, 2, 5, 31, 32, 33, 100, 1000})
      for (const int order : {0, 1})
        for (const int64_t gap : {0, 1}) {
          const int64_t rows = 3, step = 2 + gap, row = (size + 1) * step;
          std::string text = absl::StrCat(
              "kernel [", rows, ",", size, "] reduced 0\nin # ", rows * size, "\nin # ",
              rows * size, "\nout # ", rows * row, "\nout # ", 2 * rows * size,
              "\n%0 = load p0 [0: ", size, ",1] : #\n", "%1 = load p1 [0: ", size, ",1] : #\n");
          for (const int k : {order, 1 - order})
            absl::StrAppend(&text, "store %", k, " p2 [", k * (1 + gap), ": ", row, ",", step,
                            "]\n");
          for (const int k : {0, 1})
            absl::StrAppend(&text, "store %", 1 - k, " p3 [", k, ": ", 2 * size, ",2]\n");
          kernels.push_back(
              *ParseKernel(absl::StrReplaceAll(text, {{"#", ToAbsl(DTypeName(dtype))}})));
          num_pairs.push_back(size == 1 ? 0 : gap == 0 ? 2 : 1);
        }
  ExpectAsInterpreted(kernels);
  for (size_t k = 0; k < kernels.size(); ++k)
    EXPECT_EQ(PlanHost(kernels[k], *FindHostTarget(GetParam())).store_pairs.size(), num_pairs[k])
        << kernels[k].ToString();
}

// ---- Every primitive. --------------------------------------------------------------------------

constexpr DType kComputed[] = {DType::kBool, DType::kS32, DType::kU32, DType::kS64,
                               DType::kBF16, DType::kF32, DType::kF64};

struct PrimCase {
  ScalarPrim prim;
  DType operand, result;
};
std::vector<PrimCase> PrimCases() {
  std::vector<PrimCase> cases;
  for (int p = 0; p <= static_cast<int>(ScalarPrim::kBitcast); ++p) {
    const auto prim = static_cast<ScalarPrim>(p);
    for (const DType operand : kComputed)
      for (const DType result : kComputed)
        if (prim != ScalarPrim::kInput && prim != ScalarPrim::kConstant &&
            FindScalarFn(prim, operand, result) != nullptr)
          cases.push_back({prim, operand, result});
  }
  return cases;
}
// Returns 2 ulp for functions of floats, and 0 for everything else.
Tolerance ToleranceOf(ScalarPrim prim) {
  switch (prim) {
    case ScalarPrim::kExp:
    case ScalarPrim::kLog:
    case ScalarPrim::kTanh:
    case ScalarPrim::kErf:
    case ScalarPrim::kRsqrt:
    case ScalarPrim::kExpm1:
    case ScalarPrim::kLog1p:
    case ScalarPrim::kSin:
    case ScalarPrim::kCos:
    case ScalarPrim::kTan:
    case ScalarPrim::kAtan2:
    case ScalarPrim::kPow:
    case ScalarPrim::kCbrt:
      return {.ulps = 2};
    default:
      return {};
  }
}

// Returns kernels with different layouts: whole blocks and a few lanes more, fewer lanes than a
// block, with gaps, and along another dim.
std::vector<Kernel> LayoutsOf(const PrimCase& c) {
  std::vector<Kernel> kernels;
  for (const int64_t n : {203, 5}) kernels.push_back(KernelOfPrim(c.prim, c.operand, c.result, n));
  const auto with_strides = [&](ir::Dims shape, ir::Dims strides, int64_t offset, int64_t size) {
    Kernel kernel = KernelOfPrim(c.prim, c.operand, c.result, 1);
    kernel.shape = std::move(shape);
    for (Param& param : kernel.params) param.size = size;
    for (Node& node : kernel.nodes)
      if (node.kind == Node::Kind::kLoad) node.access = {offset, strides, {}};
    for (Store& store : kernel.stores) store.access = {offset, strides, {}};
    kernels.push_back(kernel);
  };
  with_strides({75}, {3}, 2, 230);
  with_strides({7, 19}, {1, 7}, 0, 133);
  return kernels;
}

TEST_P(EmitHostTest, EveryPrimitiveAgreesWithTheInterpreterInEveryLayout) {
  const std::vector<PrimCase> cases = PrimCases();
  ASSERT_GT(cases.size(), 150u);
  for (size_t i = 0; i < cases.size(); ++i) {
    const PrimCase& c = cases[i];
    const std::vector<Kernel> kernels = LayoutsOf(c);
    const auto code = Compile(kernels);
    ASSERT_NE(code, nullptr);
    for (size_t k = 0; k < kernels.size(); ++k) {
      TestBuffers got(kernels[k], i, 1), want(kernels[k], i, 1);
      Interpret(kernels[k], want.pointers(), 0, kernels[k].num_iterations());
      code->function(k)(got.pointers().data(), 0, kernels[k].num_iterations());
      EXPECT_EQ(Difference(kernels[k], got, want, ToleranceOf(c.prim)), "")
          << ScalarPrimName(c.prim) << " " << DTypeName(c.operand) << " to " << DTypeName(c.result)
          << ", layout " << k;
    }
  }
}

// ---- Where an element lies changes nothing. ----------------------------------------------------

// Equal arguments at every position of a row, and in ranges of every size, give equal bits.
TEST_P(EmitHostTest, AnElementsBitsDoNotDependOnItsPlace) {
  constexpr int64_t kElements = 150;
  for (const PrimCase& c : PrimCases()) {
    if (!ir::IsFloat(c.operand) || !ir::IsFloat(c.result) || c.operand == DType::kBF16) continue;
    const Kernel kernel = KernelOfPrim(c.prim, c.operand, c.result, kElements);
    const auto code = Compile({kernel});
    ASSERT_NE(code, nullptr);
    const size_t result_bytes = ir::ByteWidth(c.result);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      TestBuffers buffers(kernel, seed);
      const std::vector<void*> pointers = buffers.pointers();
      for (size_t p = 0; p + 1 < pointers.size(); ++p) {
        const int64_t width = ir::ByteWidth(kernel.params[p].dtype);
        for (int64_t i = 1; i < kElements; ++i)
          std::memcpy(static_cast<char*>(pointers[p]) + i * width, pointers[p], width);
      }
      for (int64_t begin = 0, size = 1; begin < kElements; begin += size++)
        code->function(0)(pointers.data(), begin, std::min(kElements, begin + size));
      const char* const out = static_cast<const char*>(pointers.back());
      for (int64_t i = 1; i < kElements; ++i)
        ASSERT_EQ(std::memcmp(out, out + i * result_bytes, result_bytes), 0)
            << ScalarPrimName(c.prim) << " " << DTypeName(c.operand) << " at " << i;
    }
  }
}

// If a kernel contains a function that is computed in f64 several times, it calls a function of the
// module.
TEST_P(EmitHostTest, AFunctionsBitsDoNotDependOnTheNumberOfItsUses) {
  constexpr int kSize = 100;
  for (const char* const prim : {"Sin", "Tan", "Log1p", "Expm1", "Cbrt", "Pow", "Atan2"}) {
    const bool binary = prim[0] == 'P' || prim[0] == 'A';
    const auto text = [&](bool twice) {
      std::string out = absl::StrCat("kernel [", kSize, "] reduced 0\nin f32 ", kSize, "\nin f32 ",
                                     kSize, "\nout f32 ", kSize, "\n", twice ? "out f32 100\n" : "",
                                     "%0 = load p0 [0: 1] : f32\n%1 = load p1 [0: 1] : f32\n");
      absl::StrAppend(&out, "%2 = ", prim, binary ? " %0, %1" : " %0", " : f32\n");
      if (twice) absl::StrAppend(&out, "%3 = ", prim, binary ? " %1, %0" : " %1", " : f32\n");
      return absl::StrCat(out, "store %2 p2 [0: 1]\n", twice ? "store %3 p3 [0: 1]\n" : "");
    };
    TESSERA_ASSERT_OK_AND_ASSIGN(const Kernel once, ParseKernel(text(false)));
    TESSERA_ASSERT_OK_AND_ASSIGN(const Kernel twice, ParseKernel(text(true)));
    const auto code = Compile({once, twice});
    ASSERT_NE(code, nullptr);
    std::vector<float> x(kSize), y(kSize), once_x(kSize), once_y(kSize), twice_xy[2];
    for (int i = 0; i < kSize; ++i) {
      x[i] = i % 9 == 0 ? 1e30F * static_cast<float>(i) : 0.37F * static_cast<float>(i - 20);
      y[i] = 2.5F - 0.11F * static_cast<float>(i);
    }
    for (std::vector<float>& b : twice_xy) b.resize(kSize);
    const auto run = [&](int kernel, std::vector<void*> buffers) {
      code->function(kernel)(buffers.data(), 0, kSize);
    };
    run(0, {x.data(), y.data(), once_x.data()});
    run(0, {y.data(), x.data(), once_y.data()});
    run(1, {x.data(), y.data(), twice_xy[0].data(), twice_xy[1].data()});
    EXPECT_EQ(std::memcmp(once_x.data(), twice_xy[0].data(), kSize * sizeof(float)), 0) << prim;
    EXPECT_EQ(std::memcmp(once_y.data(), twice_xy[1].data(), kSize * sizeof(float)), 0) << prim;
  }
}

// ---- Reductions. -------------------------------------------------------------------------------

const char* const kReductions[] = {"sum f32",    "sum s32",    "sum s64",    "sum f64",
                                   "prod f32",   "max f32",    "min f64",    "max s32",
                                   "min u32",    "max bool",   "and bool",   "or s32",
                                   "argmax f32", "argmin f64", "argmax s64", "argmin bool"};

// Returns a kernel that reduces `kept` rows, or `kept` columns, of `n` elements.
Kernel ReductionOf(const std::string& what, int64_t kept, int64_t n, bool columns) {
  const std::vector<std::string> words = absl::StrSplit(what, ' ');
  const std::string result = words[0].rfind("arg", 0) == 0 ? "s32" : words[1];
  const absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(
      "kernel [", kept, ",", n, "] reduced 1\nin ", words[1], " ", kept * n, "\nout ", result, " ",
      kept, "\n%0 = load p0 [0: ", columns ? 1 : n, ",", columns ? kept : 1, "] : ", words[1],
      "\n%1 = reduce ", words[0], " %0 : ", result, "\nstore %1 p1 [0: 1,0]\n"));
  EXPECT_THAT(kernel, IsOk());
  return *kernel;
}

// Sums and products of special values depend on the order, so these kernels get ordinary values.
template <class T>
void Tame(TestBuffers* buffers, int64_t n) {
  T* const values = static_cast<T*>(buffers->pointers()[0]);
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<T>(1 + (i * 37 % 101 - 50) * 1e-4);
}
TestBuffers ReductionBuffers(const Kernel& kernel, const std::string& what, uint32_t seed) {
  TestBuffers buffers(kernel, seed, 1);
  if (what == "sum f32" || what == "prod f32") Tame<float>(&buffers, kernel.params[0].size);
  if (what == "sum f64") Tame<double>(&buffers, kernel.params[0].size);
  return buffers;
}

TEST_P(EmitHostTest, ReductionsOfAllSizesAgreeWithTheInterpreter) {
  for (const std::string what : kReductions) {
    std::vector<Kernel> kernels;
    for (const int64_t n : {1, 7, 8, 9, 16, 17, 33, 63, 64, 65, 129, 1000})
      for (const bool columns : {false, true}) kernels.push_back(ReductionOf(what, 9, n, columns));
    for (const int64_t kept : {1, 15, 17, 64, 65, 130})
      kernels.push_back(ReductionOf(what, kept, 3, /*columns=*/true));
    const auto code = Compile(kernels);
    ASSERT_NE(code, nullptr);
    for (size_t k = 0; k < kernels.size(); ++k) {
      const Kernel& kernel = kernels[k];
      for (uint32_t seed = 0; seed < 3; ++seed) {
        TestBuffers got = ReductionBuffers(kernel, what, seed), want = got, again = got;
        const int64_t kept = kernel.num_iterations();
        Interpret(kernel, want.pointers(), 0, kept);
        code->function(k)(got.pointers().data(), 0, kept);
        EXPECT_EQ(Difference(kernel, got, want, {.relative = 1e-5, .zero_signs = false}), "")
            << what << " seed " << seed << "\n"
            << kernel.ToString();
        // Iterations one after the other give the same bits: the order of a reduction does not
        // depend on the range.
        for (int64_t i = 0; i < kept; ++i) code->function(k)(again.pointers().data(), i, i + 1);
        EXPECT_EQ(Difference(kernel, again, got, {}), "") << what;
      }
    }
  }
}

// Returns the product of a[b, m, k] and b[b, k, n], summed over k.
Kernel Product(int64_t batch, int64_t m, int64_t n, int64_t k) {
  const absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(
      "kernel [", batch, ",", m, ",", n, ",", k, "] reduced 1\nin f32 ", batch * m * k, "\nin f32 ",
      batch * k * n, "\nout f32 ", batch * m * n, "\n%0 = load p0 [0: ", m * k, ",", k,
      ",0,1] : f32\n%1 = load p1 [0: ", k * n, ",0,1,", n,
      "] : f32\n%2 = Mul %0, %1 : f32\n%3 = reduce sum %2 : f32\nstore %3 p2 [0: ", m * n, ",", n,
      ",1,0]\n"));
  EXPECT_THAT(kernel, IsOk());
  return *kernel;
}

// Rows are computed together, or separately if the range begins or ends between them.
TEST_P(EmitHostTest, AProductHasTheSameBitsInEveryRange) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const HostTarget target, FindHostTarget(GetParam()));
  const std::vector<Kernel> kernels = {Product(1, 12, 40, 33), Product(3, 8, 16, 5),
                                       Product(1, 7, 100, 20), Product(2, 16, 64, 64)};
  EXPECT_GT(PlanHost(Canonical(kernels[0]), target).rows, 1);
  const auto code = Compile(kernels);
  ASSERT_NE(code, nullptr);
  for (size_t k = 0; k < kernels.size(); ++k) {
    const Kernel& kernel = kernels[k];
    const int64_t n = kernel.num_iterations();
    TestBuffers whole = TestBuffers::Tame(kernel, 1), want = TestBuffers::Tame(kernel, 1);
    code->function(static_cast<int>(k))(whole.pointers().data(), 0, n);
    Interpret(kernel, want.pointers(), 0, n);
    EXPECT_EQ(Difference(kernel, whole, want, {.relative = 1e-5}), "");
    for (const int64_t step : {int64_t{1}, int64_t{17}, kernel.shape[2], 3 * kernel.shape[2] + 5}) {
      TestBuffers cut = TestBuffers::Tame(kernel, 1);
      for (int64_t i = 0; i < n; i += step)
        code->function(static_cast<int>(k))(cut.pointers().data(), i, std::min(n, i + step));
      EXPECT_EQ(Difference(kernel, cut, whole, {}), "") << "in steps of " << step;
      EXPECT_TRUE(cut.GuardsHold());
    }
  }
}

TEST_P(EmitHostTest, EmptyReductionsGiveTheIdentity) {
  for (const std::string what : kReductions) {
    if (what.rfind("arg", 0) == 0) continue;  // it has no identity
    const Kernel kernel = ReductionOf(what, 70, 0, /*columns=*/false);
    const auto code = Compile({kernel});
    ASSERT_NE(code, nullptr);
    TestBuffers got(kernel, 1), want(kernel, 1);
    Interpret(kernel, want.pointers(), 0, 70);
    code->function(0)(got.pointers().data(), 0, 70);
    EXPECT_EQ(Difference(kernel, got, want, {}), "") << what;
  }
}

// The error does not grow with the number of terms that one lane adds.
TEST_P(EmitHostTest, LongSumsAreAccurate) {
  constexpr int64_t kTerms = (int64_t{1} << 22) - 2;
  const std::vector<float> in(2 * kTerms + 3, 0.1f);
  // The lanes are along the terms, or along the dim that is kept.
  for (const std::string strides : {"0,1", "1,2"}) {
    const absl::StatusOr<Kernel> kernel =
        ParseKernel(absl::StrCat("kernel [3,", kTerms, "] reduced 1\nin f32 ", in.size(),
                                 "\nout f32 3\n%0 = load p0 [0: ", strides,
                                 "] : f32\n%1 = reduce sum %0 : f32\nstore %1 p1 [0: 1,0]\n"));
    ASSERT_THAT(kernel, IsOk());
    const auto code = Compile({*kernel});
    ASSERT_NE(code, nullptr);
    float out[3] = {};
    void* const buffers[] = {const_cast<float*>(in.data()), out};
    code->function(0)(buffers, 0, 3);
    const double exact = static_cast<double>(0.1f) * kTerms;
    for (const float sum : out) EXPECT_NEAR(sum, exact, 1e-4 * exact) << strides;
  }
}

// A NaN wins over every number, wherever it is, and argmax returns the index of the first NaN.
TEST_P(EmitHostTest, ExtremaOfNaNsAreNaN) {
  constexpr int kElements = 200;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool columns : {false, true}) {
    const auto code = Compile({ReductionOf("max f32", 1, kElements, columns),
                               ReductionOf("min f32", 1, kElements, columns),
                               ReductionOf("argmax f32", 1, kElements, columns),
                               ReductionOf("argmin f32", 1, kElements, columns)});
    ASSERT_NE(code, nullptr);
    for (int at = 0; at < kElements; ++at) {
      std::vector<float> in(kElements, 3.0f);
      in[at] = in[at / 2 + kElements / 2] = nan;
      float extremum = 0;
      int32_t index = -1;
      void* const to_value[] = {in.data(), &extremum};
      void* const to_index[] = {in.data(), &index};
      for (int k = 0; k < 2; ++k) {
        extremum = 0;
        code->function(k)(to_value, 0, 1);
        EXPECT_TRUE(std::isnan(extremum)) << at;
        code->function(2 + k)(to_index, 0, 1);
        EXPECT_EQ(index, std::min(at, at / 2 + kElements / 2));
      }
    }
  }
}

// argmax returns the first of equal elements, even if all equal the result of an empty reduction.
TEST_P(EmitHostTest, ArgMaxReturnsTheFirstOfEqualElements) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto code = Compile({ReductionOf("argmax f32", 1, 200, false)});
  ASSERT_NE(code, nullptr);
  for (const float value : {-inf, inf, 0.0f}) {
    std::vector<float> in(200, value);
    int32_t index = -1;
    void* const buffers[] = {in.data(), &index};
    code->function(0)(buffers, 0, 1);
    EXPECT_EQ(index, 0);
    if (value == inf) continue;
    in[131] = in[150] = 1.0f;
    code->function(0)(buffers, 0, 1);
    EXPECT_EQ(index, 131);
  }
}

// ---- Arrays beyond the caches. -----------------------------------------------------------------

// Runs the code for large arrays on small ones: stores bypass the caches, at any alignment.
TEST_P(EmitHostTest, NonTemporalStoresWriteTheSameBits) {
  TESSERA_ASSERT_OK_AND_ASSIGN(HostTarget target, FindHostTarget(GetParam()));
  target.cache_bytes = 0;
  HostCodegen codegen(target);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto loader, HostLoader::Create());
  for (const std::string dtype : {"f32", "f64", "bf16", "bool", "s64"}) {
    for (const int64_t inner : {1024, 1500}) {
      const int64_t all = 3 * inner;
      TESSERA_ASSERT_OK_AND_ASSIGN(
          const Kernel kernel,
          ParseKernel(absl::StrCat("kernel [3,", inner, "] reduced 0\nin f32 ", all, "\nout f32 ",
                                   all, "\nout ", dtype, " ", all, "\n%0 = load p0 [0: ", inner,
                                   ",1] : f32\n%1 = Neg %0 : f32\n%2 = Convert %0 : ", dtype,
                                   "\nstore %1 p1 [0: ", inner, ",1]\nstore %2 p2 [0: ", inner,
                                   ",1]\n")));
      const HostPlan plan = PlanHost(kernel, target);
      EXPECT_TRUE(plan.nontemporal_stores);
      EXPECT_TRUE(
          PlanHost(KernelOfPrim(ScalarPrim::kTanh, DType::kF32, DType::kF32, 1 << 20), target)
              .prefetch);
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::string object, codegen.Compile(kernel));
      TESSERA_ASSERT_OK_AND_ASSIGN(const auto function, loader->Load(object, kFunctionName));
      const HostCode code({function}, /*num_kernels=*/1);
      for (int misaligned = 0; misaligned < 17; ++misaligned) {
        TestBuffers got(kernel, 5, misaligned), want(kernel, 5, misaligned);
        Interpret(kernel, want.pointers(), 0, all);
        const int64_t cut = all / 2 + misaligned;
        code.function(0)(got.pointers().data(), 0, cut);
        code.function(0)(got.pointers().data(), cut, all);
        EXPECT_EQ(Difference(kernel, got, want, {}), "") << dtype << " " << misaligned;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EmitHostTest, ::testing::Values("baseline", "avx2", "avx512"),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace tessera::worker::codegen
