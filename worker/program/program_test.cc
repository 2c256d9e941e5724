// Golden transcripts of device programs: tests/golden/program/*.txt.
//
//  build [multiplies] [scans] [sorts]   the device program of a function, with its kernels in full;
//                                       with `multiplies` a library takes products of f32, with
//                                       `scans` there is code for scans, with `sorts` a routine
//                                       sorts
//
// Every program is verified and run on its slots with the reference interpreter: once without
// donations, and once for each way to put results into the memory of arguments. Each run must give
// the results of the evaluator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_exception.h"
#include "base/testing/datadriven.h"
#include "base/testing/seeds.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "ir/transform/transform.h"
#include "worker/program/build.h"
#include "worker/program/row_tile.h"
#include "worker/program/step_program.h"
#include "worker/program/testing/random_program.h"
#include "worker/program/verify.h"

namespace tessera::worker::program {
namespace {

using ir::Array;

// Runs a program on the host, one step after the other. `donations` names, for each result, the
// argument in which it lies. The only collective is the sum over the lanes of the mesh; the runner
// assumes that all lanes hold the same elements. A sum happens as late as it may, which is when a
// step waits for it. Row tiles run in blocks of `tile_block` rows, the last rows first; if
// `tile_block` is 0, their steps run one by one.
class Runner {
 public:
  Runner(const StepProgram& program, std::vector<Array> args,
         const std::vector<int>& donations = {}, int64_t tile_block = 0)
      : p_(program),
        args_(std::move(args)),
        iterations_(program.num_loops, 0),
        tile_block_(tile_block) {
    for (const Result& r : p_.results) results_.emplace_back(r.buffer.dtype, r.buffer.shape);
    arena_.assign(p_.arena_bytes + 1, std::byte{0xff});
    for (Array& a : args_) args_data_.push_back(a.MutableData());
    for (Array& a : results_) results_data_.push_back(a.MutableData());
    for (size_t r = 0; r < donations.size(); ++r)
      if (donations[r] >= 0) results_data_[r] = args_data_[donations[r]];
  }

  std::vector<Array> Run() {
    RunSteps(p_.steps);
    std::vector<Array> out;
    for (const Result& r : p_.results) {
      Array a(r.buffer.dtype, r.buffer.shape);
      std::memcpy(a.MutableData(), At(r.slot), a.num_bytes());
      out.push_back(std::move(a));
    }
    return out;
  }

 private:
  std::byte* At(int slot) {
    const Slot& s = p_.slots[slot];
    std::byte* base = nullptr;
    switch (s.kind) {
      case Slot::Kind::kArgument:
        base = args_data_[s.index];
        break;
      case Slot::Kind::kResult:
        base = results_data_[s.index];
        break;
      case Slot::Kind::kConstant:
        base = const_cast<std::byte*>(p_.constants[s.index].data());
        break;
      case Slot::Kind::kArena:
        base = arena_.data();
    }
    base += s.offset;
    for (const auto& [loop, stride] : s.loop_strides) base += stride * iterations_[loop];
    return base;
  }

  // Runs a list of steps. Collectives are postponed until a step waits for them, so that a missing
  // wait changes the results.
  void RunSteps(const std::vector<Step>& steps) {
    std::deque<int> postponed;
    const auto sum_up_to = [&](int last) {
      for (; !postponed.empty() && postponed.front() <= last; postponed.pop_front())
        Sum(std::get<CollectiveStep>(steps[postponed.front()].what));
    };
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const Step& step = steps[at];
      if (IsCommunicatingStep(step)) {
        postponed.push_back(at);
        continue;
      }
      sum_up_to(step.after);
      // Collectives inside the step begin after all collectives before it.
      if (ContainsCollective(step)) sum_up_to(at);
      if (const auto tile = TileStepsFrom(steps, at); tile_block_ > 0 && !tile.empty()) {
        for (size_t i = 1; i < tile.size(); ++i) sum_up_to(steps[at + i].after);
        RunTile(tile);
        at += static_cast<int>(tile.size()) - 1;
        continue;
      }
      if (const auto* k = std::get_if<KernelStep>(&step.what)) {
        std::vector<void*> buffers;
        for (int s : k->slots) buffers.push_back(At(s));
        const codegen::Kernel& kernel = p_.kernels[k->kernel];
        codegen::Interpret(kernel, buffers, 0, kernel.num_iterations());
      } else if (const auto* matmul = std::get_if<MatmulStep>(&step.what)) {
        Multiply(*matmul);
      } else if (const auto* sort = std::get_if<SortStep>(&step.what)) {
        SortRows(*sort);
      } else if (const auto* c = std::get_if<CopyStep>(&step.what)) {
        std::memmove(At(c->out), At(c->in), p_.slots[c->out].bytes());
      } else if (const auto* h = std::get_if<HostStep>(&step.what)) {
        RunOnHost(*h);
      } else if (const auto* loop = std::get_if<LoopStep>(&step.what)) {
        for (int64_t i = 0; loop->condition >= 0 ? *reinterpret_cast<bool*>(At(loop->condition))
                                                 : i < loop->trip_count;
             ++i) {
          iterations_[loop->number] = i;
          RunSteps(loop->body);
        }
      } else if (const auto* branch = std::get_if<BranchStep>(&step.what)) {
        const int last = static_cast<int>(branch->branches.size()) - 1;
        RunSteps(
            branch->branches[std::clamp(*reinterpret_cast<int32_t*>(At(branch->index)), 0, last)]);
      } else {
        ADD_FAILURE() << "the test runner does not run this kind of step";
      }
    }
    sum_up_to(static_cast<int>(steps.size()));
  }

  void RunTile(const std::vector<const KernelStep*>& tile) {
    const int64_t rows = p_.tiles[tile[0]->tile].rows, block = std::min(tile_block_, rows);
    for (int64_t end = rows; end > 0; end -= std::min(block, end)) {
      const int64_t row = std::max<int64_t>(end - block, 0);
      for (const KernelStep* step : tile) {
        const codegen::Kernel& kernel = p_.kernels[step->kernel];
        const std::optional<RowKernel> part = RowKernelOf(kernel, rows, block);
        ASSERT_TRUE(part.has_value());
        ASSERT_THAT(codegen::Verify(part->kernel), IsOk()) << part->kernel.ToString();
        std::vector<void*> buffers;
        for (size_t i = 0; i < step->slots.size(); ++i)
          buffers.push_back(At(step->slots[i]) +
                            row * part->row_strides[i] * ir::ByteWidth(kernel.params[i].dtype));
        const int64_t from = part->moves_buffers ? 0 : row * part->iterations_per_row;
        codegen::Interpret(part->kernel, buffers, from,
                           from + (end - row) * part->iterations_per_row);
      }
    }
  }

