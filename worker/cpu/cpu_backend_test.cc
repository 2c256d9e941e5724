// Tests of the CPU backend and of its parts: matmuls, native loops, sort steps, the host pool, the
// thread pool and dumps. Programs are built or parsed here, run on a backend, and compared with the
// evaluator or with the same steps run one by one.
#include "worker/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "base/dump_folder.h"
#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/program_hash.h"
#include "ir/strided.h"
#include "ir/text.h"
#include "worker/cpu/host_pool.h"
#include "worker/cpu/native_loop.h"
#include "worker/cpu/onednn_matmul.h"
#include "worker/cpu/thread_pool.h"
#include "worker/program/build.h"
#include "worker/program/testing/random_program.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::Builder;
using ir::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

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

ir::Program ProgramOf(ir::FunctionRef entry) {
  ir::Program program;
  program.entry = std::move(entry);
  return program;
}

absl::StatusOr<std::vector<Array>> RunOn(Backend& backend, const ir::FunctionRef& f,
                                         std::vector<Array> in) {
  TESSERA_ASSIGN_OR_RETURN(const auto executable, backend.Compile(ProgramOf(f)));
  CancelToken never_cancelled;
  RunContext context;
  context.cancel = &never_cancelled;
  std::vector<DeviceBufferRef> args;
  for (Array& a : in) {
    TESSERA_ASSIGN_OR_RETURN(DeviceBufferRef arg, backend.FromHost(0, std::move(a)));
    args.push_back(std::move(arg));
  }
  TESSERA_ASSIGN_OR_RETURN(const Enqueued enqueued, backend.Enqueue(*executable, context, args));
  std::vector<Array> out;
  for (const DeviceBufferRef& r : enqueued.results) {
    TESSERA_ASSIGN_OR_RETURN(Array a, backend.ToHost(*r));
    out.push_back(std::move(a));
  }
  return out;
}

// Runs a program with compiled kernels, whatever its size.
absl::StatusOr<std::vector<Array>> RunCompiled(const ir::FunctionRef& f, std::vector<Array> in) {
  return RunOn(*MakeCpuBackend({.kernels = CpuBackendOptions::Kernels::kAlways}), f, std::move(in));
}

TEST_P(DotTest, AgreesWithTheEvaluator) {
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
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> results, RunCompiled(f, in));
  const Array* const got = &results.at(0);
  TESSERA_ASSERT_OK_AND_ASSIGN(std::vector<Array> want, ir::Evaluate(*f, in));
  ASSERT_EQ(got->shape(), want[0].shape());
  int64_t k = 1;
  for (int64_t d : c.dims.lhs_contract) k *= c.lhs[d];
  const double eps = c.dtype == DType::kBF16 ? std::pow(2.0, -8) : std::pow(2.0, -23);
  for (int64_t i = 0; i < got->num_elements(); ++i) {
    // Here |sum| <= k, because every term is at most 1.
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

TEST(DotTest, OtherDtypesAndEmptyArraysAgreeWithTheEvaluator) {
  for (const auto& [dtype, rows, inner] : {std::tuple{DType::kF64, 2, 3},
                                           {DType::kS32, 2, 3},
                                           {DType::kF32, 0, 3},
                                           {DType::kF32, 2, 0}}) {
    Builder b({});
    ir::Value x = b.Param(ir::MakeType(dtype, {rows, inner}));
    ir::Value y = b.Param(ir::MakeType(dtype, {inner, 2}));
    const ir::FunctionRef f = b.Build({{ir::Matmul2D(x, y)}});
    std::vector<Array> in = {Array(dtype, {rows, inner}), Array(dtype, {inner, 2})};
    for (Array& a : in)
      for (int64_t i = 0; i < a.num_elements(); ++i) a.Set(i, static_cast<double>(i + 1));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunCompiled(f, in));
    EXPECT_EQ(got[0], want[0]);
  }
}

ir::FunctionRef Chain(int ops, int64_t elements = 256) {
  Builder b({});
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {elements}));
  for (int i = 0; i < ops; ++i) {
    b.SetSite({"/src/model.cc", 10 + i});
    x = ir::Neg(x);
  }
  return b.Build({{x}});
}

