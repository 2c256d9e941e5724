// Runs step programs on host memory: the CPU backend calls MakeHostProgram once per program and
// RunProgram for each launch. A run goes through the steps in order on the calling thread, and
// shares large steps with the helpers of the thread pool.
#include "worker/cpu/program_run.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/eval/memory.h"
#include "ir/narrow_float.h"
#include "worker/cpu/grain.h"
#include "worker/cpu/loop_blocking.h"
#include "worker/cpu/parallel_for.h"
#include "worker/cpu/sort.h"
#include "worker/program/row_tile.h"

namespace tessera::worker {
namespace {

using program::AxisIndexStep;
using program::BranchStep;
using program::CollectiveStep;
using program::CopyStep;
using program::HostStep;
using program::KernelStep;
using program::LoopStep;
using program::MatmulStep;
using program::Slot;
using program::SortStep;
using program::Step;

// Multiplies by nested loops, for shapes and dtypes that oneDNN does not support.
template <class T, class Load, class Store>
void NaiveMatmul(const MatmulShape& s, const T* a, const T* b, Load load, Store store) {
  for (int64_t i = 0; i < s.batch; ++i)
    for (int64_t m = 0; m < s.m; ++m)
      for (int64_t n = 0; n < s.n; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < s.k; ++k)
          sum += static_cast<double>(
                     load(a[i * s.a_strides[0] + m * s.a_strides[1] + k * s.a_strides[2]])) *
                 static_cast<double>(
                     load(b[i * s.b_strides[0] + k * s.b_strides[1] + n * s.b_strides[2]]));
        store((i * s.m + m) * s.n + n, static_cast<float>(sum));
      }
}

void NaiveMatmul(const MatmulShape& s, const std::byte* a, const std::byte* b, std::byte* c) {
  const auto multiply = [&](auto store) {
    if (s.in == ir::DType::kBF16) {
      NaiveMatmul(s, reinterpret_cast<const uint16_t*>(a), reinterpret_cast<const uint16_t*>(b),
                  ir::Bf16ToFloat, store);
    } else {
      NaiveMatmul(
          s, reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b),
          [](float x) { return x; }, store);
    }
  };
  if (s.out == ir::DType::kBF16) {
    multiply([out = reinterpret_cast<uint16_t*>(c)](int64_t i, float v) {
      out[i] = ir::FloatToBf16(v);
    });
  } else {
    multiply([out = reinterpret_cast<float*>(c)](int64_t i, float v) { out[i] = v; });
  }
}

class ProgramRunner {
 public:
  ProgramRunner(const HostProgram& host, const RunContext& context, const HostMemory& memory,
                const HostResources& resources)
      : host_(host),
        p_(host.program),
        context_(context),
        memory_(memory),
        resources_(resources),
        iterations_(p_.num_loops, 0) {}

