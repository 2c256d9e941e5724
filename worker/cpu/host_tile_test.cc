// Tests of row tiles on the CPU: a tile gives the same bits as its steps give when they run one
// by one, on any number of threads. The programs are a softmax, a layer norm and others, whose
// tiles cover all of their steps.
#include "worker/cpu/host_tile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/testing/status_matchers.h"
#include "ir/text.h"
#include "worker/codegen/host_plan.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/cpu/loop_blocking.h"
#include "worker/program/build.h"
#include "worker/program/row_tile.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::DType;
using Kernels = CpuBackendOptions::Kernels;

constexpr char kSoftmax[] = R"(func main(%x: T[M,N]) -> (T[M,N]) {
  %m = reduce_max(%x) {dimensions=[1]}
  %mb = broadcast_in_dim(%m) {shape=[M,N], broadcast_dimensions=[0]}
  %d = subtract(%x, %mb)
  %e = exponential(%d)
  %s = reduce_sum(%e) {dimensions=[1]}
  %sb = broadcast_in_dim(%s) {shape=[M,N], broadcast_dimensions=[0]}
  %p = divide(%e, %sb)
  return %p
})";

// A layer norm with weights that all rows share.
constexpr char kLayerNorm[] = R"(func main(%x: T[M,N], %w: T[N]) -> (T[M,N]) {
  %m = reduce_sum(%x) {dimensions=[1]}
  %mb = broadcast_in_dim(%m) {shape=[M,N], broadcast_dimensions=[0]}
  %d = subtract(%x, %mb)
  %q = multiply(%d, %d)
  %v = reduce_sum(%q) {dimensions=[1]}
  %r = rsqrt(%v)
  %rb = broadcast_in_dim(%r) {shape=[M,N], broadcast_dimensions=[0]}
  %u = multiply(%d, %rb)
  %wb = broadcast_in_dim(%w) {shape=[M,N], broadcast_dimensions=[1]}
  %y = multiply(%u, %wb)
  return %y
})";

// A softmax of the elements up to the diagonal, with an index that depends on the row.
constexpr char kMasked[] = R"(func main(%x: T[M,N]) -> (T[M,N]) {
  %i = iota() {dtype=s32, shape=[M,N], iota_dimension=0}
  %j = iota() {dtype=s32, shape=[M,N], iota_dimension=1}
  %c = compare(%i, %j) {direction="GE"}
  %zero = constant() {value=dense<T[]: 0>}
  %z = broadcast_in_dim(%zero) {shape=[M,N], broadcast_dimensions=[]}
  %k = select(%c, %x, %z)
  %e = exponential(%k)
  %s = reduce_sum(%e) {dimensions=[1]}
  %sb = broadcast_in_dim(%s) {shape=[M,N], broadcast_dimensions=[0]}
  %p = divide(%e, %sb)
  return %p
})";

// A softmax of a transposed array. The kernel that transposes has its own order of
// loops (loop_blocking.h). It is the first kernel of the tile here, and a later one in
// kTransposedLater.
constexpr char kTransposedFirst[] = R"(func main(%x: T[M,N], %w: T[M,N]) -> (T[M,N]) {
  %t = transpose(%x) {permutation=[1,0]}
  %v = multiply(%t, %w)
  %y = tanh(%v)
  %m = reduce_max(%y) {dimensions=[1]}
  %mb = broadcast_in_dim(%m) {shape=[M,N], broadcast_dimensions=[0]}
  %d = subtract(%y, %mb)
  %e = exponential(%d)
  %s = reduce_sum(%e) {dimensions=[1]}
  %sb = broadcast_in_dim(%s) {shape=[M,N], broadcast_dimensions=[0]}
  %p = divide(%e, %sb)
  return %p
})";
constexpr char kTransposedLater[] = R"(func main(%x: T[M,N], %w: T[M,N]) -> (T[M,N]) {
  %v = exponential(%w)
  %s0 = reduce_sum(%v) {dimensions=[1]}
  %sb0 = broadcast_in_dim(%s0) {shape=[M,N], broadcast_dimensions=[0]}
  %q = divide(%v, %sb0)
  %t = transpose(%x) {permutation=[1,0]}
  %y = multiply(%t, %q)
  %m = reduce_max(%y) {dimensions=[1]}
  %mb = broadcast_in_dim(%m) {shape=[M,N], broadcast_dimensions=[0]}
  %d = subtract(%y, %mb)
  %e = exponential(%d)
  %s = reduce_sum(%e) {dimensions=[1]}
  %sb = broadcast_in_dim(%s) {shape=[M,N], broadcast_dimensions=[0]}
  %p = divide(%e, %sb)
  return %p
})";