TEST(CpuBackendTest, CancelStopsBetweenOps) {
  std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, backend->Compile(ProgramOf(Chain(4, 64))));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto arg, backend->FromHost(0, Random(DType::kF32, {64}, 1)));
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
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, backend->Compile(ProgramOf(Chain(3, 64))));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto arg, backend->FromHost(0, Random(DType::kF32, {64}, 1)));
  InFlightPage page(1);
  CancelToken cancel;
  RunContext context;
  context.cancel = &cancel;
  InFlightQueue queue(&page.slot(0));
  context.in_flight = queue.Begin(9);
  ASSERT_THAT(backend->Enqueue(*executable, context, {arg}), IsOk());
  // Another mapping of the page shows the op, just as the mapping in the daemon would.
  InFlightPage seen(page.fd(), 1);
  EXPECT_EQ(seen.LikelyCulprit().launch, 9u);
  EXPECT_EQ(seen.LikelyCulprit().op, "neg (model.cc:12)");
}

// The devices of an executor share the oneDNN primitives.
TEST(CpuBackendTest, DevicesMultiplyAtTheSameTime) {
  OneDnnMatmul matmul;
  // oneDNN packs these operands into scratch memory first.
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

// A compiled program reports its steps as an evaluated program reports its ops.
TEST(CpuBackendTest, AFusedKernelIsReportedAsItsFirstOp) {
  const std::unique_ptr<Backend> backend =
      MakeCpuBackend({.kernels = CpuBackendOptions::Kernels::kAlways});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, backend->Compile(ProgramOf(Chain(3))));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto arg, backend->FromHost(0, Random(DType::kF32, {256}, 1)));
  InFlightPage page(1);
  CancelToken cancel;
  RunContext context;
  context.cancel = &cancel;
  InFlightQueue queue(&page.slot(0));
  context.in_flight = queue.Begin(9);
  ASSERT_THAT(backend->Enqueue(*executable, context, {arg}), IsOk());
  EXPECT_EQ(page.slot(0).Read().op, "neg (model.cc:10)");
  EXPECT_TRUE(cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough")));
  EXPECT_THAT(backend->Enqueue(*executable, context, {arg}), ReasonIs("CANCELLED", "enough"));
}

TEST(CpuBackendTest, MemoryBytesCoverArgumentsResultsAndIntermediates) {
  const std::unique_ptr<Backend> backend =
      MakeCpuBackend({.kernels = CpuBackendOptions::Kernels::kAlways});
  // A chain is one kernel, so that its intermediate results need no memory.
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto chain, backend->Compile(ProgramOf(Chain(5))));
  EXPECT_EQ(chain->memory_bytes(), 2 * 1024);
  // A product of 16 x 16 lives until the next product has read it.
  Builder b({});
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {16, 16}));
  const ir::Value y = ir::Matmul2D(x, x);
  const ir::FunctionRef f = b.Build({{ir::Matmul2D(y, x)}});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto products, backend->Compile(ProgramOf(f)));
  EXPECT_GE(products->memory_bytes(), 3 * 1024);
  EXPECT_LE(products->memory_bytes(), 3 * 1024 + 4096) << "scratch of the library at most";
}

TEST(CpuBackendTest, AShortChainIsQuickAndALargeMatmulIsNot) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto little, backend->Compile(ProgramOf(Chain(2))));
  EXPECT_TRUE(little->quick());
  Builder b({});
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {512, 512}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto much,
                               backend->Compile(ProgramOf(b.Build({{ir::Matmul2D(x, x)}}))));
  EXPECT_FALSE(much->quick());
}

// A brief executable ends so soon that a thread that waits for its results may run it.
TEST(CpuBackendTest, ProgramsOfAFewMillisecondsAreBrief) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  for (const auto& [elements, brief] : {std::pair(1 << 20, true), std::pair(1 << 24, false)}) {
    Builder b({});
    const ir::Value x = b.Param(ir::MakeType(DType::kF32, {elements}));
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable,
                                 backend->Compile(ProgramOf(b.Build({{ir::Neg(x)}}))));
    EXPECT_FALSE(executable->quick());
    EXPECT_EQ(executable->brief(), brief) << elements;
  }
}

// The program only copies, whatever the number of places where the slice may begin.
TEST(CpuBackendTest, ASliceAtARunTimeOffsetIsQuick) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  Builder b({});
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {1024}));
  const ir::Value start = b.Param(ir::MakeType(DType::kS32, {}));
  const ir::Value slice = ir::DynamicSlice(x, {start}, {512});
  const ir::Value updated = ir::DynamicUpdateSlice(x, slice, {start});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable,
                               backend->Compile(ProgramOf(b.Build({{slice, updated}}))));
  EXPECT_TRUE(executable->quick());
}