  absl::Status RunSteps(const std::vector<Step>& steps) {
    for (size_t at = 0; at < steps.size(); ++at) {
      const Step& step = steps[at];
      if (context_.cancel->cancelled()) return context_.cancel->status();
      if (const HostTile* tile = TileStartingAt(step)) {
        TESSERA_RETURN_IF_ERROR(RunTile(*tile));
        at += tile->parts.size() - 1;
        continue;
      }
      if (const auto* loop = std::get_if<LoopStep>(&step.what)) {
        const int native = host_.native_loop_index[loop->number];
        TESSERA_RETURN_IF_ERROR(native < 0 ? RunLoop(*loop) : RunNativeLoop(native));
        continue;
      }
      if (const auto* branch = std::get_if<BranchStep>(&step.what)) {
        const auto last = static_cast<int64_t>(branch->branches.size()) - 1;
        const int64_t index = std::clamp<int64_t>(ReadAs<int32_t>(branch->index), 0, last);
        TESSERA_RETURN_IF_ERROR(RunSteps(branch->branches[index]));
        continue;
      }
      TESSERA_RETURN_IF_ERROR(RunStep(step));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunLoop(const LoopStep& loop) {
    for (int64_t i = 0;
         loop.condition >= 0 ? ReadAs<uint8_t>(loop.condition) != 0 : i < loop.trip_count; ++i) {
      iterations_[loop.number] = i;
      if (context_.cancel->cancelled()) return context_.cancel->status();
      TESSERA_RETURN_IF_ERROR(RunSteps(loop.body));
    }
    return absl::OkStatus();
  }

  // Returns the tile that begins with the step, or null.
  const HostTile* TileStartingAt(const Step& step) const {
    const auto* kernel = std::get_if<KernelStep>(&step.what);
    if (kernel == nullptr || kernel->tile < 0 || host_.tiles.empty()) return nullptr;
    const HostTile& tile = host_.tiles[kernel->tile];
    return tile.parts.empty() ? nullptr : &tile;
  }

  absl::Status RunTile(const HostTile& tile) {
    context_.SetOp(p_.labels[tile.heaviest_label], /*waiting=*/false);
    buffers_.clear();  // gets the buffers of all parts, one part after the other
    for (const HostTile::Part& part : tile.parts)
      for (const int slot : part.slots) buffers_.push_back(AddressOf(slot));
    return ParallelFor(tile.rows, tile.work_per_row, kKernelGrain, [&](int64_t begin, int64_t end) {
      std::vector<void*> buffers(buffers_.size());
      for (int64_t row = begin; row < end; row += tile.block_rows) {
        const int64_t rows = std::min(tile.block_rows, end - row);
        size_t at = 0;
        for (const HostTile::Part& part : tile.parts) {
          void** const first = &buffers[at];
          for (const int64_t stride : part.row_strides) {
            buffers[at] = static_cast<std::byte*>(buffers_[at]) + row * stride;
            ++at;
          }
          const int64_t from = part.moves_buffers ? 0 : row * part.iterations_per_row;
          part.function(first, from, from + rows * part.iterations_per_row);
        }
      }
    });
  }

  // The context of the callbacks from a native loop.
  struct NativeCalls {
    ProgramRunner* runner;
    const NativeLoop* loop;
    // The current iteration of each loop of the code.
    std::vector<int64_t> iterations;
    // The status of the call that ended the loop.
    absl::Status status;
  };

  absl::Status RunNativeLoop(int number) {
    const NativeLoop& loop = host_.native_loops[number];
    context_.SetOp(loop.label, /*waiting=*/false);
    for (const int l : loop.loop_numbers) iterations_[l] = 0;
    std::vector<void*> bases;
    bases.reserve(loop.base_slots.size());
    for (const int slot : loop.base_slots) bases.push_back(AddressOf(slot));
    NativeCalls calls{this, &loop, std::vector<int64_t>(loop.loop_numbers.size()), {}};
    const codegen::LoopFrame frame{bases.data(), context_.cancel->word(), CallFromLoop, &calls,
                                   calls.iterations.data()};
    if (host_.code->loop(number)(&frame) == 0) return absl::OkStatus();
    return calls.status.ok() ? context_.cancel->status() : calls.status;
  }

  static int32_t CallFromLoop(void* context, int32_t number) {
    auto& calls = *static_cast<NativeCalls*>(context);
    return calls.runner->CallFromLoop(calls, calls.loop->called_steps[number]) ? 0 : 1;
  }
  bool CallFromLoop(NativeCalls& calls, const Step& step) {
    for (size_t l = 0; l < calls.iterations.size(); ++l)
      iterations_[calls.loop->loop_numbers[l]] = calls.iterations[l];
    calls.status = context_.cancel->cancelled() ? context_.cancel->status() : RunStep(step);
    if (!calls.status.ok()) return false;
    if (std::holds_alternative<CollectiveStep>(step.what))
      context_.SetOp(calls.loop->label, /*waiting=*/false);
    return true;
  }

  template <class T>
  T ReadAs(int slot) const {
    T value;
    std::memcpy(&value, AddressOf(slot), sizeof value);
    return value;
  }

  std::byte* AddressOf(int slot) const {
    const Slot& s = p_.slots[slot];
    std::byte* base = nullptr;
    switch (s.kind) {
      case Slot::Kind::kArgument:
        // The memory of an argument is only read.
        base = const_cast<std::byte*>(memory_.arguments[s.index]);
        break;
      case Slot::Kind::kResult:
        base = memory_.results[s.index];
        break;
      case Slot::Kind::kConstant:
        // The memory of a constant is only read.
        base = const_cast<std::byte*>(p_.constants[s.index].data());
        break;
      case Slot::Kind::kArena:
        base = memory_.arena;
        break;
    }
    base += s.offset;
    for (const auto& [loop, stride] : s.loop_strides) base += stride * iterations_[loop];
    return base;
  }
  absl::Span<const std::byte> Bytes(int slot) const {
    return {AddressOf(slot), static_cast<size_t>(p_.slots[slot].bytes())};
  }
  absl::Span<std::byte> MutableBytes(int slot) const {
    return {AddressOf(slot), static_cast<size_t>(p_.slots[slot].bytes())};
  }

  // Runs a step that has no lists of steps in it.
  absl::Status RunStep(const Step& step) {
    const std::string& label = p_.labels[step.label];
    const absl::Status status = Dispatch(step, label);
    return status.ok() ? status : WithLabel(status, context_, label);
  }

  absl::Status Dispatch(const Step& step, const std::string& label) {
    const auto* collective = std::get_if<CollectiveStep>(&step.what);
    context_.SetOp(label, /*waiting=*/collective != nullptr);
    if (collective != nullptr) return RunCollective(*collective, label);
    if (const auto* k = std::get_if<KernelStep>(&step.what)) return RunKernel(*k);
    if (const auto* m = std::get_if<MatmulStep>(&step.what)) return Multiply(*m);
    if (const auto* s = std::get_if<SortStep>(&step.what)) return SortRows(*s);
    if (const auto* c = std::get_if<CopyStep>(&step.what)) return Copy(*c);
    if (const auto* h = std::get_if<HostStep>(&step.what)) return Evaluate(*h);
    const AxisIndexStep& s = std::get<AxisIndexStep>(step.what);
    const auto index = static_cast<int32_t>(p_.mesh.IndexAlong(context_.mesh_device, s.axes));
    std::memcpy(AddressOf(s.out), &index, sizeof index);
    return absl::OkStatus();
  }

  // Calls `work(begin, end)` for parts of [0, n) on several threads (parallel_for.h). Returns the
  // reason if the run is cancelled.
  template <class Work>
  absl::Status ParallelFor(int64_t n, int64_t cost_each, Grain grain, const Work& work) {
    const auto is_cancelled = [this] { return context_.cancel->cancelled(); };
    worker::ParallelFor(*resources_.threads, resources_.num_threads, n, cost_each, grain,
                        is_cancelled, work);
    return is_cancelled() ? context_.cancel->status() : absl::OkStatus();
  }

  absl::Status RunKernel(const KernelStep& step) {
    const codegen::Kernel& kernel = p_.kernels[step.kernel];
    buffers_.clear();
    for (int slot : step.slots) buffers_.push_back(AddressOf(slot));
    const int64_t n = kernel.num_iterations();
    if (n == 0) return absl::OkStatus();
    if (host_.code == nullptr) {
      codegen::Interpret(kernel, buffers_, 0, n);
      return absl::OkStatus();
    }
    const codegen::HostCode::Fn fn = host_.functions[step.kernel];
    return ParallelFor(n, WorkOfIteration(kernel), kKernelGrain,
                       [&](int64_t begin, int64_t end) { fn(buffers_.data(), begin, end); });
  }

  // Multiplies batches of matrices, on several threads if they are large. Threads share a batch by
  // matrix, and a single product by rows. Large matrices of a batch are single products, one after
  // the other, since the cancellation flag must be polled during each. Either way each element is
  // summed in one piece by one thread. Products that oneDNN does not support are computed by plain
  // loops.
  absl::Status Multiply(const MatmulStep& step) {
    const MatmulShape& s = step.shape;
    const int64_t in_width = ir::ByteWidth(s.in), out_width = ir::ByteWidth(s.out);
    const std::byte* a = AddressOf(step.a) + step.a_offset * in_width;
    const std::byte* b = AddressOf(step.b) + step.b_offset * in_width;
    std::byte* c = AddressOf(step.c);
    const auto multiply = [&](const MatmulShape& part, int64_t a_at, int64_t b_at, int64_t c_at) {
      const std::byte* part_a = a + a_at * in_width;
      const std::byte* part_b = b + b_at * in_width;
      std::byte* part_c = c + c_at * out_width;
      if (!resources_.matmul->Run(part, part_a, part_b, part_c))
        NaiveMatmul(part, part_a, part_b, part_c);
    };
    if (s.batch > 1 && s.m * s.n * s.k <= kMatmulGrain.max) {
      return ParallelFor(s.batch, s.m * s.n * s.k, kMatmulGrain, [&](int64_t begin, int64_t end) {
        MatmulShape part = s;
        // oneDNN has no code for a matrix that is the same in the whole batch. Multiplying the
        // matrices one by one uses the same oneDNN kernels.
        const bool shares_matrix = s.a_strides[0] == 0 || s.b_strides[0] == 0;
        part.batch = shares_matrix ? 1 : end - begin;
        // The batch strides are unused if the batch is 1.
        if (shares_matrix) part.a_strides[0] = s.m * s.k, part.b_strides[0] = s.k * s.n;
        for (int64_t i = begin; i < end; i += part.batch)
          multiply(part, i * s.a_strides[0], i * s.b_strides[0], i * s.m * s.n);
      });
    }
    // Splits the rows at multiples of the number of rows that oneDNN's kernels compute at once.
    constexpr int64_t kRowsAtOnce = 32;
    for (int64_t i = 0; i < s.batch; ++i) {
      TESSERA_RETURN_IF_ERROR(
          ParallelFor((s.m + kRowsAtOnce - 1) / kRowsAtOnce, std::min(kRowsAtOnce, s.m) * s.n * s.k,
                      kMatmulGrain, [&](int64_t begin, int64_t end) {
                        MatmulShape part = s;
                        const int64_t first = begin * kRowsAtOnce;
                        part.m = std::min(s.m, end * kRowsAtOnce) - first;
                        // The batch strides are unused, as the batch is 1.
                        part.a_strides[0] = part.m * s.k;
                        if (s.batch > 1) part.batch = 1, part.b_strides[0] = s.k * s.n;
                        multiply(part, i * s.a_strides[0] + first * s.a_strides[1],
                                 i * s.b_strides[0], (i * s.m + first) * s.n);
                      }));
    }
    return absl::OkStatus();
  }

  absl::Status SortRows(const SortStep& step) {
    const int threads = resources_.num_threads;
    if (p_.slots[step.scratch].bytes() < SortScratchBytes(step.shape, threads))
      return MakeError(ErrorKind::kInternal, "the scratch memory of a sort is too small");
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
    for (const int slot : step.in) in.push_back(AddressOf(slot));
    for (const int slot : step.out) out.push_back(AddressOf(slot));
    Sort(step.shape, {in, out, AddressOf(step.scratch)}, *resources_.threads, threads,
         [this] { return context_.cancel->cancelled(); });
    return context_.cancel->cancelled() ? context_.cancel->status() : absl::OkStatus();
  }

  absl::Status Copy(const CopyStep& step) {
    const absl::Span<std::byte> to = MutableBytes(step.out);
    const std::byte* from = AddressOf(step.in);
    // If the addresses are equal, the argument was donated to the result, and nothing has to be
    // copied.
    if (from == to.data()) return absl::OkStatus();
    return ParallelFor(static_cast<int64_t>(to.size()), 1, kCopyGrain,
                       [&](int64_t begin, int64_t end) {
                         std::memcpy(to.data() + begin, from + begin, end - begin);
                       });
  }

  absl::Status Evaluate(const HostStep& step) {
    if (step.is_long && resources_.long_steps != nullptr) {
      std::vector<absl::Span<const std::byte>> in;
      std::vector<absl::Span<std::byte>> out;
      for (const int slot : step.in) in.push_back(Bytes(slot));
      for (const int slot : step.out) out.push_back(MutableBytes(slot));
      return resources_.long_steps->Evaluate(step.function, context_, in, out);
    }
    ir::EvalOptions options;
    options.device = context_.mesh_device;
    options.check_cancel = [this] { return context_.cancel->status(); };
    options.parallel_for = [this](int64_t n, int64_t cost_each,
                                  absl::FunctionRef<void(int64_t, int64_t)> work) {
      return ParallelFor(n, cost_each, kHostStepGrain, work);
    };
    return program::EvaluateInPlace(step, std::move(options),
                                    [this](int slot) { return AddressOf(slot); });
  }

  absl::Status RunCollective(const CollectiveStep& step, const std::string& label) {
    if (context_.collectives == nullptr) {
      return MakeError(ErrorKind::kInternal, "the launch has no communicator");
    }
    const std::vector<int> group = context_.GroupRanks(p_.mesh, step.axes);
    const CallKey key{context_.launch, call_numbers_.Next(group), label,
                      std::string(context_.program)};
    std::vector<PermutePair> pairs;
    for (const auto& [source, target] : step.pairs) pairs.push_back({source, target});
    return context_.collectives->Run({.kind = step.kind,
                                      .rank = context_.ranks.at(context_.mesh_device),
                                      .group = group,
                                      .key = key,
                                      .in = Bytes(step.in),
                                      .out = MutableBytes(step.out),
                                      .reduce = step.reduce,
                                      .dtype = step.dtype,
                                      .pairs = pairs});
  }

  const HostProgram& host_;
  const program::StepProgram& p_;
  const RunContext& context_;
  const HostMemory& memory_;
  const HostResources& resources_;
  std::vector<int64_t> iterations_;  // current iteration of each loop
  // The buffers of the kernel that runs.
  absl::InlinedVector<void*, 16> buffers_;
  CallNumbers call_numbers_;
};

// Collects the kernels that are compiled as functions of their own, which native loops, row tiles
// and single steps call, and then gives the program these functions.
class KernelCollector {
 public:
  explicit KernelCollector(HostProgram* host)
      : host_(*host), runs_by_itself_(host->program.kernels.size()) {
    for (codegen::Kernel& kernel : host_.program.kernels) {
      codegen::Kernel blocked = BlockLoops(kernel);
      has_blocked_loops_.push_back(!(blocked == kernel));
      kernel = std::move(blocked);
    }
  }

  // Adds the kernels that these steps and the steps inside them run, except inside native loops.
  // With `row_tiles`, kernels of row tiles become parts of the tiles.
  void AddKernelsOf(const std::vector<Step>& steps, bool row_tiles) {
    for (size_t at = 0; at < steps.size(); ++at) {
      const Step& step = steps[at];
      if (const auto* k = std::get_if<KernelStep>(&step.what)) {
        if (row_tiles && k->tile >= 0) {
          at += AddTile(steps, at) - 1;
          continue;
        }
        runs_by_itself_[k->kernel] = true;
      }
      const auto* loop = std::get_if<LoopStep>(&step.what);
      if (loop != nullptr && host_.native_loop_index[loop->number] >= 0) continue;
      ForEachList(step, [&](const std::vector<Step>& list) { AddKernelsOf(list, row_tiles); });
    }
  }

  // Returns all kernels that were added, and leaves the kernels of the tiles empty.
  std::vector<codegen::Kernel> TakeKernels() {
    std::vector<codegen::Kernel> kernels;
    for (size_t k = 0; k < runs_by_itself_.size(); ++k)
      if (runs_by_itself_[k]) kernels.push_back(host_.program.kernels[k]);
    for (codegen::Kernel& part : tile_kernels_) kernels.push_back(std::move(part));
    return kernels;
  }

  // Stores the functions of these kernels in the program. Requires that the program's code was
  // compiled from the kernels that TakeKernels returned.
  void SetFunctions() {
    int next = 0;
    for (const bool has_function : runs_by_itself_)
      host_.functions.push_back(has_function ? host_.code->function(next++) : nullptr);
    for (const int tile : found_tiles_)
      for (HostTile::Part& part : host_.tiles[tile].parts)
        part.function = host_.code->function(next++);
  }

 private:
  // Adds the kernels of the tile whose steps begin at steps[first]. Returns the number of these
  // steps.
  size_t AddTile(const std::vector<Step>& steps, size_t first) {
    const std::vector<const KernelStep*> tiled = program::TileStepsFrom(steps, first);
    HostTile tile = MakeHostTile(host_.program, has_blocked_loops_, steps, first, &tile_kernels_);
    if (tile.parts.empty()) {
      for (const KernelStep* step : tiled) runs_by_itself_[step->kernel] = true;
    } else {
      found_tiles_.push_back(tiled[0]->tile);
      host_.tiles[tiled[0]->tile] = std::move(tile);
    }
    return tiled.size();
  }

  HostProgram& host_;
  // For each kernel: whether it is cut into blocks (loop_blocking.h).
  std::vector<bool> has_blocked_loops_;
  // For each kernel: whether a step runs it by itself.
  std::vector<bool> runs_by_itself_;
  // The row tiles, in the order in which they were found.
  std::vector<int> found_tiles_;
  // The kernels of the parts of these row tiles.
  std::vector<codegen::Kernel> tile_kernels_;
};

absl::Status AddCode(bool native, const std::string& tenant, codegen::HostCompiler& compiler,
                     HostProgram* host) {
  KernelCollector collector(host);
  if (native) host->native_loops = FindNativeLoops(host->program);
  host->tiles.resize(host->program.tiles.size());
  std::vector<codegen::KernelLoop> loops;
  for (size_t i = 0; i < host->native_loops.size(); ++i) {
    host->native_loop_index[host->native_loops[i].loop_numbers[0]] = static_cast<int>(i);
    collector.AddKernelsOf(host->native_loops[i].called_steps, /*row_tiles=*/false);
    loops.push_back(host->native_loops[i].code);
  }
  collector.AddKernelsOf(host->program.steps, /*row_tiles=*/native);
  TESSERA_ASSIGN_OR_RETURN(host->code,
                           compiler.Compile(collector.TakeKernels(), {}, loops, tenant));
  collector.SetFunctions();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostProgram> MakeHostProgram(program::StepProgram program, HostCodeKind kind,
                                            const std::string& tenant,
                                            codegen::HostCompiler& compiler, OneDnnMatmul& matmul) {
  HostProgram host;
  host.program = std::move(program);
  program::ForEachStep(host.program.steps, [&](const Step& step) {
    ++host.num_steps;
    if (std::holds_alternative<CollectiveStep>(step.what)) host.has_collectives = true;
    int64_t scratch = 0;
    if (const auto* m = std::get_if<MatmulStep>(&step.what))
      scratch = matmul.ScratchBytes(m->shape);
    if (const auto* h = std::get_if<HostStep>(&step.what)) {
      host.has_host_steps = true;
      scratch = ir::PeakBytes(*h->function);
    }
    host.scratch_bytes = std::max(host.scratch_bytes, scratch);
  });
  host.native_loop_index.assign(host.program.num_loops, -1);
  if (kind != HostCodeKind::kInterpreted)
    TESSERA_RETURN_IF_ERROR(AddCode(kind == HostCodeKind::kNativeLoops, tenant, compiler, &host));
  return host;
}

absl::Status WithLabel(const absl::Status& error, const RunContext& context,
                       const std::string& label) {
  if (context.cancel->cancelled() || absl::StrContains(error.message(), label)) return error;
  return Annotate(error, label);
}

absl::Status RunProgram(const HostProgram& program, const RunContext& context,
                        const HostMemory& memory, const HostResources& resources) {
  return ProgramRunner(program, context, memory, resources).RunSteps(program.program.steps);
}

}  // namespace tessera::worker