// The sums of the M columns of one array, each of which multiplies a row of N elements of another
// array.
constexpr char kSumsOfColumns[] = R"(func main(%x: T[3000,M], %w: T[M,N]) -> (T[M,N]) {
  %s = reduce_sum(%x) {dimensions=[0]}
  %sb = broadcast_in_dim(%s) {shape=[M,N], broadcast_dimensions=[0]}
  %d = multiply(%w, %sb)
  %m = reduce_max(%d) {dimensions=[1]}
  %mb = broadcast_in_dim(%m) {shape=[M,N], broadcast_dimensions=[0]}
  %f = subtract(%d, %mb)
  return %f
})";

// A softmax of rows that are gathered from a table of as many rows.
constexpr char kGathered[] = R"(func main(%t: T[M,N], %i: s32[M,1]) -> (T[M,N]) {
  %x = gather(%t, %i) {offset_dims=[1], collapsed_slice_dims=[0], operand_batching_dims=[],
      start_indices_batching_dims=[], start_index_map=[0], index_vector_dim=1, slice_sizes=[1,N],
      mode="clip"}
  %m = reduce_max(%x) {dimensions=[1]}
  %mb = broadcast_in_dim(%m) {shape=[M,N], broadcast_dimensions=[0]}
  %d = subtract(%x, %mb)
  %e = exponential(%d)
  %s = reduce_sum(%e) {dimensions=[1]}
  %sb = broadcast_in_dim(%s) {shape=[M,N], broadcast_dimensions=[0]}
  %p = divide(%e, %sb)
  return %p
})";

ir::FunctionRef Parsed(const char* text, const char* dtype, int64_t m, int64_t n) {
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(absl::StrReplaceAll(
      text, {{"T[", absl::StrCat(dtype, "[")}, {"M", absl::StrCat(m)}, {"N", absl::StrCat(n)}}));
  EXPECT_THAT(program, IsOk());
  return program.ok() ? program->entry : nullptr;
}

Array Random(const ir::Type& type, int seed) {
  Array a(type.dtype, type.shape);
  std::minstd_rand random(seed);
  std::uniform_real_distribution<double> uniform(-4, 4);
  if (!ir::IsFloat(type.dtype)) uniform = std::uniform_real_distribution<double>(0, 100);
  for (int64_t i = 0; i < a.num_elements(); ++i) a.Set(i, uniform(random));
  return a;
}

absl::StatusOr<Array> RunOn(const CpuBackendOptions& options, const ir::FunctionRef& f,
                            const std::vector<Array>& in) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(options);
  ir::Program program;
  program.entry = f;
  TESSERA_ASSIGN_OR_RETURN(const auto executable, backend->Compile(program));
  CancelToken never_cancelled;
  RunContext context;
  context.cancel = &never_cancelled;
  std::vector<DeviceBufferRef> args;
  for (const Array& a : in) {
    TESSERA_ASSIGN_OR_RETURN(DeviceBufferRef arg, backend->FromHost(0, a));
    args.push_back(std::move(arg));
  }
  TESSERA_ASSIGN_OR_RETURN(const Enqueued enqueued, backend->Enqueue(*executable, context, args));
  return backend->ToHost(*enqueued.results[0]);
}