// For the same work, the evaluator takes longer than compiled code.
TEST(CpuBackendTest, HostStepsAreQuickOnlyOnFewElements) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  for (const auto& [elements, quick] : {std::pair(1024, true), std::pair(4096, false)}) {
    for (const bool by_host : {true, false}) {
      Builder b({});
      const ir::Value x = b.Param(ir::MakeType(DType::kF32, {elements}));
      const ir::Value sums = by_host ? ir::Cumlogsumexp(x, 0) : ir::Cumsum(x, 0);
      TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable,
                                   backend->Compile(ProgramOf(b.Build({{sums}}))));
      EXPECT_EQ(executable->quick(), quick || !by_host) << elements;
    }
  }
}

// A computation with a loop on a condition may never end, so it must not run on the thread that
// reads commands.
TEST(CpuBackendTest, AComputationThatMayNotEndIsNotBrief) {
  const auto scalar = ir::MakeType(DType::kF32, {});
  Builder predicate({}), body({}), computation({});
  const ir::Value c = predicate.Param(scalar);
  const ir::FunctionRef always = predicate.Build({{ir::Compare(c, c, "EQ")}});
  const ir::FunctionRef same = body.Build({{ir::Neg(body.Param(scalar))}});
  const ir::Value l = computation.Param(scalar), r = computation.Param(scalar);
  const std::vector<ir::Value> out = ir::While(computation, always, same, {{ir::Add(l, r)}}, 0, 0);
  const ir::FunctionRef endless = computation.Build({{out[0]}});
  Builder b({});
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {64}));
  const ir::Value zero = ir::Constant(b, DType::kF32, 0);
  const ir::Value reduced = ir::Reduce({x}, {zero}, endless, {0})[0];
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable,
                               backend->Compile(ProgramOf(b.Build({{reduced}}))));
  EXPECT_FALSE(executable->brief());
}

// The scatter becomes a copy of the update, which is an argument or was written by an earlier step.
TEST(CpuBackendTest, AScatterOfTheWholeOperandWritesTheUpdate) {
  constexpr int64_t kSize = 64;
  for (const bool computed : {false, true}) {
    Builder b({});
    const ir::Value x = b.Param(ir::MakeType(DType::kF32, {kSize}));
    const ir::Value at = b.Param(ir::MakeType(DType::kS32, {1}));
    ir::Value update = b.Param(ir::MakeType(DType::kF32, {kSize}));
    if (computed) update = ir::Cumsum(update, 0);
    const ir::Value out =
        ir::Scatter(x, at, update, {{0}, {}, {0}}, {.mode = ir::GatherScatterMode::kClip});
    const ir::FunctionRef f = b.Build({{out, update}});
    std::vector<Array> in = {Array(DType::kF32, {kSize}), Array(DType::kS32, {1}),
                             Array(DType::kF32, {kSize})};
    for (int64_t i = 0; i < kSize; ++i) in[2].Set(i, static_cast<double>(i + 1));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunCompiled(f, in));
    EXPECT_TRUE(got[0] == want[0]) << got[0].ToString();
    EXPECT_TRUE(got[1] == want[1]) << got[1].ToString();
  }
}

// Covers fusion, shared memory and memory that is overwritten.
TEST(CpuBackendTest, RandomProgramsAgreeWithTheEvaluator) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const ir::FunctionRef f = program::RandomProgram(seed);
    std::vector<Array> in;
    for (int i = 0; i < f->num_params; ++i) in.push_back(program::WholeNumbers(f->types[i], i));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
    const absl::StatusOr<std::vector<Array>> got = RunCompiled(f, in);
    ASSERT_THAT(got, IsOk()) << "seed " << seed;
    for (size_t r = 0; r < want.size(); ++r)
      ASSERT_TRUE((*got)[r] == want[r])
          << "seed " << seed << ", result " << r << " is " << (*got)[r].ToString() << "\nexpected "
          << want[r].ToString() << "\n"
          << ir::PrintFunction(*f);
  }
}

// ---- Loops as native code. ---------------------------------------------------------------------

// Runs a program with compiled kernels, every step by itself.
absl::StatusOr<std::vector<Array>> RunStepByStep(const ir::FunctionRef& f, std::vector<Array> in) {
  return RunOn(*MakeCpuBackend({.kernels = CpuBackendOptions::Kernels::kStepByStep}), f,
               std::move(in));
}

ir::FunctionRef Parsed(const std::string& text) {
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(text);
  EXPECT_THAT(program, IsOk());
  return program.ok() ? program->entry : nullptr;
}

