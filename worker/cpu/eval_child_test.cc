// Tests of the processes that evaluate long host steps: which steps are long, that results have the
// bits of an evaluation in this process, and what becomes of a call whose process is killed,
// crashes or does not start. This test's binary is its own child: depending on its first argument,
// main() runs a correct child, one that spins or one that crashes.
#include "worker/cpu/eval_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/jail.h"
#include "base/log.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/unique_fd.h"
#include "ir/fft.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/program/build.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::Builder;
using ir::DType;
using ir::Value;
using testing::ChildrenOf;
using testing::CpuTicks;
using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kernels = CpuBackendOptions::Kernels;

constexpr char kSpinFlag[] = "--spin", kCrashFlag[] = "--crash";
// A bound that makes every host step long.
constexpr double kAllAreLong = -1;

EvalChildOptions Options(const char* flag = kEvalChildFlag) {
  return {.binary = std::filesystem::read_symlink("/proc/self/exe").string(),
          .args = {flag},
          .num_threads = 2};
}

// Returns an array of f32, f64 or complex numbers whose parts are random.
Array Random(DType dtype, ir::Dims shape, int seed = 1) {
  std::mt19937 gen(seed);
  Array a(dtype, std::move(shape));
  const auto fill = [&](auto* parts) {
    for (size_t i = 0; i < a.num_bytes() / sizeof *parts; ++i)
      parts[i] = static_cast<std::remove_pointer_t<decltype(parts)>>(
          static_cast<double>(static_cast<int32_t>(gen())) / 0x1p31);
  };
  if (dtype == DType::kF32 || dtype == DType::kC64) {
    fill(reinterpret_cast<float*>(a.MutableData()));
  } else {
    fill(reinterpret_cast<double*>(a.MutableData()));
  }
  return a;
}

// Counts the calls of another object.
class CountedSteps final : public LongSteps {
 public:
  explicit CountedSteps(LongSteps* steps) : steps_(*steps) {}
  absl::Status Evaluate(const ir::FunctionRef& function, const RunContext& context,
                        absl::Span<const absl::Span<const std::byte>> in,
                        absl::Span<const absl::Span<std::byte>> out) override {
    ++calls;
    return steps_.Evaluate(function, context, in, out);
  }
  int calls = 0;

 private:
  LongSteps& steps_;
};

// A backend whose host steps are all long, and a program on it.
class Runner {
 public:
  explicit Runner(LongSteps* long_steps, std::string tenant = "a")
      : backend_(MakeCpuBackend({.memory_bytes = int64_t{1} << 30,
                                 .kernels = Kernels::kAlways,
                                 .uninterrupted_operations_max = kAllAreLong,
                                 .long_steps = long_steps})),
        tenant_(std::move(tenant)) {}

  absl::StatusOr<std::vector<Array>> Run(const ir::FunctionRef& f, const std::vector<Array>& in) {
    ir::Program program;
    program.entry = f;
    TESSERA_ASSIGN_OR_RETURN(const auto executable, backend_->CompileFor(tenant_, program));
    RunContext context;
    context.tenant = tenant_;
    context.cancel = &cancel;
    std::vector<DeviceBufferRef> args;
    for (const Array& a : in) {
      TESSERA_ASSIGN_OR_RETURN(args.emplace_back(), backend_->FromHost(0, a));
    }
    TESSERA_ASSIGN_OR_RETURN(const Enqueued enqueued,
                             backend_->Enqueue(*executable, context, args));
    std::vector<Array> out;
    for (const DeviceBufferRef& r : enqueued.results) {
      TESSERA_ASSIGN_OR_RETURN(out.emplace_back(), backend_->ToHost(*r));
    }
    return out;
  }

  CancelToken cancel;

 private:
  const std::unique_ptr<Backend> backend_;
  const std::string tenant_;
};

// A function of one op, for a batch of square matrices.
ir::FunctionRef EighOf(const ir::Type& type) {
  Builder b({});
  const Value x = b.Param(type);
  b.SetSite({"/src/model.cc", 41});
  const auto [v, w] = ir::Eigh(x, /*lower=*/true);
  return b.Build({v, w});
}
ir::FunctionRef SmallEigh() { return EighOf(ir::MakeType(DType::kF32, {16, 16})); }
Array SmallMatrix() { return Random(DType::kF32, {16, 16}); }