  void Sum(const CollectiveStep& c) {
    ASSERT_EQ(c.kind, ir::CollectiveKind::kAllReduce);
    ASSERT_EQ(c.reduce, ir::ReduceKind::kSum);
    for (int64_t i = 0; i < c.elements; ++i) {
      if (c.dtype == ir::DType::kF32) {
        reinterpret_cast<float*>(At(c.out))[i] =
            static_cast<float>(c.group_size) * reinterpret_cast<float*>(At(c.in))[i];
      } else {
        ASSERT_EQ(c.dtype, ir::DType::kS32);
        reinterpret_cast<int32_t*>(At(c.out))[i] =
            c.group_size * reinterpret_cast<int32_t*>(At(c.in))[i];
      }
    }
  }

  void Multiply(const MatmulStep& step) {
    const MatmulShape& s = step.shape;
    ASSERT_EQ(s.in, ir::DType::kF32);
    const auto* a = reinterpret_cast<const float*>(At(step.a)) + step.a_offset;
    const auto* b = reinterpret_cast<const float*>(At(step.b)) + step.b_offset;
    auto* c = reinterpret_cast<float*>(At(step.c));
    for (int64_t i = 0; i < s.batch; ++i)
      for (int64_t m = 0; m < s.m; ++m)
        for (int64_t n = 0; n < s.n; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < s.k; ++k)
            sum += static_cast<double>(
                       a[i * s.a_strides[0] + m * s.a_strides[1] + k * s.a_strides[2]]) *
                   b[i * s.b_strides[0] + k * s.b_strides[1] + n * s.b_strides[2]];
          c[(i * s.m + m) * s.n + n] = static_cast<float>(sum);
        }
  }

  // Sorts by keys that are no NaNs. Overwrites the scratch memory, so that no step can rely on it.
  void SortRows(const SortStep& step) {
    const SortShape& s = step.shape;
    std::memset(At(step.scratch), 0xa5, p_.slots[step.scratch].bytes());
    std::vector<Array> in;
    for (size_t i = 0; i < step.in.size(); ++i) {
      Array& x = in.emplace_back(s.dtypes[i], s.operand(i).shape);
      std::memcpy(x.MutableData(), At(step.in[i]), x.num_bytes());
    }
    for (int64_t row = 0; row < s.rows(); ++row) {
      const auto at = [&](int64_t i, int64_t n) {
        return (row / s.inner * n + i) * s.inner + row % s.inner;
      };
      std::vector<int64_t> order(s.n);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        for (int k = 0; k < s.num_keys; ++k) {
          const double x = in[k].At(at(a, s.n)), y = in[k].At(at(b, s.n));
          if (x != y) return (x < y) != s.descending;
        }
        return false;
      });
      for (int64_t i = 0; i < s.kept; ++i) {
        for (size_t r = 0; r < in.size(); ++r) {
          const int64_t width = ir::ByteWidth(s.dtypes[r]);
          std::memcpy(At(step.out[r]) + at(i, s.kept) * width,
                      in[r].data() + at(order[i], s.n) * width, width);
        }
        if (s.has_indices)
          reinterpret_cast<int32_t*>(At(step.out.back()))[at(i, s.kept)] =
              static_cast<int32_t>(order[i]);
      }
    }
  }

  void RunOnHost(const HostStep& h) {
    const auto read = [this](int slot, absl::Span<std::byte> to) {
      std::memcpy(to.data(), At(slot), to.size());
      return absl::OkStatus();
    };
    const auto write = [this](int slot, absl::Span<const std::byte> from) {
      std::memcpy(At(slot), from.data(), from.size());
      return absl::OkStatus();
    };
    ASSERT_THAT(Evaluate(h, {}, read, write), IsOk());
  }

  const StepProgram& p_;
  std::vector<Array> args_, results_;
  std::vector<std::byte*> args_data_, results_data_;
  std::vector<std::byte> arena_;
  std::vector<int64_t> iterations_;
  const int64_t tile_block_;
};

// Returns the ways in which results may lie in the memory of arguments: with no donation, with all
// arguments donated, with every second one donated, and with a single argument donated, for each
// argument in turn.
std::vector<std::vector<int>> WaysToDonate(const StepProgram& program) {
  std::vector<std::vector<int>> ways = {{}};
  const size_t n = program.arguments.size();
  std::vector<bool> all(n, true), odd(n), one(n);
  ways.push_back(ChooseDonations(program, all));
  for (size_t i = 1; i < n; i += 2) odd[i] = true;
  ways.push_back(ChooseDonations(program, odd));
  for (const Donation& donation : program.donations) {
    one.assign(n, false);
    one[donation.argument] = true;
    ways.push_back(ChooseDonations(program, one));
  }
  return ways;
}

int64_t SortScratch(const SortShape& shape) { return 100 * shape.rows(); }

// Builds the program of a golden case, runs it in every way, and returns its text.
std::string BuildText(const DataCase& c) {
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(c.input);
  if (!program.ok()) return absl::StrCat(program.status().message(), "\n");
  const ir::Function& f = *program->entry;
  BuildOptions options;
  if (c.Has("multiplies"))
    options.has_matmul = [](ir::DType in, ir::DType out) {
      return in == ir::DType::kF32 && out == ir::DType::kF32;
    };
  if (c.Has("scans")) options.has_scan = [](const ir::ScanSize&) { return true; };
  if (c.Has("sorts")) options.sort_scratch_bytes = SortScratch;
  const absl::StatusOr<StepProgram> built = Build(f, options);
  if (!built.ok()) return absl::StrCat(built.status().message(), "\n");
  EXPECT_THAT(Verify(*built), IsOk()) << built->ToString();
  EXPECT_EQ(Build(f, options)->ToString(), built->ToString());
  if (f.scope.mesh.empty()) {
    std::vector<Array> args;
    for (int i = 0; i < f.num_params; ++i) args.push_back(WholeNumbers(f.types[i], i));
    const auto want = ir::Evaluate(f, args);
    EXPECT_THAT(want, IsOk());
    for (const std::vector<int>& donations : WaysToDonate(*built)) {
      const std::vector<Array> got = Runner(*built, args, donations).Run();
      for (size_t r = 0; r < got.size(); ++r) {
        EXPECT_EQ(got[r].shape(), (*want)[r].shape());
        for (int64_t i = 0; i < got[r].num_elements(); ++i)
          EXPECT_NEAR(got[r].At(i), (*want)[r].At(i), 1e-5 * (1 + std::abs((*want)[r].At(i))))
              << "result " << r << ", element " << i << "\n"
              << built->ToString();
      }
    }
  }
  return built->ToString();
}