std::vector<NativeLoop> NativeLoopsOf(const ir::FunctionRef& f) {
  program::BuildOptions options;
  options.has_matmul = [](DType in, DType) { return in == DType::kF32; };
  options.has_scan = [](const ir::ScanSize&) { return true; };
  const absl::StatusOr<program::StepProgram> built = program::Build(*f, options);
  EXPECT_THAT(built, IsOk());
  return FindNativeLoops(*built);
}

TEST(NativeLoopTest, RandomNativeLoopsHaveTheBitsOfInterpretedLoops) {
  int loops = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    const ir::FunctionRef f = program::RandomProgram(seed);
    const std::vector<NativeLoop> native = NativeLoopsOf(f);
    if (native.empty()) continue;
    loops += static_cast<int>(native.size());
    std::vector<Array> in;
    for (int i = 0; i < f->num_params; ++i)
      in.push_back(f->types[i].dtype == DType::kF32
                       ? Random(DType::kF32, f->types[i].shape, static_cast<int>(seed) + i)
                       : program::WholeNumbers(f->types[i], i));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, RunStepByStep(f, in));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunCompiled(f, in));
    for (size_t r = 0; r < want.size(); ++r)
      ASSERT_TRUE(got[r] == want[r])
          << "seed " << seed << ", result " << r << " is " << got[r].ToString() << "\nexpected "
          << want[r].ToString() << "\n"
          << ir::PrintFunction(*f);
  }
  EXPECT_GT(loops, 50);
}

// A loop on a condition around branches, with a product by the library and a product by our own
// kernels.
constexpr char kMixed[] = R"(func main(%x: f32[16,16], %n: s32[]) -> (f32[16,16], s32[]) {
  %i = constant() {value=dense<s32[]: 0>}
  %r0, %r1, %r2 = while(%n, %i, %x, %n) {num_predicate_consts=1, num_body_consts=0} with
    func below(%k: s32[], %i: s32[], %a: f32[16,16], %m: s32[]) -> (bool[]) {
      %p = compare(%i, %k) {direction="LT"}
      return %p
    }
    func step(%i: s32[], %a: f32[16,16], %m: s32[]) -> (s32[], f32[16,16], s32[]) {
      %one = constant() {value=dense<s32[]: 1>}
      %j = add(%i, %one)
      %t = transpose(%a) {permutation=[1,0]}
      %c = case(%i, %a, %t) with
        func first(%a: f32[16,16], %t: f32[16,16]) -> (f32[16,16]) {
          %s = add(%a, %t)
          return %s
        }
        func second(%a: f32[16,16], %t: f32[16,16]) -> (f32[16,16]) {
          %d = dot_general(%a, %t) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], rhs_contracting_dimensions=[0]}
          return %d
        }
        func third(%a: f32[16,16], %t: f32[16,16]) -> (f32[16,16]) {
          %d = dot_general(%t, %a) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], rhs_contracting_dimensions=[0]}
          %u = tanh(%d)
          return %u
        }
      return %j, %c, %j
    }
  return %r1, %r0
})";

TEST(NativeLoopTest, WhileLoopsWithBranchesAndMatmulsHaveTheBitsOfInterpretedLoops) {
  const ir::FunctionRef f = Parsed(kMixed);
  ASSERT_NE(f, nullptr);
  ASSERT_EQ(NativeLoopsOf(f).size(), 1U);
  for (const int64_t trips : {0, 1, 2, 3, 7}) {
    const std::vector<Array> in = {Random(DType::kF32, {16, 16}, 3),
                                   Array::ScalarInt(DType::kS32, trips)};
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, RunStepByStep(f, in));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunCompiled(f, in));
    EXPECT_TRUE(got[0] == want[0]) << trips;
    EXPECT_EQ(got[1].At(0), static_cast<double>(trips));
  }
}

std::string ScanText(int64_t rows, int64_t columns, const std::string& body) {
  return absl::StrCat("func main(%c: f32[", columns, "], %xs: f32[", rows, ",", columns,
                      "]) -> (f32[", columns, "]) {\n",
                      "  %r = scan(%c, %xs) {num_consts=0, num_carry=1, length=", rows,
                      ", reverse=false} with\n    func body(%a: f32[", columns, "], %x: f32[",
                      columns, "]) -> (f32[", columns, "]) {\n", body, "    }\n  return %r\n}\n");
}