TEST(EvalChildTest, ResultsHaveTheBitsOfAnEvaluationHere) {
  EvalChildren children(Options());
  CountedSteps counted(&children);
  Runner there(&counted), here(nullptr);
  int functions = 0;
  const auto expect_same_bits = [&](const std::string& what, const ir::FunctionRef& f,
                                    const std::vector<Array>& in) {
    SCOPED_TRACE(what);
    ++functions;
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, there.Run(f, in));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, here.Run(f, in));
    ASSERT_EQ(got.size(), want.size());
    for (size_t r = 0; r < got.size(); ++r) {
      ASSERT_EQ(got[r].shape(), want[r].shape());
      EXPECT_EQ(std::memcmp(got[r].data(), want[r].data(), got[r].num_bytes()), 0)
          << "result " << r;
    }
  };
  using Op = std::vector<Value> (*)(Value x, Value y);
  const std::pair<const char*, Op> kOps[] = {
      {"eigh", [](Value x, Value) { return std::vector{ir::Eigh(x, false).first}; }},
      {"svd", [](Value x, Value) { return ir::Svd(x, false, true, ""); }},
      {"svd by QR", [](Value x, Value) { return ir::Svd(x, true, true, "QR"); }},
      {"eig", [](Value x, Value) { return ir::Eig(x, {.left = true, .right = true}); }},
      {"schur", [](Value x, Value) { return ir::Schur(x, true); }},
      {"qr", [](Value x, Value) { return std::vector{ir::Qr(x, true).first}; }},
      {"lu",
       [](Value x, Value) {
         return std::vector{ir::Lu(x).lu, ir::Lu(x).permutation};
       }},
      {"cholesky", [](Value x, Value) { return std::vector{ir::Cholesky(x, true)}; }},
      {"triangular_solve",
       [](Value x, Value y) { return std::vector{ir::TriangularSolve(x, y, {.lower = true})}; }}};
  for (const auto& [name, op] : kOps)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128})
      for (const ir::Dims& shape : {ir::Dims{3, 70, 70}, ir::Dims{200, 200}}) {
        Builder b({});
        const Value x = b.Param(ir::MakeType(dtype, shape)),
                    y = b.Param(ir::MakeType(dtype, shape));
        expect_same_bits(absl::StrCat(name, " ", ToAbsl(ir::DTypeName(dtype)), " ", shape.size()),
                         b.Build(op(x, y)), {Random(dtype, shape), Random(dtype, shape, 2)});
      }
  // A single large matrix goes by blocks, which threads share.
  Builder lu({});
  const Value x = lu.Param(ir::MakeType(DType::kF32, {700, 600}));
  expect_same_bits("lu by blocks", lu.Build({ir::Lu(x).lu}), {Random(DType::kF32, {700, 600})});
  Builder fft({});
  const Value z = fft.Param(ir::MakeType(DType::kC64, {1 << 16}));
  expect_same_bits("fft", fft.Build({ir::Fft(z, ir::FftKind::kFft, {1 << 16})}),
                   {Random(DType::kC64, {1 << 16})});
  // NaNs are results, too, and an empty array has no memory.
  Array nan = SmallMatrix();
  nan.Set(3, std::numeric_limits<double>::quiet_NaN());
  expect_same_bits("a NaN", SmallEigh(), {nan});
  expect_same_bits("no matrices", EighOf(ir::MakeType(DType::kF32, {0, 4, 4})),
                   {Array(DType::kF32, {0, 4, 4})});
  EXPECT_GE(counted.calls, functions - 1) << "an empty batch may need no step";
}

// The types and axes of a device program, of which a host step is a part.
TEST(EvalChildTest, AStepMayBePartOfAProgramOnManyDevices) {
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(
      "mesh (i=2:manual)\n"
      "func main(%x: f32[8,8]{V:i}) -> (f32[8,8]{V:i}) {\n"
      "  %l = cholesky(%x) {lower=true}\n"
      "  return %l\n"
      "}\n");
  ASSERT_THAT(program, IsOk());
  EvalChildren children(Options());
  Array x(DType::kF32, {8, 8});
  for (int i = 0; i < 8; ++i) x.Set(9 * i, 4);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got,
                               Runner(&children).Run(program->entry, {x}));
  EXPECT_EQ(got[0].At(9), 2);
  EXPECT_THAT(ChildrenOf(getpid()), SizeIs(1));
}

// Returns whether the only host step of the function is long by the default bound.
bool IsLong(const ir::FunctionRef& f) {
  const absl::StatusOr<program::StepProgram> built = program::Build(*f, {});
  EXPECT_THAT(built, IsOk());
  bool is_long = false;
  int steps = 0;
  if (built.ok())
    program::ForEachStep(built->steps, [&](const program::Step& step) {
      if (const auto* host = std::get_if<program::HostStep>(&step.what))
        ++steps, is_long = host->is_long;
    });
  EXPECT_EQ(steps, 1);
  return is_long;
}