// ---- Programs at random. -----------------------------------------------------------------------

// Random programs must give the results of the evaluator, however they are fused and whatever is
// donated.
TEST(RandomPrograms, AgreeWithTheEvaluator) {
  const int64_t programs = tessera::testing::NumSeeds(3000);
  int64_t kernels = 0, ops = 0, donations = 0;
  for (uint32_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ir::FunctionRef f;
    ASSERT_THAT(CatchStatus([&] { f = RandomProgram(seed); }), IsOk());
    std::vector<Array> args;
    for (int i = 0; i < f->num_params; ++i) args.push_back(WholeNumbers(f->types[i], i));
    BuildOptions options;
    if (seed % 2 == 0)
      options.has_matmul = [](ir::DType in, ir::DType) { return in == ir::DType::kF32; };
    if (seed % 5 != 0) options.has_scan = [](const ir::ScanSize&) { return true; };
    const absl::StatusOr<StepProgram> built = Build(*f, options);
    ASSERT_THAT(built, IsOk()) << ir::PrintFunction(*f);
    ASSERT_THAT(Verify(*built), IsOk()) << ir::PrintFunction(*f) << built->ToString();
    const auto want = ir::Evaluate(*f, args);
    ASSERT_THAT(want, IsOk());
    for (const std::vector<int>& way : WaysToDonate(*built)) {
      const std::vector<Array> got = Runner(*built, args, way).Run();
      for (size_t r = 0; r < got.size(); ++r)
        ASSERT_TRUE(got[r] == (*want)[r])
            << "result " << r << " is " << got[r].ToString() << "\nexpected "
            << (*want)[r].ToString() << "\nin place of argument " << (way.empty() ? -1 : way[r])
            << "\n"
            << ir::PrintFunction(*f) << built->ToString();
    }
    donations += static_cast<int64_t>(built->donations.size());
    kernels += static_cast<int64_t>(built->kernels.size());
    ops += ir::CountOps(*f);
  }
  EXPECT_LT(kernels, ops / 3) << "little is fused";
  EXPECT_GT(donations, programs) << "few results can take the memory of an argument";
}

// ---- Small products. ---------------------------------------------------------------------------

int CountMatmuls(const StepProgram& program) {
  int matmuls = 0;
  ForEachStep(program.steps, [&](const Step& step) {
    matmuls += std::holds_alternative<MatmulStep>(step.what) ? 1 : 0;
  });
  return matmuls;
}

// Each row is a product and says whether it becomes a kernel.
TEST(SmallProducts, AreKernelsIfTheRowsOfTheSecondOperandAreContiguous) {
  struct Row {
    const char* dtype;
    int m, k, n;
    int b_contracts;  // the contracted dim of the second operand
    bool kernel;
  };
  const Row rows[] = {
      {"f32", 32, 32, 32, 0, true},   {"f32", 1, 64, 16, 0, true},
      {"f32", 32, 33, 32, 0, false},  // more than 32^3 multiplications
      {"f32", 32, 32, 8, 0, false},   // fewer columns than a vector has lanes
      {"f32", 32, 32, 32, 1, false},  // transposed
      {"bf16", 16, 16, 16, 0, false},
  };
  for (const Row& row : rows) {
    const bool transposed = row.b_contracts == 1;
    const std::string text =
        absl::StrCat("func main(%a: ", row.dtype, "[", row.m, ",", row.k, "], %b: ", row.dtype, "[",
                     transposed ? row.n : row.k, ",", transposed ? row.k : row.n, "]) -> (",
                     row.dtype, "[", row.m, ",", row.n,
                     "]) {\n  %d = dot_general(%a, %b) {lhs_batching_dimensions=[], "
                     "lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], "
                     "rhs_contracting_dimensions=[",
                     row.b_contracts, "]}\n  return %d\n}\n");
    const absl::StatusOr<ir::Program> program = ir::ParseProgram(text);
    ASSERT_THAT(program, IsOk());
    BuildOptions options;
    options.has_matmul = [](ir::DType, ir::DType) { return true; };
    options.small_matmul_multiplications_max = 32 * 32 * 32;
    TESSERA_ASSERT_OK_AND_ASSIGN(const StepProgram built, Build(*program->entry, options));
    EXPECT_THAT(Verify(built), IsOk());
    EXPECT_EQ(CountMatmuls(built), row.kernel ? 0 : 1) << text;
  }
}

// ---- Loops. ------------------------------------------------------------------------------------

TEST(Loops, ANegativeNumberOfLoopsIsRefused) {
  StepProgram forged;
  forged.num_loops = -1;
  EXPECT_THAT(Verify(forged), ReasonIs("INTERNAL", "the program has a negative number of loops"));
}

// ---- Sorts. ------------------------------------------------------------------------------------

SortStep& SortOf(StepProgram& program) {
  const auto step = std::find_if(program.steps.begin(), program.steps.end(), [](const Step& s) {
    return std::holds_alternative<SortStep>(s.what);
  });
  return std::get<SortStep>(step->what);
}