TEST(NativeLoopTest, LoopsOfSmallKernelsAreNativeAndLoopsOfLargeKernelsAreNot) {
  const std::string add = "      %s = add(%a, %x)\n      return %s\n";
  const std::vector<NativeLoop> small = NativeLoopsOf(Parsed(ScanText(5, 16, add)));
  ASSERT_EQ(small.size(), 1U);
  EXPECT_TRUE(small[0].called_steps.empty());
  // This kernel runs on several threads.
  EXPECT_TRUE(NativeLoopsOf(Parsed(ScanText(2, 1 << 20, add))).empty());
}

// Returns the status of a run that is cancelled once an op is in flight whose name contains `op`.
absl::Status CancelledDuring(absl::string_view op, Backend& backend, const Executable& executable,
                             const DeviceBufferRef& arg) {
  InFlightPage page(1);
  InFlightQueue queue(&page.slot(0));
  CancelToken cancel;
  RunContext context;
  context.cancel = &cancel;
  context.in_flight = queue.Begin(9);
  absl::Status status;
  std::thread running([&] { status = backend.Enqueue(executable, context, {arg}).status(); });
  while (!absl::StrContains(page.slot(0).Read().op, op)) std::this_thread::yield();
  cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  running.join();
  return status;
}

// An endless loop polls the cancellation flag by itself, since no other thread and no step does it.
TEST(NativeLoopTest, ACancelEndsAnEndlessLoop) {
  const ir::FunctionRef f = Parsed(R"(func main(%x: f32[16]) -> (f32[16]) {
  %r = while(%x) {num_predicate_consts=0, num_body_consts=0} with
    func always(%a: f32[16]) -> (bool[]) {
      %s = reduce_max(%a) {dimensions=[0]}
      %p = compare(%s, %s) {direction="EQ"}
      return %p
    }
    func step(%a: f32[16]) -> (f32[16]) {
      %s = negate(%a)
      return %s
    }
  return %r
})");
  ASSERT_EQ(NativeLoopsOf(f).size(), 1U);
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, backend->Compile(ProgramOf(f)));
  EXPECT_FALSE(executable->brief()) << "nobody knows how long it runs";
  TESSERA_ASSERT_OK_AND_ASSIGN(auto arg, backend->FromHost(0, Random(DType::kF32, {16}, 1)));
  // The run is in the loop, or about to enter it, once the loop's op is in flight.
  EXPECT_THAT(CancelledDuring("while", *backend, *executable, arg),
              ReasonIs("CANCELLED", "enough"));
}

// A loop in native code calls back for a step without code, with the numbers of the current
// iterations, also from an inner loop.
TEST(NativeLoopTest, HostStepsAreCalledInEachIteration) {
  const std::string text =
      R"(func main(%c: f32[4], %xs: f32[3,5,4]) -> (f32[4], f32[3,5,4]) {
  %r, %ys = scan(%c, %xs) {num_consts=0, num_carry=1, length=3, reverse=true} with
    func outer(%a: f32[4], %rows: f32[5,4]) -> (f32[4], f32[5,4]) {
      %b, %sums = scan(%a, %rows) {num_consts=0, num_carry=1, length=5, reverse=false} with
        func inner(%a: f32[4], %x: f32[4]) -> (f32[4], f32[4]) {
          %s = OP(%x) {dimension=0, reverse=false}
          %t = add(%a, %s)
          return %t, %s
        }
      return %b, %sums
    }
  return %r, %ys
})";
  // The first op has no code, and the second is a kernel like others.
  for (const auto& [op, calls] :
       {std::pair("cumlogsumexp", size_t{1}), std::pair("cumsum", size_t{0})}) {
    const ir::FunctionRef f = Parsed(absl::StrReplaceAll(text, {{"OP", op}}));
    ASSERT_NE(f, nullptr);
    const std::vector<NativeLoop> native = NativeLoopsOf(f);
    ASSERT_EQ(native.size(), 1U);
    EXPECT_EQ(native[0].called_steps.size(), calls);
    const std::vector<Array> in = {program::WholeNumbers(f->types[0], 1),
                                   program::WholeNumbers(f->types[1], 2)};
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunCompiled(f, in));
    EXPECT_TRUE(got[0] == want[0]);
    EXPECT_TRUE(got[1] == want[1]);
  }
}

// ---- Sorts. ------------------------------------------------------------------------------------

