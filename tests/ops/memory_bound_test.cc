// Proves that the planner's memory bound holds for the step programs that the worker builds. The
// bound covers arguments, results, the arena and, on a CPU, the memory of host steps. The tests
// build the programs of the samples (samples.h: a sample, or row, is one op with given attributes
// and operands) and of a random generator, and compare sizes; they run nothing.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/memory.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "ir/transform/transform.h"
#include "server/planner/memory.h"
#include "tests/ops/op_test.h"
#include "worker/cpu/sort.h"
#include "worker/program/build.h"
#include "worker/program/step_program.h"
#include "worker/program/testing/random_program.h"

namespace tessera::ir::samples {
namespace {

using worker::program::Build;
using worker::program::BuildOptions;
using worker::program::StepProgram;

BuildOptions WithLibrary() {
  BuildOptions options;
  options.has_scan = [](const ir::ScanSize&) { return true; };
  options.sort_scratch_bytes = [](const worker::SortShape& shape) {
    return worker::SortScratchBytes(shape, /*num_threads=*/16);
  };
  options.has_matmul = [](DType in, DType out) { return in == DType::kF32 && out == DType::kF32; };
  return options;
}

// Returns the bytes of device memory that the program takes. On a CPU this includes its host steps;
// on an accelerator they use the memory of the host.
int64_t BytesTaken(const StepProgram& built, bool cpu) {
  int64_t host = 0;
  worker::program::ForEachStep(built.steps, [&](const worker::program::Step& step) {
    const auto* evaluated = std::get_if<worker::program::HostStep>(&step.what);
    if (evaluated != nullptr && cpu) host = std::max(host, PeakBytes(*evaluated->function));
  });
  return host + built.arena_bytes + built.argument_and_result_bytes();
}

// Returns "" if the bound holds on a CPU and on an accelerator without libraries, else a message
// that says which part exceeds it.
std::string BoundViolation(const Function& f) {
  const int64_t bound = server::planner::BoundMemory(f).peak;
  for (const bool cpu : {false, true}) {
    const absl::StatusOr<StepProgram> built = Build(f, cpu ? WithLibrary() : BuildOptions());
    if (!built.ok()) return "";  // NOT_IMPLEMENTED; other tests cover that
    const int64_t bytes = BytesTaken(*built, cpu);
    if (bytes > bound)
      return absl::StrCat("takes ", bytes, " bytes, of them ", built->arena_bytes,
                          " in the arena; the bound is ", bound, "\n", PrintFunction(f),
                          built->ToString());
  }
  return "";
}

class MemoryBoundTest : public OpTest {};
TEST_P(MemoryBoundTest, HoldsForEveryRow) {
  ForEachSample([](const Sample& s) -> std::string {
    const absl::StatusOr<FunctionRef> f = DropRules(FunctionOf(s));
    return f.ok() ? BoundViolation(**f) : "";  // an op that only carries a rule does not run
  });
}
TESSERA_FOR_EVERY_OP(MemoryBoundTest);

TEST(MemoryBound, HoldsForRandomPrograms) {
  constexpr uint32_t kPrograms = 3000;
  int64_t arena = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const FunctionRef f = worker::program::RandomProgram(seed);
    EXPECT_EQ(BoundViolation(*f), "") << "seed " << seed;
    arena += ValueOrThrow(Build(*f, {})).arena_bytes;
  }
  EXPECT_GT(arena, 0) << "no program has an arena";
}

FunctionRef SortFn(const std::vector<std::string>& types, int num_keys) {
  Builder b(Scope{});
  std::vector<Value> in;
  for (const std::string& t : types) in.push_back(b.Param(ValueOrThrow(ParseType(t))));
  return b.Build(Sort(in, 0, /*is_stable=*/true, num_keys));
}

TEST(MemoryBound, CountsTheScratchOfSorts) {
  for (const FunctionRef& f :
       {SortFn({"f32[1000000]"}, 1), SortFn({"f32[1000000]", "s32[1000000]"}, 1),
        SortFn({"s8[600000]", "s8[600000]"}, 1), SortFn({"f64[100000]", "f32[100000]"}, 2)})
    EXPECT_EQ(BoundViolation(*f), "");
}

// A sum over rows keeps a partial sum for each run of consecutive rows, and a gather may
// materialize its indices.
TEST(MemoryBound, CountsPartialSumsAndFills) {
  for (const char* text : {"f32[4096,2]", "f32[4096,4]", "f32[15000,2]"}) {
    Builder b(Scope{});
    EXPECT_EQ(BoundViolation(*b.Build({ReduceSum(b.Param(ValueOrThrow(ParseType(text))), {0})})),
              "");
  }
  Builder b(Scope{});
  const Value x = b.Param(MakeType(DType::kF32, {1000, 1000}));
  const Value rows = b.Param(MakeType(DType::kS32, {1000, 1}));
  const Value taken =
      Gather(x, rows, {.offset_dims = {1}, .collapsed_slice_dims = {0}, .start_index_map = {0}},
             {1, 1000});
  EXPECT_EQ(BoundViolation(*b.Build({Slice(Reshape(taken, {1000000}), {0}, {7001})})), "");
}

FunctionRef DotFn(const std::string& lhs, const std::string& rhs, const DotDims& dims) {
  Builder b(Scope{});
  const Value x = b.Param(ValueOrThrow(ParseType(lhs))), y = b.Param(ValueOrThrow(ParseType(rhs)));
  return b.Build({DotGeneral(x, y, dims)});
}

// A matmul copies an operand only if no strides express the operand as a batch of matrices. The
// bound counts these copies and no others.
TEST(MemoryBound, CountsPackedOperands) {
  const FunctionRef batch_last = DotFn("f32[64,32,8]", "f32[32,16,8]", {{2}, {2}, {1}, {0}});
  const FunctionRef batch_first = DotFn("f32[8,64,32]", "f32[8,32,16]", {{0}, {0}, {2}, {1}});
  for (const FunctionRef& f : {batch_last, batch_first}) {
    const StepProgram built = ValueOrThrow(Build(*f, WithLibrary()));
    const int64_t packed = f == batch_last ? (64 * 32 * 8 + 32 * 16 * 8) * 4 : 0;
    EXPECT_EQ(built.arena_bytes, packed);
    EXPECT_EQ(server::planner::BoundMemory(*f).peak, packed + built.argument_and_result_bytes());
  }
}

// Takes the gradient of eight layers by their weights. The bound must be less than twice the memory
// that the gradient takes. (The bound is not exact because it also counts values that kernels
// recompute, such as the derivative of tanh.)
TEST(MemoryBound, IsNearForAGradient) {
  constexpr int kLayers = 8;
  for (const bool checkpointed : {false, true}) {
    Builder inner(Scope{}, "layer"), b(Scope{}, "loss");
    const Type activation = MakeType(DType::kF32, {256, 64}),
               weight = MakeType(DType::kF32, {64, 64});
    const Value in = inner.Param(activation), w = inner.Param(weight);
    const Value bias = inner.Param(MakeType(DType::kF32, {64}));
    const Value spread = BroadcastInDim(bias, activation.shape, {1});
    const FunctionRef layer = inner.Build({Tanh(Add(Matmul2D(in, w), spread))});
    Value x = b.Param(activation);
    for (int i = 0; i < kLayers; ++i) {
      const Value weights = b.Param(weight);
      const std::vector<Value> args = {x, weights, b.Param(MakeType(DType::kF32, {64}))};
      x = checkpointed ? Checkpoint(b, layer, args)[0] : Inline(b, *layer, args)[0];
    }
    const FunctionRef loss = b.Build({ReduceSum(Mul(x, x), {0, 1})});
    std::vector<bool> active(loss->num_params, true);
    active[0] = false;
    const Linearized lin = ValueOrThrow(Linearize(*loss, active));
    std::vector<bool> linear(lin.linear->num_params, true);
    std::fill_n(linear.begin(), lin.num_residuals, false);
    const FunctionRef backward = ValueOrThrow(TransposeFunction(*lin.linear, linear));
    Builder g(Scope{}, "grad");
    std::vector<Value> args;
    for (const Type& t : loss->param_types()) args.push_back(g.Param(t));
    const std::vector<Value> forward = Inline(g, *lin.forward, args);
    std::vector<Value> residuals(forward.end() - lin.num_residuals, forward.end());
    residuals.push_back(Constant(g, DType::kF32, 1));
    const FunctionRef f = Dce(*g.Build(Inline(g, *backward, residuals)));
    EXPECT_EQ(BoundViolation(*f), "");
    const StepProgram built = ValueOrThrow(Build(*f, WithLibrary()));
    const int64_t takes = built.arena_bytes + built.argument_and_result_bytes();
    EXPECT_LT(server::planner::BoundMemory(*f).peak, 2 * takes)
        << "checkpointed: " << checkpointed << ", takes " << takes;
  }
}

// ---- Computations of the program. ----

// Returns the bound divided by the memory that the program takes. Returns 0, and fails the test, if
// the bound does not hold.
double BoundRatio(const FunctionRef& f) {
  if (const std::string violation = BoundViolation(*f); !violation.empty()) {
    ADD_FAILURE() << violation;
    return 0;
  }
  const int64_t bytes = BytesTaken(ValueOrThrow(Build(*f, WithLibrary())), /*cpu=*/true);
  return static_cast<double>(server::planner::BoundMemory(*f).peak) / static_cast<double>(bytes);
}

// Returns a computation that picks the larger of two scalars, for each of `operands` pairs. With
// `loop`, it contains a loop, for which no code is generated.
FunctionRef Larger(int operands, bool loop) {
  Builder b(Scope{}, "larger");
  const Type scalar = MakeType(DType::kF32, {});
  std::vector<Value> params;
  for (int i = 0; i < 2 * operands; ++i) params.push_back(b.Param(scalar));
  std::vector<Value> results;
  for (int k = 0; k < operands; ++k) {
    Value l = params[k];
    const Value r = params[operands + k];
    if (loop && k == 0) {
      Builder predicate(Scope{}), body(Scope{});
      const Value c = predicate.Param(scalar);
      const FunctionRef once = predicate.Build({Compare(c, c, "LT")});
      const FunctionRef same = body.Build({Neg(body.Param(scalar))});
      l = While(b, once, same, {l}, 0, 0)[0];
    }
    results.push_back(Select(Compare(l, r, "LT"), r, l));
  }
  return b.Build(results);
}

// Every kernel writes one element for each run of consecutive elements, and six reductions share
// one pass over the operand.
TEST(MemoryBound, IsNearForReductionsByComputations) {
  for (const Dims& shape :
       {Dims{1 << 28}, Dims{10'000'001}, Dims{1 << 14, 1 << 14}, Dims{301, 5000}}) {
    for (const int64_t dim : {int64_t{0}, static_cast<int64_t>(shape.size()) - 1}) {
      Builder b(Scope{});
      const Value x = b.Param(MakeType(DType::kF32, shape));
      std::vector<Value> maxima;
      for (int i = 0; i < 6; ++i)
        maxima.push_back(Reduce({x}, {Constant(b, DType::kF32, i)}, Larger(1, false), {dim})[0]);
      EXPECT_LE(BoundRatio(b.Build(maxima)), 1.5) << absl::StrJoin(shape, "x") << " along " << dim;
    }
  }
  for (const int operands : {2, 5, 8}) {
    Builder b(Scope{});
    std::vector<Value> xs, inits;
    for (int k = 0; k < operands; ++k) xs.push_back(b.Param(MakeType(DType::kF32, {1'000'000})));
    for (int k = 0; k < operands; ++k) inits.push_back(Constant(b, DType::kF32, 0));
    EXPECT_LE(BoundRatio(b.Build(Reduce(xs, inits, Larger(operands, false), {0}))), 1.5)
        << operands;
  }
  // Runs are shorter if a computation has more than a few operations.
  for (const int functions : {1, 2, 5, 20}) {
    Builder b(Scope{}), adds(Scope{});
    const Value l = adds.Param(MakeType(DType::kF32, {}));
    Value r = adds.Param(MakeType(DType::kF32, {}));
    for (int i = 0; i < functions; ++i) r = Exp(r);
    const FunctionRef heavy = adds.Build({Add(l, r)});
    const Value x = b.Param(MakeType(DType::kF32, {1'000'000}));
    const FunctionRef f = b.Build(Reduce({x}, {Constant(b, DType::kF32, 0)}, heavy, {0}));
    EXPECT_LE(BoundRatio(f), 1.5) << functions;
  }
}

// The evaluator copies operands and results, and gathers the values that a computation combines.
TEST(MemoryBound, CountsTheMemoryOfHostSteps) {
  const Type row = MakeType(DType::kF32, {100'000});
  Builder comparator(Scope{});
  const Value l = comparator.Param(MakeType(DType::kF32, {})),
              r = comparator.Param(MakeType(DType::kF32, {}));
  const FunctionRef nearer = comparator.Build({Compare(Sin(l), Sin(r), "LT")});
  Builder sorts(Scope{}), reduces(Scope{}), scatters(Scope{}), sums(Scope{});
  const Value x = reduces.Param(row);
  EXPECT_LE(BoundRatio(sorts.Build(SortBy({sorts.Param(row)}, nearer, 0))), 1.5);
  EXPECT_LE(BoundRatio(reduces.Build(
                Reduce({x}, {Constant(reduces, DType::kF32, 0)}, Larger(1, true), {0}))),
            1.5);
  EXPECT_LE(BoundRatio(sums.Build({Cumlogsumexp(sums.Param(row), 0)})), 1.5);
  constexpr int kOperands = 9;  // more results than a kernel can have
  std::vector<Value> operands, updates;
  for (int k = 0; k < kOperands; ++k) operands.push_back(scatters.Param(row));
  const Value indices = scatters.Param(MakeType(DType::kS32, {50'000, 1}));
  for (int k = 0; k < kOperands; ++k)
    updates.push_back(scatters.Param(MakeType(DType::kF32, {50'000})));
  const ScatterDimensionNumbers dims{
      .update_window_dims = {}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}};
  EXPECT_LE(BoundRatio(scatters.Build(
                ScatterBy(operands, indices, updates, Larger(kOperands, false), dims))),
            1.5);
}

}  // namespace
}  // namespace tessera::ir::samples