// Each row is a change of a valid sort step that the verifier must find.
TEST(Sorts, FaultySortStepsAreRefused) {
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(
      "func main(%a: f32[4,6], %b: c64[4,6]) -> (f32[4,6], c64[4,6]) {\n"
      "  %s, %p = sort(%a, %b) {dimension=0, is_stable=true, num_keys=1}\n"
      "  return %s, %p\n}\n");
  ASSERT_THAT(program, IsOk());
  BuildOptions options;
  options.sort_scratch_bytes = SortScratch;
  TESSERA_ASSERT_OK_AND_ASSIGN(const StepProgram built, Build(*program->entry, options));
  ASSERT_THAT(Verify(built), IsOk()) << built.ToString();
  struct Row {
    const char* fault;
    std::function<void(SortStep&)> forge;
  };
  const Row rows[] = {
      {"shape 1 x 0 x 6", [](SortStep& s) { s.shape.n = 0; }},
      {"shape 0 x 4 x 6", [](SortStep& s) { s.shape.outer = 0; }},
      {"shape 1 x 4 x 0", [](SortStep& s) { s.shape.inner = 0; }},
      {"shape 1 x 2147483648 x 6", [](SortStep& s) { s.shape.n = int64_t{1} << 31; }},
      {"keeps 5 ", [](SortStep& s) { s.shape.kept = 5; }},
      {"keeps 0 ", [](SortStep& s) { s.shape.kept = 0; }},
      {"has 0 keys", [](SortStep& s) { s.shape.num_keys = 0; }},
      {"has 3 keys", [](SortStep& s) { s.shape.num_keys = 3; }},
      {"key 1 of the sort is complex", [](SortStep& s) { s.shape.num_keys = 2; }},
      {"2 result slots; expected 2 and 3", [](SortStep& s) { s.shape.has_indices = true; }},
      {"1 operand slots and 2 result slots", [](SortStep& s) { s.in.pop_back(); }},
      {"expected 18 of f32", [](SortStep& s) { s.shape.kept = 3; }},
      {"expected 48 of f32", [](SortStep& s) { s.shape.outer = 2; }},
      {"expected 24 of s32", [](SortStep& s) { s.shape.dtypes[0] = ir::DType::kS32; }},
      {"is written, and is an argument", [](SortStep& s) { s.out[0] = s.in[0]; }},
      {"overlaps", [](SortStep& s) { s.in[0] = s.out[0]; }},
      {"of u8", [](SortStep& s) { s.scratch = s.out[0]; }},
      {"there is no slot 99", [](SortStep& s) { s.scratch = 99; }},
  };
  for (const Row& row : rows) {
    StepProgram forged = built;
    row.forge(SortOf(forged));
    EXPECT_THAT(Verify(forged), ReasonIs("INTERNAL", ::testing::HasSubstr(row.fault)));
  }
  // The scratch memory lies over an operand in the arena.
  StepProgram forged = built;
  SortStep& sort = SortOf(forged);
  Slot in_arena = forged.slots[sort.in[0]];
  in_arena.kind = Slot::Kind::kArena;
  in_arena.offset = forged.slots[sort.scratch].offset;
  sort.in[0] = static_cast<int>(forged.slots.size());
  forged.slots.push_back(in_arena);
  EXPECT_THAT(Verify(forged), ReasonIs("INTERNAL", ::testing::HasSubstr("overlaps")));
}

// ---- Exchanges beside other steps. -------------------------------------------------------------

const ir::Scope& TwoLanes() {
  static const auto* const scope =
      new ir::Scope{.mesh = {.axes = {{"i", 2, ir::AxisType::kManual}}}, .check_vma = false};
  return *scope;
}

int CountWaits(const std::vector<Step>& steps) {
  int waits = 0;
  for (const Step& step : steps) {
    waits += step.after >= 0 ? 1 : 0;
    ForEachList(step, [&](const std::vector<Step>& list) { waits += CountWaits(list); });
  }
  return waits;
}
// Counts the steps that begin while an exchange is under way.
int CountOverlapping(const std::vector<Step>& steps) {
  int overlapping = 0, ended = -1, last = -1;
  for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
    if (IsCommunicatingStep(steps[at])) {
      last = at;
      continue;
    }
    ended = std::max(ended, steps[at].after);
    overlapping += last > ended ? 1 : 0;
    if (ContainsCollective(steps[at])) ended = at;
  }
  return overlapping;
}

// Random programs with sums over two lanes, whose exchanges end as late as the steps allow.
TEST(RandomPrograms, AgreeWithTheEvaluatorIfExchangesEndLate) {
  const int64_t programs = tessera::testing::NumSeeds(1500);
  int waits = 0, overlapping = 0;
  for (uint32_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ir::FunctionRef f;
    ASSERT_THAT(CatchStatus([&] { f = RandomProgram(seed, TwoLanes()); }), IsOk());
    std::vector<Array> args;
    std::vector<ir::Shards> lanes;
    for (int i = 0; i < f->num_params; ++i) {
      args.push_back(WholeNumbers(f->types[i], i));
      lanes.push_back({args.back(), args.back()});
    }
    const absl::StatusOr<StepProgram> built = Build(*f, {});
    ASSERT_THAT(built, IsOk()) << ir::PrintFunction(*f);
    ASSERT_THAT(Verify(*built), IsOk()) << ir::PrintFunction(*f) << built->ToString();
    const auto want = ir::Evaluator().RunOnDevices({0, 1}, *f, lanes);
    ASSERT_THAT(want, IsOk());
    for (const std::vector<int>& way : WaysToDonate(*built)) {
      const std::vector<Array> got = Runner(*built, args, way).Run();
      for (size_t r = 0; r < got.size(); ++r)
        ASSERT_TRUE(got[r] == (*want)[r][0]) << "result " << r << " is " << got[r].ToString()
                                             << "\nexpected " << (*want)[r][0].ToString() << "\n"
                                             << ir::PrintFunction(*f) << built->ToString();
    }
    waits += CountWaits(built->steps);
    overlapping += CountOverlapping(built->steps);
  }
  EXPECT_GT(waits, programs * 2 / 3);
  EXPECT_GT(overlapping, programs / 5) << "few steps run during exchanges";
}

// Every wait is needed: if one is removed, the verifier finds a conflict.
TEST(Overlap, RemovingAWaitIsAConflict) {
  int dropped = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    absl::StatusOr<StepProgram> built = Build(*RandomProgram(seed, TwoLanes()), {});
    ASSERT_THAT(built, IsOk());
    for (Step& step : built->steps) {
      if (step.after < 0) continue;
      const int after = std::exchange(step.after, -1);
      EXPECT_THAT(Verify(*built), ReasonIs("INTERNAL", ::testing::HasSubstr("does not wait for")));
      step.after = after;
      ++dropped;
    }
  }
  EXPECT_GT(dropped, 50);
}