// The sorted arrays are computed before the sort and used after it. A loop sorts one row in each
// iteration.
TEST(SortStepTest, SortsHaveTheBitsOfTheEvaluator) {
  const ir::FunctionRef f = Parsed(
      R"(func main(%x: f32[70,900], %k: bf16[900], %z: c64[900]) -> (f32[70,900], s32[70,900], bf16[900], c64[900], f32[900,7], s32[900,7], f32[70,900]) {
  %n = negate(%x)
  %i = iota() {dtype=s32, shape=[70,900], iota_dimension=1}
  %s, %p = sort(%n, %i) {dimension=1, is_stable=true, num_keys=1}
  %y = negate(%s)
  %m, %w = sort(%k, %z) {dimension=0, is_stable=true, num_keys=1}
  %t = transpose(%x) {permutation=[1,0]}
  %v, %q = top_k(%t) {k=7, dimension=1}
  %c = constant() {value=dense<f32[]: 0>}
  %l, %rows = scan(%c, %x) {num_consts=0, num_carry=1, length=70, reverse=true} with
    func step(%a: f32[], %row: f32[900]) -> (f32[], f32[900]) {
      %r = sort(%row) {dimension=0, is_stable=true, num_keys=1}
      return %a, %r
    }
  return %y, %p, %m, %w, %v, %q, %rows
})");
  ASSERT_NE(f, nullptr);
  std::vector<Array> in;
  for (int i = 0; i < f->num_params; ++i) in.push_back(program::WholeNumbers(f->types[i], i));
  in[0].MutableAs<float>()[17] = NAN;
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
  for (const int devices : {1, 8}) {  // with the threads of this machine, then with one
    const std::unique_ptr<Backend> backend =
        MakeCpuBackend({.num_devices = devices, .kernels = CpuBackendOptions::Kernels::kAlways});
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunOn(*backend, f, in));
    for (size_t r = 0; r < want.size(); ++r) EXPECT_TRUE(got[r] == want[r]) << "result " << r;
  }
}

TEST(SortStepTest, ScratchMemoryIsCounted) {
  constexpr int64_t kBytes = 4 << 20;
  const ir::FunctionRef f = Parsed(R"(func main(%x: s32[1048576]) -> (s32[1048576]) {
  %s = sort(%x) {dimension=0, is_stable=true, num_keys=1}
  return %s
})");
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable, backend->Compile(ProgramOf(f)));
  EXPECT_GE(executable->memory_bytes(), 4 * kBytes);  // argument, result, keys in two orders
  EXPECT_LE(executable->memory_bytes(), 4 * kBytes + kBytes / 4);
}

// A small sort runs its routine too, because there is nothing to compile.
TEST(SortStepTest, ASmallProgramOfSortsIsCompiled) {
  const ir::FunctionRef f = Parsed(R"(func main(%x: f32[64]) -> (f32[64]) {
  %s = sort(%x) {dimension=0, is_stable=true, num_keys=1}
  return %s
})");
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable, MakeCpuBackend({})->Compile(ProgramOf(f)));
  EXPECT_TRUE(executable->quick());
  EXPECT_GT(executable->memory_bytes(), 4 * 64 * 4);  // with scratch memory
}

// The program sorts for ever, unless it is cancelled.
TEST(SortStepTest, ACancelEndsASort) {
  const ir::FunctionRef f = Parsed(R"(func main(%x: f32[2000000]) -> (f32[2000000]) {
  %r = while(%x) {num_predicate_consts=0, num_body_consts=0} with
    func always(%a: f32[2000000]) -> (bool[]) {
      %p = constant() {value=dense<bool[]: 1>}
      return %p
    }
    func step(%a: f32[2000000]) -> (f32[2000000]) {
      %s = sort(%a) {dimension=0, is_stable=true, num_keys=1}
      %b = negate(%s)
      return %b
    }
  return %r
})");
  ASSERT_NE(f, nullptr);
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, backend->Compile(ProgramOf(f)));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto arg, backend->FromHost(0, Random(DType::kF32, {2'000'000}, 1)));
  EXPECT_THAT(CancelledDuring("sort", *backend, *executable, arg), ReasonIs("CANCELLED", "enough"));
}

// A loop with little work per iteration is compiled if it runs many ops in total.
TEST(CpuBackendTest, ALoopIsEvaluatedOnlyIfItsIterationsAreFew) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  const std::string add = "      %s = add(%a, %x)\n      return %s\n";
  const auto bytes = [&](int64_t trips) {
    const auto executable = backend->Compile(ProgramOf(Parsed(ScanText(trips, 2, add))));
    EXPECT_THAT(executable, IsOk());
    return (*executable)->memory_bytes();
  };
  // In an evaluated program the results of the body are values of their own.
  EXPECT_GT(bytes(20), 8 * 20 + 2 * 8);
  EXPECT_EQ(bytes(200), 8 * 200 + 2 * 8);
}