// Expects that a tile gives the same bits as its steps give when they run one by one.
void ExpectTheBitsOfTheSteps(const ir::FunctionRef& f) {
  std::vector<Array> in;
  for (int i = 0; i < f->num_params; ++i) in.push_back(Random(f->types[i], i + 1));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Array want, RunOn({.kernels = Kernels::kStepByStep}, f, in));
  for (const int devices : {1, 64}) {  // one device gets all threads; each of 64 gets one
    TESSERA_ASSERT_OK_AND_ASSIGN(
        const Array got, RunOn({.num_devices = devices, .kernels = Kernels::kAlways}, f, in));
    EXPECT_TRUE(got == want) << devices;
  }
}

TEST(HostTileTest, TilesHaveTheBitsOfSingleSteps) {
  struct Shape {
    int64_t m, n;
  };
  // These numbers of rows are not multiples of the rows of a block. Some rows are shorter than a
  // vector, and some arrays are larger than the caches.
  const Shape shapes[] = {{33, 1000}, {1021, 7}, {4099, 64}, {40, 16385}, {1000, 1000}};
  for (const char* text : {kSoftmax, kLayerNorm, kMasked})
    for (const char* dtype : {"f32", "bf16"})
      for (const Shape& shape : shapes) {
        SCOPED_TRACE(absl::StrCat(dtype, " ", shape.m, " x ", shape.n, "\n", text));
        const ir::FunctionRef f = Parsed(text, dtype, shape.m, shape.n);
        ASSERT_NE(f, nullptr);
        TESSERA_ASSERT_OK_AND_ASSIGN(const program::StepProgram built, program::Build(*f, {}));
        ASSERT_EQ(built.tiles.size(), 1u) << built.ToString();
        ASSERT_EQ(program::TileStepsFrom(built.steps, 0).size(), built.steps.size());
        ExpectTheBitsOfTheSteps(f);
      }
}

// Returns the tile whose first step is steps[first].
HostTile MadeTile(const program::StepProgram& built, size_t first,
                  std::vector<codegen::Kernel>* kernels) {
  return MakeHostTile(built, std::vector<bool>(built.kernels.size(), false), built.steps, first,
                      kernels);
}

TEST(HostTileTest, ATileWithABlockedKernelRunsStepByStep) {
  for (const char* text : {kTransposedFirst, kTransposedLater}) {
    SCOPED_TRACE(text);
    const ir::FunctionRef f = Parsed(text, "f32", 256, 256);
    ASSERT_NE(f, nullptr);
    TESSERA_ASSERT_OK_AND_ASSIGN(const program::StepProgram built, program::Build(*f, {}));
    ASSERT_EQ(program::TileStepsFrom(built.steps, 0).size(), built.steps.size())
        << built.ToString();
    std::vector<bool> has_blocked_loops;
    for (const program::KernelStep* step : program::TileStepsFrom(built.steps, 0)) {
      const codegen::Kernel& kernel = built.kernels[step->kernel];
      has_blocked_loops.push_back(!(BlockLoops(kernel) == kernel));
    }
    EXPECT_EQ(std::count(has_blocked_loops.begin(), has_blocked_loops.end(), true), 1)
        << built.ToString();
    EXPECT_EQ(has_blocked_loops[0], text == kTransposedFirst) << built.ToString();
    ExpectTheBitsOfTheSteps(f);
  }
}

TEST(HostTileTest, LongRowsDoNotChangeTheOrderOfColumnSums) {
  const ir::FunctionRef f = Parsed(kSumsOfColumns, "f32", 64, 20000);
  ASSERT_NE(f, nullptr);
  TESSERA_ASSERT_OK_AND_ASSIGN(const program::StepProgram built, program::Build(*f, {}));
  ASSERT_EQ(program::TileStepsFrom(built.steps, 0).size(), built.steps.size()) << built.ToString();
  std::vector<codegen::Kernel> kernels;
  EXPECT_EQ(MadeTile(built, 0, &kernels).block_rows, 2);
  ExpectTheBitsOfTheSteps(f);
  // A block with a single sum would be summed with lanes along the column.
  const codegen::Kernel whole =
      built.kernels[std::get<program::KernelStep>(built.steps[0].what).kernel];
  const auto of_rows = [&](int64_t rows) {
    return codegen::Canonical(program::RowKernelOf(whole, 64, rows)->kernel);
  };
  EXPECT_FALSE(codegen::ReduceInTheSameOrder(codegen::Canonical(whole), of_rows(1)));
  for (const int64_t rows : {2, 3, 64})
    EXPECT_TRUE(codegen::ReduceInTheSameOrder(codegen::Canonical(whole), of_rows(rows))) << rows;
  codegen::Kernel longer = codegen::Canonical(whole);
  longer.shape.back() *= 2;
  EXPECT_FALSE(codegen::ReduceInTheSameOrder(codegen::Canonical(whole), longer));
}