TEST(Overlap, AStepWaitsOnlyForAnEarlierExchange) {
  absl::StatusOr<ir::Program> program = ir::ParseProgram(R"(mesh (i=2:manual)
func main(%x: f32[8], %y: f32[8]) -> (f32[8], f32[8]) unchecked {
  %s = psum(%x) {axes=["i"]}
  %t = tanh(%y)
  %u = negate(%s)
  return %u, %t
})");
  ASSERT_THAT(program, IsOk());
  absl::StatusOr<StepProgram> built = Build(*program->entry, {});
  ASSERT_THAT(built, IsOk());
  ASSERT_EQ(built->steps.size(), 3u) << built->ToString();
  ASSERT_TRUE(IsCommunicatingStep(built->steps[0])) << built->ToString();
  // The step that reads nothing of the exchange does not wait for it, and the other one does.
  EXPECT_EQ(built->steps[1].after + built->steps[2].after, -1) << built->ToString();
  for (const int wrong : {-2, 1, 2, 7}) {
    StepProgram forged = *built;
    forged.steps[1].after = wrong;
    EXPECT_THAT(Verify(forged),
                ReasonIs("INTERNAL", ::testing::HasSubstr("not an earlier exchange")))
        << wrong;
  }
}

// ---- Results in the memory of arguments. -------------------------------------------------------

StepProgram BuildVerified(const std::string& text) {
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(text);
  EXPECT_THAT(program, IsOk());
  absl::StatusOr<StepProgram> built = Build(*program->entry, {});
  EXPECT_THAT(built, IsOk());
  EXPECT_THAT(Verify(*built), IsOk());
  return *std::move(built);
}

std::string DonationsText(const std::vector<Donation>& donations) {
  return absl::StrJoin(donations, " ", [](std::string* out, const Donation& donation) {
    absl::StrAppend(out, donation.argument, "->", donation.result);
  });
}

struct DonationRow {
  const char* name;
  const char* text;
  const char* want;  // "argument->result ..."
};
// Each row has a program with pairs of an argument and a result of the same size, and says in which
// of these pairs the result may get the argument's memory.
const DonationRow kDonations[] = {
    {"an element for the same element", R"(func main(%w: f32[6], %g: f32[3]) -> (f32[6]) {
  %x = multiply(%w, %w)
  return %x
})",
     "0->0"},
    {"either of two", R"(func main(%w: f32[6], %g: f32[6]) -> (f32[6]) {
  %x = subtract(%w, %g)
  return %x
})",
     "0->0 1->0"},
    {"each of two has its own", R"(func main(%w: f32[600], %m: f32[600]) -> (f32[600], f32[600]) {
  %a = subtract(%w, %m)
  %b = multiply(%w, %m)
  return %a, %b
})",
     "0->0 1->0 1->1 0->1"},
    {"small ones are written one after the other",
     R"(func main(%w: f32[6], %m: f32[6]) -> (f32[6], f32[6]) {
  %a = subtract(%w, %m)
  %b = multiply(%w, %m)
  return %a, %b
})",
     "1->1 0->1"},
    {"an element for another", R"(func main(%w: f32[2,3]) -> (f32[3,2]) {
  %t = transpose(%w) {permutation=[1,0]}
  %x = negate(%t)
  return %x
})",
     ""},
    {"at the same place and at another", R"(func main(%w: f32[3,3]) -> (f32[3,3]) {
  %t = transpose(%w) {permutation=[1,0]}
  %x = add(%t, %w)
  return %x
})",
     ""},
    {"turned round", R"(func main(%w: f32[6]) -> (f32[6]) {
  %t = reverse(%w) {dimensions=[0]}
  %x = negate(%t)
  return %x
})",
     ""},
    {"what another is shifted by", R"(func main(%w: s32[1], %v: s32[4]) -> (s32[1]) {
  %s = reshape(%w) {shape=[]}
  %d = dynamic_slice(%v, %s) {slice_sizes=[1]}
  %x = negate(%d)
  return %x
})",
     ""},
    {"the argument is a result, too", R"(func main(%w: f32[6]) -> (f32[6], f32[6]) {
  %x = negate(%w)
  return %x, %w
})",
     ""},
    {"read by a later step", R"(func main(%w: f32[2,2], %v: f32[2,3]) -> (f32[2,2], f32[2,2]) {
  %s = reduce_sum(%v) {dimensions=[1]}
  %b = broadcast_in_dim(%s) {broadcast_dimensions=[0], shape=[2,2]}
  %x = multiply(%b, %b)
  %d = dot_general(%x, %w) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], rhs_contracting_dimensions=[0]}
  return %x, %d
})",
     ""},
    {"read by an earlier step alone", R"(func main(%w: f32[2,2], %k: f32[2,3]) -> (f32[2,2]) {
  %d = dot_general(%w, %k) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], rhs_contracting_dimensions=[0]}
  %s = dot_general(%d, %k) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], rhs_contracting_dimensions=[1]}
  return %s
})",
     "0->0"},
    {"read in every trip of a loop", R"(func main(%w: f32[3], %c: f32[3]) -> (f32[3]) {
  %r = scan(%w, %c) {num_consts=1, num_carry=1, length=5, reverse=false} with
    func body(%k: f32[3], %a: f32[3]) -> (f32[3]) {
      %s = add(%a, %k)
      return %s
    }
  return %r
})",
     "1->0"},
    {"read by a predicate", R"(func main(%w: f32[3], %c: f32[3]) -> (f32[3]) {
  %r = while(%w, %c) {num_predicate_consts=1, num_body_consts=0} with
    func below(%k: f32[3], %a: f32[3]) -> (bool[]) {
      %x = reduce_max(%k) {dimensions=[0]}
      %y = reduce_max(%a) {dimensions=[0]}
      %p = compare(%y, %x) {direction="LT"}
      return %p
    }
    func step(%a: f32[3]) -> (f32[3]) {
      %s = add(%a, %a)
      return %s
    }
  return %r
})",
     "1->0"},
    {"read by the other branch", R"(func main(%i: s32[], %w: f32[3], %c: f32[3]) -> (f32[3]) {
  %r = case(%i, %w, %c) with
    func first(%a: f32[3], %b: f32[3]) -> (f32[3]) {
      %s = sine(%a)
      return %s
    }
    func second(%a: f32[3], %b: f32[3]) -> (f32[3]) {
      %s = add(%b, %a)
      %t = multiply(%s, %b)
      return %t
    }
  return %r
})",
     ""},
};