// The memory tells how a program runs: between its ops an evaluated program holds a value that a
// compiled program does not hold.
TEST(CpuBackendTest, SmallProgramsAreEvaluatedAndLargeOnesAreCompiled) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  const auto negated = [](int64_t elements, int ops) {
    Builder b({});
    ir::Value x = b.Param(ir::MakeType(DType::kF32, {elements}));
    for (int i = 0; i < ops; ++i) x = ir::Neg(x);
    return b.Build({{x}});
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto little, backend->Compile(ProgramOf(negated(64, 3))));
  EXPECT_EQ(little->memory_bytes(), 3 * 256);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto many_ops, backend->Compile(ProgramOf(negated(16, 60))));
  EXPECT_EQ(many_ops->memory_bytes(), 2 * 64);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto much, backend->Compile(ProgramOf(negated(1 << 16, 3))));
  EXPECT_EQ(much->memory_bytes(), 2 << 18);
}

// A function of the same number has the same bits in programs of every size.
TEST(CpuBackendTest, AFunctionsBitsDoNotDependOnTheSizeOfTheArray) {
  const auto sines = [](int64_t elements) -> absl::StatusOr<Array> {
    Builder b({});
    const ir::FunctionRef f = b.Build({ir::Sin(b.Param(ir::MakeType(DType::kF32, {elements})))});
    Array x(DType::kF32, {elements});
    for (int64_t i = 0; i < elements; ++i) x.Set(i, 0.37 * static_cast<double>(i % 300) - 50);
    TESSERA_ASSIGN_OR_RETURN(std::vector<Array> out, RunOn(*MakeCpuBackend({}), f, {x}));
    return std::move(out[0]);
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(const Array few, sines(300));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Array many, sines(30'000));
  EXPECT_EQ(ir::SliceBlock(many, {29'700}, {300}), few);
}

// An argument that is returned as a result is not copied.
TEST(CpuBackendTest, AnArgumentThatIsAResultIsShared) {
  Builder b({});
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {8, 4}));
  const ir::FunctionRef f = b.Build({ir::Reshape(x, {32}), ir::Neg(x)});
  const std::vector<Array> in = {Random(DType::kF32, {8, 4}, 1)};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunCompiled(f, in));
  EXPECT_EQ(got[0].data(), in[0].data());
  EXPECT_EQ(got[0].shape(), (ir::Dims{32}));
  EXPECT_NE(got[1].data(), in[0].data());
}

// The arrays are large enough for several threads, and every element must be there.
TEST(CpuBackendTest, LargeKernelsAndMatmulsAreSplitAmongThreads) {
  constexpr int64_t kN = 1 << 21, kM = 300;
  Builder b({});
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {kN}));
  ir::Value y = b.Param(ir::MakeType(DType::kF32, {kM, kM}));
  const ir::FunctionRef f = b.Build({{ir::Add(x, x), ir::Matmul2D(y, y)}});
  std::vector<Array> in = {Random(DType::kF32, {kN}, 1), Random(DType::kF32, {kM, kM}, 2)};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, RunCompiled(f, in));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
  EXPECT_TRUE(got[0] == want[0]);
  for (int64_t i = 0; i < kM * kM; ++i)
    ASSERT_NEAR(got[1].At(i), want[1].At(i), kM * kM * std::pow(2.0, -23)) << i;
}

// Large products go in pieces, between which the cancellation flag is polled.
TEST(CpuBackendTest, LargeProductsOfABatchHaveTheBitsOfSingleOnes) {
  constexpr int64_t kN = 2'100;  // a product takes more multiplications than a piece may have
  const ir::DotDims of_batch = {{0}, {0}, {2}, {1}}, of_one = {{}, {}, {1}, {0}};
  const auto product = [](ir::Dims shape, const ir::DotDims& dims) {
    Builder b({});
    const ir::Value x = b.Param(ir::MakeType(DType::kF32, shape)),
                    y = b.Param(ir::MakeType(DType::kF32, shape));
    return b.Build({{ir::DotGeneral(x, y, dims)}});
  };
  const Array x = Random(DType::kF32, {2, kN, kN}, 1), y = Random(DType::kF32, {2, kN, kN}, 2);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> both,
                               RunCompiled(product({2, kN, kN}, of_batch), {x, y}));
  const ir::FunctionRef single = product({kN, kN}, of_one);
  for (int64_t i = 0; i < 2; ++i) {
    const auto matrix = [i](const Array& a) {
      Array m(DType::kF32, {kN, kN});
      std::memcpy(m.MutableData(), a.data() + i * m.num_bytes(), m.num_bytes());
      return m;
    };
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> one,
                                 RunCompiled(single, {matrix(x), matrix(y)}));
    EXPECT_TRUE(one[0] == matrix(both[0])) << i;
  }
}