TEST(HostTileTest, GatheredRowsAreThoseOfTheBlock) {
  const ir::FunctionRef f = Parsed(kGathered, "f32", 640, 256);
  ASSERT_NE(f, nullptr);
  TESSERA_ASSERT_OK_AND_ASSIGN(const program::StepProgram built, program::Build(*f, {}));
  ASSERT_EQ(program::TileStepsFrom(built.steps, 0).size(), built.steps.size()) << built.ToString();
  std::vector<codegen::Kernel> kernels;
  const HostTile tile = MadeTile(built, 0, &kernels);
  EXPECT_LT(tile.block_rows, 640);
  for (const codegen::Kernel& kernel : kernels) EXPECT_THAT(codegen::Verify(kernel), IsOk());
  ExpectTheBitsOfTheSteps(f);
}

// The blocks of a tile fit the caches, whatever the size of the whole array.
TEST(HostTileTest, ABlockHasAsManyRowsAsFitTheCaches) {
  const ir::FunctionRef f = Parsed(kLayerNorm, "f32", 1 << 14, 1 << 10);
  TESSERA_ASSERT_OK_AND_ASSIGN(const program::StepProgram built, program::Build(*f, {}));
  std::vector<codegen::Kernel> kernels;
  const HostTile tile = MadeTile(built, 0, &kernels);
  EXPECT_EQ(tile.rows, 1 << 14);
  EXPECT_GE(tile.block_rows, 4);
  EXPECT_LE(tile.block_rows, 64);
  ASSERT_EQ(tile.parts.size(), built.steps.size());
  ASSERT_EQ(kernels.size(), built.steps.size());
  for (const codegen::Kernel& kernel : kernels) EXPECT_EQ(kernel.shape[0], tile.block_rows);
  // A tile is not split into parts if one of its kernels has its own order of loops.
  EXPECT_TRUE(
      MakeHostTile(built, {true, false, false, false}, built.steps, 0, &kernels).parts.empty());
}

// The program is a single tile, which polls the cancellation flag by itself.
TEST(HostTileTest, ACancelEndsATile) {
  const ir::FunctionRef f = Parsed(kSoftmax, "f32", 1 << 13, 1 << 10);
  const std::unique_ptr<Backend> backend = MakeCpuBackend({.num_devices = 64});
  ir::Program program;
  program.entry = f;
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable, backend->Compile(program));
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto arg, backend->FromHost(0, Random(f->types[0], 1)));
  int cancelled = 0;
  // If the cancel comes too late, the tile has already ended.
  for (int attempt = 0; attempt < 100 && cancelled == 0; ++attempt) {
    InFlightPage page(1);
    InFlightQueue queue(&page.slot(0));
    CancelToken cancel;
    RunContext context;
    context.cancel = &cancel;
    context.in_flight = queue.Begin(9);
    absl::Status status;
    std::thread running([&] { status = backend->Enqueue(*executable, context, {arg}).status(); });
    while (page.slot(0).Read().op.empty()) std::this_thread::yield();
    cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
    running.join();
    if (status.ok()) continue;
    EXPECT_THAT(status, ReasonIs("CANCELLED", "enough"));
    ++cancelled;
  }
  EXPECT_EQ(cancelled, 1);
}

}  // namespace
}  // namespace tessera::worker