TEST(Donation, TheBuilderFindsAllPossibleDonations) {
  for (const DonationRow& row : kDonations) {
    const StepProgram built = BuildVerified(row.text);
    EXPECT_EQ(DonationsText(built.donations), row.want) << row.name << "\n" << built.ToString();
  }
}

// The verifier refuses a donation for every other pair of the same size.
TEST(Donation, DonationsOfOtherPairsAreRefused) {
  int refused = 0;
  for (const DonationRow& row : kDonations) {
    SCOPED_TRACE(row.name);
    const StepProgram built = BuildVerified(row.text);
    for (int a = 0; a < static_cast<int>(built.arguments.size()); ++a)
      for (int r = 0; r < static_cast<int>(built.results.size()); ++r) {
        const Donation pair{a, r};
        const auto& listed = built.donations;
        if (std::find(listed.begin(), listed.end(), pair) != listed.end()) continue;
        StepProgram forged = built;
        forged.donations.push_back(pair);
        EXPECT_THAT(Verify(forged), ReasonIs("INTERNAL", ::testing::HasSubstr("in place of")))
            << a << "->" << r;
        ++refused;
      }
  }
  EXPECT_GE(refused, 10);
}

TEST(Donation, AnInPlaceParamWithoutADonationIsRefused) {
  StepProgram built = BuildVerified(kDonations[0].text);
  built.donations.clear();
  EXPECT_THAT(Verify(built), ReasonIs("INTERNAL", ::testing::HasSubstr("by no result")));
}

TEST(Donation, ADonationWithoutAnInPlaceParamIsRefused) {
  StepProgram built = BuildVerified(kDonations[0].text);
  for (codegen::Kernel& kernel : built.kernels)
    for (codegen::Param& param : kernel.params) param.in_place = false;
  EXPECT_THAT(Verify(built), ReasonIs("INTERNAL", ::testing::HasSubstr("element for element")));
}

TEST(Donation, ARunUsesOneDonationForEachArgumentAndResult) {
  const StepProgram built = BuildVerified(kDonations[2].text);
  EXPECT_EQ(ChooseDonations(built, {true, true}), (std::vector<int>{0, 1}));
  EXPECT_EQ(ChooseDonations(built, {false, true}), (std::vector<int>{1, -1}));
  EXPECT_EQ(ChooseDonations(built, {true, false}), (std::vector<int>{0, -1}));
  EXPECT_EQ(ChooseDonations(built, {}), (std::vector<int>{-1, -1}));
}

// ---- checkpoint. ----

constexpr int kBlocks = 8;
const ir::Type kActivation = ir::MakeType(ir::DType::kF32, {64, 32});

// Returns the gradient, by x and the weights, of the sum of x after eight blocks x = tanh(tanh(x w)
// v).
ir::FunctionRef GradOfBlocks(bool checkpointed) {
  const ir::Type weight = ir::MakeType(ir::DType::kF32, {32, 32});
  const auto block = [](const std::vector<ir::Value>& p) -> std::vector<ir::Value> {
    const ir::Value hidden = ir::Tanh(ir::Matmul2D(p[0], p[1]));
    return {ir::Tanh(ir::Matmul2D(hidden, p[2]))};
  };
  ir::Builder inner(ir::Scope{}, "block");
  const ir::FunctionRef one =
      inner.Build(block({inner.Param(kActivation), inner.Param(weight), inner.Param(weight)}));
  ir::Builder b(ir::Scope{}, "loss");
  std::vector<ir::Value> params = {b.Param(kActivation)};
  for (int i = 0; i < 2 * kBlocks; ++i) params.push_back(b.Param(weight));
  ir::Value x = params[0];
  for (int i = 0; i < kBlocks; ++i) {
    const std::vector<ir::Value> args = {x, params[1 + 2 * i], params[2 + 2 * i]};
    x = checkpointed ? ir::Checkpoint(b, one, args)[0] : ir::Inline(b, *one, args)[0];
  }
  const ir::FunctionRef loss = b.Build({ir::ReduceSum(ir::Mul(x, x), {0, 1})});

  const std::vector<bool> all(loss->num_params, true);
  const ir::Linearized lin = ValueOrThrow(ir::Linearize(*loss, all));
  std::vector<bool> linear(lin.linear->num_params, true);
  std::fill_n(linear.begin(), lin.num_residuals, false);
  const ir::FunctionRef backward = ValueOrThrow(ir::TransposeFunction(*lin.linear, linear));
  ir::Builder g(ir::Scope{}, "grad");
  std::vector<ir::Value> args;
  for (const ir::Type& t : loss->param_types()) args.push_back(g.Param(t));
  const std::vector<ir::Value> forward = ir::Inline(g, *lin.forward, args);
  std::vector<ir::Value> in(forward.end() - lin.num_residuals, forward.end());
  in.push_back(ir::Constant(g, ir::DType::kF32, 1));
  std::vector<ir::Value> out = ir::Inline(g, *backward, in);
  out.push_back(forward[0]);
  return ir::Dce(*g.Build(out));
}

StepProgram BuiltGrad(bool checkpointed, bool with_library) {
  BuildOptions options;
  if (with_library) options.has_matmul = [](ir::DType, ir::DType) { return true; };
  return ValueOrThrow(Build(*GradOfBlocks(checkpointed), options));
}

// A checkpointed block computes its activations again, so only the input of each block is kept, and
// not its hidden activation.
TEST(Checkpoint, HiddenActivationsAreNotKept) {
  for (const bool with_library : {false, true}) {
    const StepProgram plain = BuiltGrad(false, with_library);
    const StepProgram again = BuiltGrad(true, with_library);
    EXPECT_THAT(Verify(again), IsOk());
    const int64_t saved = plain.arena_bytes - again.arena_bytes;
    EXPECT_GE(saved, (kBlocks - 1) * kActivation.num_bytes())
        << plain.arena_bytes << " bytes, with checkpoint " << again.arena_bytes;
  }
}