TEST(EvalChildTest, ItDependsOnTheOperationsWhetherAStepIsLong) {
  const auto eigh = [](DType dtype, ir::Dims shape) {
    return IsLong(EighOf(ir::MakeType(dtype, std::move(shape))));
  };
  EXPECT_FALSE(eigh(DType::kF32, {1000, 1000}));
  EXPECT_TRUE(eigh(DType::kF32, {1300, 1300}));
  EXPECT_TRUE(eigh(DType::kF32, {4000, 4000}));
  // Elements of twice the width take twice as long, and complex ones four times.
  EXPECT_TRUE(eigh(DType::kF64, {1000, 1000}));
  EXPECT_TRUE(eigh(DType::kC64, {800, 800}));
  EXPECT_TRUE(eigh(DType::kC128, {650, 650}));
  EXPECT_FALSE(eigh(DType::kC128, {450, 450}));
  // The operations of a batch are those of all its matrices, unless they are so small that the poll
  // between two matrices is enough.
  EXPECT_FALSE(eigh(DType::kF32, {2, 600, 600}));
  EXPECT_TRUE(eigh(DType::kF32, {8, 600, 600}));
  EXPECT_FALSE(eigh(DType::kF32, {1'000'000, 8, 8}));
  // An op that takes less time for a matrix of the same size.
  const auto one = [](ir::Dims shape, Value (*op)(Value)) {
    Builder b({});
    const Value x = b.Param(ir::MakeType(DType::kF32, std::move(shape)));
    return IsLong(b.Build({op(x)}));
  };
  const auto cholesky = [](Value x) { return ir::Cholesky(x, true); };
  EXPECT_FALSE(one({2000, 2000}, cholesky));
  EXPECT_TRUE(one({4000, 4000}, cholesky));
  // A single large matrix goes block by block, and a transform in pieces.
  const auto lu = [](Value x) { return ir::Lu(x).lu; };
  EXPECT_FALSE(one({8000, 8000}, lu));
  EXPECT_TRUE(one({2, 4000, 4000}, lu));
  Builder b({});
  const Value z = b.Param(ir::MakeType(DType::kC64, {1 << 26}));
  EXPECT_FALSE(IsLong(b.Build({ir::Fft(z, ir::FftKind::kFft, {1 << 26})})));
}

// Waits until the only child computes, and returns its pid.
int AwaitBusyChild() {
  std::vector<int> children;
  EXPECT_TRUE(Eventually([&] {
    children = ChildrenOf(getpid());
    return children.size() == 1 && CpuTicks(children[0]) > 20;
  }));
  return children.empty() ? -1 : children[0];
}

TEST(EvalChildTest, ACancelKillsTheChildAndEndsTheCallWithItsReason) {
  EvalChildren children(Options(kSpinFlag));
  Runner runner(&children);
  absl::Status status;
  std::thread caller([&] { status = runner.Run(SmallEigh(), {SmallMatrix()}).status(); });
  AwaitBusyChild();
  runner.cancel.Cancel(MakeError(ErrorKind::kCancelled, "the user has enough"));
  caller.join();
  EXPECT_THAT(status, ReasonIs("CANCELLED", "the user has enough"));
  EXPECT_THAT(ChildrenOf(getpid()), IsEmpty());
  // A call that is cancelled before it begins starts nothing.
  EXPECT_THAT(runner.Run(SmallEigh(), {SmallMatrix()}), ReasonIs("CANCELLED", HasSubstr("enough")));
  EXPECT_THAT(ChildrenOf(getpid()), IsEmpty());
}