TEST(HostPoolTest, FreedMemoryIsReusedForTheSameSize) {
  HostPool pool(1 << 20);
  std::shared_ptr<std::byte[]> a = pool.Allocate(100'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.get()) % HostPool::kAlignment, 0u);
  std::byte* const address = a.get();
  EXPECT_EQ(pool.cached_bytes(), 0);
  a.reset();
  EXPECT_GE(pool.cached_bytes(), 100'000);
  EXPECT_EQ(pool.Allocate(99'999).get(), address);
}

TEST(HostPoolTest, MemoryBeyondTheBoundIsNotCached) {
  HostPool pool(100'000);
  pool.Allocate(1 << 20).reset();
  EXPECT_EQ(pool.cached_bytes(), 0);
  std::shared_ptr<std::byte[]> outlives = pool.Allocate(5000);
  {
    HostPool gone(1 << 20);
    outlives = gone.Allocate(50'000);
  }
  outlives[49'999] = std::byte{1};
}

// Covers helpers that spin and helpers that sleep: calls come in quick succession, and after a
// pause.
TEST(ThreadPoolTest, HelpersSleepAndWake) {
  ThreadPool pool(2);
  absl::Notification never;
  int64_t runs = 0;
  for (int i = 0; i < 300; ++i) {
    std::atomic<int> pieces{0};
    pool.Run(3, [&](int64_t) { ++pieces; });
    runs += pieces;
    if (i % 100 == 99) never.WaitForNotificationWithTimeout(absl::Milliseconds(2));
  }
  EXPECT_EQ(runs, 900);
}

TEST(ThreadPoolTest, EveryPieceOfConcurrentCallsRunsOnce) {
  ThreadPool pool(3);
  constexpr int kCallers = 4, kPieces = 200;
  std::vector<std::vector<std::atomic<int>>> runs;
  for (int c = 0; c < kCallers; ++c) runs.emplace_back(kPieces);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c)
    callers.emplace_back([&, c] { pool.Run(kPieces, [&](int64_t i) { ++runs[c][i]; }); });
  for (std::thread& t : callers) t.join();
  for (const auto& of_caller : runs)
    for (const std::atomic<int>& n : of_caller) EXPECT_EQ(n, 1);
}

// Compiles x * 2 + y with a dump. Returns the text of each file by its path below the folder.
std::map<std::string, std::string> FilesOfDump(CpuBackendOptions options) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) /
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(root);
  DumpFolder folder(root.string());
  options.dump = &folder;
  Builder b({}, "scale");
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {16}));
  const ir::Value y = b.Param(ir::MakeType(DType::kF32, {16}));
  const ir::FunctionRef f = b.Build({ir::Add(ir::Add(x, x), y)});
  EXPECT_THAT(MakeCpuBackend(options)->Compile(ProgramOf(f)), IsOk());
  std::map<std::string, std::string> files;
  const std::string program =
      absl::StrCat("device_", ir::StructuralHash(*f).substr(0, 12), "_scale");
  for (const auto& entry : fs::directory_iterator(root / program)) {
    std::ifstream in(entry.path());
    files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  fs::remove_all(root);
  const absl::StatusOr<ir::Program> read = ir::ParseProgram(files["01_device_program.txt"]);
  EXPECT_TRUE(read.ok() && ir::StructuralHash(*read->entry) == ir::StructuralHash(*f));
  return files;
}

TEST(CpuDumpTest, TheDeviceProgramAndEachStageOfItsStepProgramAreFiles) {
  const std::map<std::string, std::string> files =
      FilesOfDump({.kernels = CpuBackendOptions::Kernels::kAlways});
  EXPECT_THAT(files, ElementsAre(Key("01_device_program.txt"), Key("02_assign.txt"),
                                 Key("03_overlap.txt"), Key("04_row_tiles.txt")));
  EXPECT_THAT(files.at("04_row_tiles.txt"), HasSubstr("kernel 0 (s1, s2, s0)  # add; add\n"));
}

TEST(CpuDumpTest, AProgramThatIsEvaluatedHasItsDeviceProgramAlone) {
  EXPECT_THAT(FilesOfDump({}), ElementsAre(Key("01_device_program.txt")));
}

}  // namespace
}  // namespace tessera::worker