// A large value that is computed from an argument and read at the end must not be computed at the
// beginning, together with another value that reads the argument.
TEST(Fusion, NoMergeKeepsALargeValueForLong) {
  const ir::Type large = ir::MakeType(ir::DType::kF32, {512, 512});
  const auto arena = [&](bool late) {
    ir::Builder b(ir::Scope{}, "f");
    const ir::Value x = b.Param(large);
    ir::Value y = ir::Tanh(x);
    for (int i = 0; i < 40; ++i) {
      const ir::Value left = ir::Matmul2D(x, y);
      y = ir::Tanh(ir::Add(left, ir::Matmul2D(y, x)));
    }
    if (late) y = ir::Matmul2D(ir::Exp(x), y);
    const ir::FunctionRef f = b.Build({ir::Matmul2D(y, y)});
    BuildOptions options;
    options.has_matmul = [](ir::DType, ir::DType) { return true; };
    return ValueOrThrow(Build(*f, options)).arena_bytes;
  };
  EXPECT_EQ(arena(false), 3 * large.num_bytes());  // two products and y
  EXPECT_EQ(arena(true), 3 * large.num_bytes());
}

TEST(Checkpoint, GivesTheSameGradients) {
  std::vector<Array> args;
  const ir::FunctionRef f = GradOfBlocks(true);
  for (int i = 0; i < f->num_params; ++i) args.push_back(WholeNumbers(f->types[i], i));
  for (Array& a : args)
    for (int64_t k = 0; k < a.num_elements(); ++k) a.Set(k, a.At(k) / 64);
  const std::vector<Array> want = ValueOrThrow(ir::Evaluate(*GradOfBlocks(false), args));
  const std::vector<Array> got = Runner(BuiltGrad(true, false), args).Run();
  for (size_t r = 0; r < want.size(); ++r)
    for (int64_t k = 0; k < want[r].num_elements(); ++k)
      ASSERT_NEAR(got[r].At(k), want[r].At(k), 1e-4 * (1 + std::abs(want[r].At(k)))) << r;
}

// ---- Row tiles. --------------------------------------------------------------------------------

// Returns the program with the tiles that PlanRowTiles makes for `rows_min`, instead of the tiles
// that Build has made.
StepProgram Retiled(StepProgram program, int64_t rows_min) {
  ForEachStep(program.steps, [](Step& step) {
    if (auto* k = std::get_if<KernelStep>(&step.what)) k->tile = -1;
  });
  program.tiles.clear();
  PlanRowTiles(&program, rows_min);
  return program;
}

// Expects the same results from tiles in blocks of rows as from the steps one by one.
void ExpectTilesChangeNothing(const ir::Function& f, const StepProgram& program) {
  std::vector<Array> args;
  for (int i = 0; i < f.num_params; ++i) args.push_back(WholeNumbers(f.types[i], i));
  for (const std::vector<int>& way : WaysToDonate(program)) {
    const std::vector<Array> want = Runner(program, args, way).Run();
    for (const int64_t block : {1, 3})
      EXPECT_TRUE(Runner(program, args, way, block).Run() == want)
          << "blocks of " << block << "\n"
          << ir::PrintFunction(f) << program.ToString();
  }
}

TEST(RowTiles, GiveTheResultsOfSingleSteps) {
  const int64_t programs = tessera::testing::NumSeeds(1500);
  int64_t tiles = 0;
  for (uint32_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const ir::FunctionRef f = RandomProgram(seed);
    TESSERA_ASSERT_OK_AND_ASSIGN(StepProgram built, Build(*f, {}));
    const StepProgram tiled = Retiled(std::move(built), /*rows_min=*/2);
    ASSERT_THAT(Verify(tiled), IsOk()) << tiled.ToString();
    if (tiled.tiles.empty()) continue;
    tiles += static_cast<int64_t>(tiled.tiles.size());
    ExpectTilesChangeNothing(*f, tiled);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(tiles, programs / 5);
}

// Makes a tile of any two kernels that follow each other. The verifier must refuse those tiles that
// change the results.
TEST(RowTiles, AcceptedTilesDoNotChangeTheResults) {
  const int64_t programs = tessera::testing::NumSeeds(1500);
  int accepted = 0, refused = 0;
  for (uint32_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const ir::FunctionRef f = RandomProgram(seed);
    TESSERA_ASSERT_OK_AND_ASSIGN(StepProgram built, Build(*f, {}));
    built = Retiled(std::move(built), /*rows_min=*/int64_t{1} << 40);
    for (size_t at = 0; at + 1 < built.steps.size(); ++at) {
      StepProgram forged = built;
      auto* a = std::get_if<KernelStep>(&forged.steps[at].what);
      auto* b = std::get_if<KernelStep>(&forged.steps[at + 1].what);
      if (a == nullptr || b == nullptr) continue;
      const int64_t rows = std::gcd(forged.kernels[a->kernel].num_iterations(),
                                    forged.kernels[b->kernel].num_iterations());
      if (rows < 2) continue;
      a->tile = b->tile = 0;
      forged.tiles = {{rows}};
      if (!Verify(forged).ok()) {
        EXPECT_THAT(Verify(forged), ReasonIs("INTERNAL", ::testing::HasSubstr("other rows")));
        ++refused;
        continue;
      }
      ++accepted;
      ExpectTilesChangeNothing(*f, forged);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(accepted, programs / 15);
  EXPECT_GT(refused, programs / 15);
}

constexpr char kSumAndDivide[] = R"(func main(%x: f32[64,8]) -> (f32[64,8]) {
  %s = reduce_sum(%x) {dimensions=[1]}
  %b = broadcast_in_dim(%s) {broadcast_dimensions=[0], shape=[64,8]}
  %d = divide(%x, %b)
  return %d
})";

// Each change of a valid tile breaks one rule.
TEST(RowTiles, FaultyTilesAreRefused) {
  const StepProgram built = BuildVerified(kSumAndDivide);
  ASSERT_EQ(built.tiles.size(), 1u) << built.ToString();
  EXPECT_EQ(built.tiles[0].rows, 64);
  const auto refused = [&](const char* why, const std::function<void(StepProgram*)>& change) {
    StepProgram forged = built;
    change(&forged);
    EXPECT_THAT(Verify(forged), ReasonIs("INTERNAL", ::testing::HasSubstr(why)));
  };
  const auto step = [](StepProgram* p, size_t i) -> KernelStep& {
    return std::get<KernelStep>(p->steps[i].what);
  };
  refused("does not exist", [&](StepProgram* p) { p->tiles.clear(); });
  refused("has no rows", [&](StepProgram* p) { p->tiles[0].rows = 0; });
  refused("other rows", [&](StepProgram* p) { p->tiles[0].rows = 128; });
  refused("other rows", [&](StepProgram* p) { p->tiles[0].rows = 24; });
  refused("consecutive", [&](StepProgram* p) {
    p->steps.insert(p->steps.begin() + 1, p->steps[0]);
    step(p, 1).tile = -1;
  });
  // The sums of the columns need all rows.
  const StepProgram columns = BuildVerified(R"(func main(%x: f32[64,64]) -> (f32[64,64]) {
  %s = reduce_sum(%x) {dimensions=[0]}
  %b = broadcast_in_dim(%s) {broadcast_dimensions=[0], shape=[64,64]}
  %d = divide(%x, %b)
  return %d
})");
  EXPECT_TRUE(columns.tiles.empty()) << columns.ToString();
  StepProgram forged = columns;
  step(&forged, 0).tile = step(&forged, 1).tile = 0;
  forged.tiles = {{64}};
  EXPECT_THAT(Verify(forged), ReasonIs("INTERNAL", ::testing::HasSubstr("other rows")));
}