TEST(EvalChildTest, AKilledChildFailsItsCallAndTheNextStartsAnother) {
  EvalChildren spinning(Options(kSpinFlag));
  Runner runner(&spinning);
  absl::Status status;
  std::thread caller([&] { status = runner.Run(SmallEigh(), {SmallMatrix()}).status(); });
  kill(AwaitBusyChild(), SIGKILL);
  caller.join();
  EXPECT_THAT(status, ReasonIs("OUT_OF_MEMORY", HasSubstr("was killed by signal 9 (Killed)")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("eigh (model.cc:41)"));

  EvalChildren children(Options());
  Runner other(&children);
  ASSERT_THAT(other.Run(SmallEigh(), {SmallMatrix()}), IsOk());
  const std::vector<int> first = ChildrenOf(getpid());
  ASSERT_THAT(first, SizeIs(1));
  kill(first[0], SIGKILL);
  // All its threads must have ended, and not only the first one.
  EXPECT_TRUE(Eventually([&] {
    siginfo_t end = {};
    return waitid(P_PID, static_cast<id_t>(first[0]), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           end.si_pid != 0;
  }));
  EXPECT_THAT(other.Run(SmallEigh(), {SmallMatrix()}), IsOk()) << "it ended between two calls";
}

TEST(EvalChildTest, AChildThatCrashesIsABug) {
  EvalChildren children(Options(kCrashFlag));
  Runner runner(&children);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = runner.Run(SmallEigh(), {SmallMatrix()}).status();
    EXPECT_THAT(status, ReasonIs("INTERNAL", HasSubstr("eigh (model.cc:41): the process that")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("please report it"));
  }
}

TEST(EvalChildTest, AChildThatDoesNotStartIsNamedWithTheReason) {
  EvalChildOptions options = Options();
  options.binary = "/no/such/program";
  EvalChildren children(options);
  EXPECT_THAT(Runner(&children).Run(SmallEigh(), {SmallMatrix()}),
              ReasonIs("INTERNAL", HasSubstr("eigh (model.cc:41): the process that would evaluate "
                                             "it did not start: cannot start /no/such/program")));
}

TEST(EvalChildTest, AChildIsKeptForItsTenantAndEndsWhenItIsIdle) {
  EvalChildOptions options = Options();
  options.idle_time = absl::Milliseconds(500);
  EvalChildren children(options);
  Runner a(&children, "a"), b(&children, "b");
  ASSERT_THAT(a.Run(SmallEigh(), {SmallMatrix()}), IsOk());
  const std::vector<int> of_a = ChildrenOf(getpid());
  ASSERT_THAT(of_a, SizeIs(1));
  EXPECT_TRUE(Eventually([] { return ChildrenOf(getpid()).empty(); }));

  // The children that these calls leave are idle for longer than the test takes.
  options.idle_time = absl::Hours(1);
  EvalChildren kept(options);
  Runner c(&kept, "c"), d(&kept, "d");
  ASSERT_THAT(c.Run(SmallEigh(), {SmallMatrix()}), IsOk());
  const std::vector<int> of_c = ChildrenOf(getpid());
  ASSERT_THAT(c.Run(SmallEigh(), {SmallMatrix()}), IsOk());
  EXPECT_EQ(ChildrenOf(getpid()), of_c) << "it is reused";
  ASSERT_THAT(d.Run(SmallEigh(), {SmallMatrix()}), IsOk());
  EXPECT_THAT(ChildrenOf(getpid()), SizeIs(2)) << "a child serves one tenant";
  for (int i = 0; i < 6; ++i)
    ASSERT_THAT(Runner(&kept, absl::StrCat("tenant", i)).Run(SmallEigh(), {SmallMatrix()}), IsOk());
  EXPECT_THAT(ChildrenOf(getpid()), SizeIs(EvalChildren::kIdleMax));
}

// The child reads its requests from another process, so no bytes may harm it.
TEST(EvalChildTest, RequestsOfAnyBytesAreAnsweredWithErrors) {
  const UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  EvalServer server(memory.get(), {});
  const std::string valid =
      "0\nfunc f(%x: f32[4,4]) -> (f32[4,4]) {\n  %l = cholesky(%x) {lower=true}\n  return %l\n}\n";
  EXPECT_EQ(server.Answer(valid), "INTERNAL\nthe operands are not in the memory");
  ASSERT_EQ(ftruncate(memory.get(), 8192), 0);
  EXPECT_EQ(server.Answer(valid), "");
  // Without its last line break and bracket the text is no program.
  for (size_t size = 0; size + 2 < valid.size(); ++size)
    EXPECT_NE(server.Answer(valid.substr(0, size)), "") << size;
  EXPECT_THAT(server.Answer("x\n" + valid), HasSubstr("INTERNAL\n"));
  EXPECT_THAT(
      server.Answer("0\nfunc f(%x: f32[4]) -> (f32[4]) {\n  %l = no_op(%x)\n  return %l\n}\n"),
      HasSubstr("UNKNOWN_OP\n"));
  // The memory is gone again, although it is mapped.
  ASSERT_EQ(ftruncate(memory.get(), 0), 0);
  EXPECT_EQ(server.Answer(valid), "INTERNAL\nthe operands are not in the memory");
}

}  // namespace

int MainOfTest(int argc, char** argv) {
  const std::string flag = argc > 1 ? argv[1] : "";
  if (flag == kEvalChildFlag && argc == 3) return RunEvalChild(argv[2]);
  if (flag == kSpinFlag)
    return ServeInJail("spin", [](std::string_view) -> std::string {
      while (true) static_cast<void>(SteadyNow());
    });
  if (flag == kCrashFlag)
    return ServeInJail("crash", [](std::string_view) -> std::string {
      raise(SIGSEGV);
      return "";
    });
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace tessera::worker

int main(int argc, char** argv) { return tessera::worker::MainOfTest(argc, argv); }
