// The planner's bound on memory holds for what the worker builds: arguments, results and the arena.
#include <algorithm>

#include "base/testing/status_matchers.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "ir/transform/transform.h"
#include "server/planner/memory.h"
#include "tests/ops/op_test.h"
#include "worker/cpu/sort.h"
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
  options.sort_scratch = [](const worker::SortShape& shape) {
    return worker::SortScratchBytes(shape, /*num_threads=*/16);
  };
  options.has_matmul = [](DType in, DType out) { return in == DType::kF32 && out == DType::kF32; };
  return options;
}

// "" if the bound holds on an accelerator without libraries, and as on a CPU.
std::string Exceeds(const Function& f) {
  const int64_t bound = server::planner::BoundMemory(f).peak;
  for (const BuildOptions& options : {BuildOptions(), WithLibrary()}) {
    const absl::StatusOr<StepProgram> built = Build(f, options);
    if (!built.ok()) return "";  // NOT_IMPLEMENTED: other tests say so
    const int64_t takes = built->arena_bytes + built->argument_and_result_bytes();
    if (takes > bound)
      return absl::StrCat("takes ", takes, " bytes, of them ", built->arena_bytes,
                          " in the arena; the bound is ", bound, "\n", PrintFunction(f),
                          built->ToString());
  }
  return "";
}

class MemoryBoundTest : public OpTest {};
TEST_P(MemoryBoundTest, HoldsForEveryRow) {
  ForRows([](const Sample& s) -> std::string {
    const absl::StatusOr<FunctionRef> f = DropRules(FunctionOf(s));
    return f.ok() ? Exceeds(**f) : "";  // what is only a rule does not run
  });
}
TESSERA_FOR_EVERY_OP(MemoryBoundTest);

TEST(MemoryBound, HoldsForRandomPrograms) {
  constexpr uint32_t kPrograms = 3000;
  int64_t arena = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const FunctionRef f = worker::program::RandomProgram(seed);
    EXPECT_EQ(Exceeds(*f), "") << "seed " << seed;
    arena += ValueOrThrow(Build(*f, {})).arena_bytes;
  }
  EXPECT_GT(arena, 0) << "no program has an arena";
}

FunctionRef Sorted(const std::vector<std::string>& types, int num_keys) {
  Builder b(Scope{});
  std::vector<Value> in;
  for (const std::string& t : types) in.push_back(b.Param(ValueOrThrow(ParseType(t))));
  return b.Build(Sort(in, 0, /*is_stable=*/true, num_keys));
}

TEST(MemoryBound, CountsWhatSortsWrite) {
  for (const FunctionRef& f :
       {Sorted({"f32[1000000]"}, 1), Sorted({"f32[1000000]", "s32[1000000]"}, 1),
        Sorted({"s8[600000]", "s8[600000]"}, 1), Sorted({"f64[100000]", "f32[100000]"}, 2)})
    EXPECT_EQ(Exceeds(*f), "");
}

// Columns are added up in runs of rows, and numbers that a gather reads by may be written down.
TEST(MemoryBound, CountsPartialSumsAndFills) {
  for (const char* text : {"f32[4096,2]", "f32[4096,4]", "f32[15000,2]"}) {
    Builder b(Scope{});
    EXPECT_EQ(Exceeds(*b.Build({ReduceSum(b.Param(ValueOrThrow(ParseType(text))), {0})})), "");
  }
  Builder b(Scope{});
  const Value x = b.Param(MakeType(DType::kF32, {1000, 1000}));
  const Value rows = b.Param(MakeType(DType::kS32, {1000, 1}));
  const Value taken =
      Gather(x, rows, {.offset_dims = {1}, .collapsed_slice_dims = {0}, .start_index_map = {0}},
             {1, 1000});
  EXPECT_EQ(Exceeds(*b.Build({Slice(Reshape(taken, {1000000}), {0}, {7001})})), "");
}

FunctionRef Product(const std::string& lhs, const std::string& rhs, const DotDims& dims) {
  Builder b(Scope{});
  const Value x = b.Param(ValueOrThrow(ParseType(lhs))), y = b.Param(ValueOrThrow(ParseType(rhs)));
  return b.Build({DotGeneral(x, y, dims)});
}

// Operands that no strides express as matrices are copied; the bound counts these and no others.
TEST(MemoryBound, CountsPackedOperands) {
  const FunctionRef batch_last = Product("f32[64,32,8]", "f32[32,16,8]", {{2}, {2}, {1}, {0}});
  const FunctionRef batch_first = Product("f32[8,64,32]", "f32[8,32,16]", {{0}, {0}, {2}, {1}});
  for (const FunctionRef& f : {batch_last, batch_first}) {
    const StepProgram built = ValueOrThrow(Build(*f, WithLibrary()));
    const int64_t packed = f == batch_last ? (64 * 32 * 8 + 32 * 16 * 8) * 4 : 0;
    EXPECT_EQ(built.arena_bytes, packed);
    EXPECT_EQ(server::planner::BoundMemory(*f).peak, packed + built.argument_and_result_bytes());
  }
}

// The gradient of eight layers by their weights: the bound is less than twice what is taken. (It
// counts what kernels compute again, as the derivative of tanh.)
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
    EXPECT_EQ(Exceeds(*f), "");
    const StepProgram built = ValueOrThrow(Build(*f, WithLibrary()));
    const int64_t takes = built.arena_bytes + built.argument_and_result_bytes();
    EXPECT_LT(server::planner::BoundMemory(*f).peak, 2 * takes)
        << "checkpointed: " << checkpointed << ", takes " << takes;
  }
}

}  // namespace
}  // namespace tessera::ir::samples