// ---- Scans. ------------------------------------------------------------------------------------

bool HasHostStep(const StepProgram& p) {
  return std::any_of(p.steps.begin(), p.steps.end(),
                     [](const Step& step) { return std::holds_alternative<HostStep>(step.what); });
}

// No cancellation ends what a scan does for one parallel point, so a long scan is left to the
// evaluator, which needs all its operands in memory.
TEST(Scans, LongScansAreLeftToTheHost) {
  constexpr char kCumsum[] = R"(func main(%x: f32[2,N]) -> (f32[2,N]) {
  %y = cumsum(%x) {dimension=1, reverse=false}
  return %y
})";
  constexpr char kScatter[] = R"(func main(%x: f32[8], %u: f32[]) -> (f32[8]) {
  %at = constant() {value=dense<s32[]: 3>}
  %ats = broadcast_in_dim(%at) {broadcast_dimensions=[], shape=[1048576,N,1]}
  %us = broadcast_in_dim(%u) {broadcast_dimensions=[], shape=[1048576,N]}
  %y = scatter_add(%x, %ats, %us) {index_vector_dim=2, input_batching_dims=[],
      inserted_window_dims=[0], mode="clip", scatter_dims_to_operand_dims=[0],
      scatter_indices_batching_dims=[], update_window_dims=[]}
  return %y
})";
  BuildOptions options;
  options.has_scan = [](const ir::ScanSize&) { return true; };
  const auto built = [&](const char* text, int64_t n) {
    const ir::Program program =
        ValueOrThrow(ir::ParseProgram(absl::StrReplaceAll(text, {{"N", absl::StrCat(n)}})));
    return ValueOrThrow(Build(*program.entry, options));
  };
  EXPECT_FALSE(HasHostStep(built(kCumsum, 1 << 24)));
  EXPECT_TRUE(HasHostStep(built(kCumsum, (1 << 24) + 1)));
  EXPECT_FALSE(HasHostStep(built(kScatter, 16)));
  EXPECT_TRUE(HasHostStep(built(kScatter, 17)));
  const StepProgram endless = built(kScatter, 1 << 20);
  EXPECT_TRUE(HasHostStep(endless));
  EXPECT_GE(endless.arena_bytes, int64_t{8} << 40);
}

// Reduces rows of every length, and several dims. The result of the computation depends on which
// elements are combined. There are up to as many operands as a kernel can combine.
TEST(Computations, ReduceInTheEvaluatorsPairs) {
  const auto reduction = [](const ir::Dims& shape, const std::vector<int64_t>& dims, size_t n) {
    ir::Builder b(ir::Scope{});
    std::vector<ir::Value> xs, inits;
    for (size_t k = 0; k < n; ++k) xs.push_back(b.Param(ir::MakeType(ir::DType::kF32, shape)));
    for (size_t k = 0; k < n; ++k) inits.push_back(b.Param(ir::MakeType(ir::DType::kF32, {})));
    ir::Builder c(ir::Scope{});
    std::vector<ir::Value> params, combined;
    for (size_t k = 0; k < 2 * n; ++k) params.push_back(c.Param(ir::MakeType(ir::DType::kF32, {})));
    for (size_t k = 0; k < n; ++k) {
      const ir::Value half = params[k] * ir::FullLike(params[k], 0.5);
      combined.push_back(half - params[n + (k + 1) % n]);
    }
    return b.Build(ir::Reduce(xs, inits, c.Build(combined), dims));
  };
  const auto check = [&](const ir::FunctionRef& f) {
    const StepProgram built = ValueOrThrow(Build(*f, {}));
    ASSERT_THAT(Verify(built), IsOk()) << built.ToString();
    EXPECT_FALSE(HasHostStep(built));
    std::vector<Array> args;
    for (int i = 0; i < f->num_params; ++i) args.push_back(WholeNumbers(f->types[i], i));
    const std::vector<Array> want = ValueOrThrow(ir::Evaluate(*f, args));
    const std::vector<Array> got = Runner(built, args).Run();
    for (size_t r = 0; r < got.size(); ++r)
      EXPECT_TRUE(got[r] == want[r])
          << got[r].ToString() << "\nexpected " << want[r].ToString() << "\n"
          << ir::PrintFunction(*f) << built.ToString();
  };
  for (int64_t n = 0; n < 70; ++n) check(reduction({n}, {0}, 1));
  for (const int64_t n : {255, 256, 257, 1000, 4097}) check(reduction({n}, {0}, 1));
  for (const size_t operands : {2, 3, 8})
    for (const int64_t n : {1, 2, 3, 7, 8, 9, 31}) check(reduction({2, n}, {1}, operands));
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{}, {0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}})
    check(reduction({5, 18, 3}, dims, 1));
  EXPECT_TRUE(HasHostStep(ValueOrThrow(Build(*reduction({4}, {0}, 9), {})))) << "more operands";
}

TEST(ProgramTranscripts, AreAsRecorded) {
  RunDataFolder("tests/golden/program", [](const DataCase& c) -> std::string {
    SCOPED_TRACE(absl::StrCat(c.file, ":", c.line));
    if (c.command == "build") return BuildText(c);
    ADD_FAILURE() << "unknown command " << c.command;
    return "";
  });
}

}  // namespace
}  // namespace tessera::worker::program
