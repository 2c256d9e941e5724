// The CPU backend: compiles device programs for CPU devices and runs them. The executor's runtime
// calls it through the Backend interface. A program that does little becomes an
// EvaluatedExecutable, and every other program a CompiledExecutable, which program_run.cc runs.
#include "worker/cpu/cpu_backend.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/host_limits.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/any_op.h"
#include "ir/derive/computation_graph.h"
#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/eval/memory.h"
#include "worker/codegen/scalar_prim.h"
#include "worker/cpu/host_pool.h"
#include "worker/cpu/host_speed.h"
#include "worker/cpu/onednn_matmul.h"
#include "worker/cpu/program_run.h"
#include "worker/cpu/sort.h"
#include "worker/cpu/thread_pool.h"
#include "worker/program/build.h"
#include "worker/program/dump.h"
#include "worker/program/lower.h"
#include "worker/program/verify.h"

namespace tessera::worker {
namespace {

using ir::Array;

// Up to these bounds a program is evaluated op by op. Costs are sums of flops and bytes. Above the
// bounds, the evaluator takes microseconds longer in each call than code that is compiled once, in
// milliseconds. kEvaluatedOpsMax bounds the number of ops that run, where the ops of a loop count
// in every iteration, since each op costs the evaluator a microsecond. The decision depends on the
// program alone, so that the program gives the same bits each time. Reference: docs/decisions/0004.
constexpr double kEvaluatedCostMax = 2'048;
constexpr double kEvaluatedOpsMax = 48;
// Up to these bounds an executable is quick: it runs in about 20 us, which is as long as a context
// switch.
constexpr int64_t kQuickOpsMax = 16;
constexpr double kQuickEvaluatedCostMax = 16'384;  // for programs with host steps
// For programs whose host steps only call routines, such as a small Fourier transform, which are as
// fast as compiled code.
constexpr double kQuickRoutineCostMax = 81'920;
constexpr double kQuickCompiledCostMax = 131'072;  // for programs without loops
constexpr double kBriefCostMax = 1 << 25;  // bound of a brief executable: some ten milliseconds
// For programs with loops of small kernels, whose memory is in the caches.
constexpr double kQuickLoopCostMax = 1'048'576;

// Matmuls of at most this many multiplications of elements are kernels of ours. For larger ones
// oneDNN is as fast.
constexpr int64_t kKernelMatmulMultiplicationsMax = 1 << 17;

class HostBuffer final : public DeviceBuffer {
 public:
  explicit HostBuffer(Array array) : array_(std::move(array)) {}
  ir::DType dtype() const override { return array_.dtype(); }
  const ir::Dims& shape() const override { return array_.shape(); }
  int64_t num_bytes() const override { return array_.num_bytes(); }
  const Array& array() const { return array_; }

 private:
  const Array array_;
};

const Array& ArrayOf(const DeviceBuffer& buffer) {
  return static_cast<const HostBuffer&>(buffer).array();
}

// Returns whether the op communicates. A collective without operands, such as axis_index, does not.
bool Communicates(const ir::Function&, const ir::Op& op) {
  return op.def->lowering == ir::Lowering::kCollective && !op.operands.empty();
}

// Returns the number of ops that the evaluator would run, counting the ops of a loop once per
// iteration. Returns infinity if the number of iterations of a loop is unknown.
double CountExecutedOps(const ir::Function& f) {
  double ops = 0;
  for (const ir::Op& op : f.ops) {
    double inside = 0;
    for (const ir::FunctionRef& region : op.regions) inside += CountExecutedOps(*region);
    const int64_t trips =
        op.def->has_planned_regions() ? ir::DataFlowOf(f, op).trip_count : int64_t{1};
    if (trips == ir::kUnknownTripCount) return std::numeric_limits<double>::infinity();
    ops += 1 + inside * static_cast<double>(trips);
  }
  return ops;
}

// Returns whether compiled kernels may round the op's result differently from the evaluator. They
// do for functions such as exp in f32, and in bf16, which is computed in f32. A program with such
// an op is always compiled, so that its result does not depend on the program's size.
bool RoundsDifferently(const ir::Function& f, const ir::Op& op) {
  if (op.def->lowering != ir::Lowering::kScalar) return false;
  const ir::ScalarGraph graph = op.def->scalar.record(op.attrs, f.type(op.operands.back()).dtype,
                                                      f.type(op.results[0]).dtype);
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const ir::ScalarNode& node) {
    const codegen::FloatForm form = codegen::InfoOf(node.prim).form;
    return node.dtype == ir::DType::kF32 && form != codegen::FloatForm::kExact &&
           form != codegen::FloatForm::kLibrary;
  });
}

// Returns whether the program consists of sorts only. Sorts are done by routines (sort.h), so that
// there are no kernels to compile.
bool OnlySorts(const ir::Function& f) {
  return !f.ops.empty() && std::all_of(f.ops.begin(), f.ops.end(), [](const ir::Op& op) {
    return op.def->lowering == ir::Lowering::kSort;
  });
}

// The resources that the executables of a backend share. Thread-safe.
struct SharedResources {
  SharedResources(const CpuBackendOptions& options, int cores)
      : pool(/*cached_bytes_max=*/options.memory_bytes / 8),
        threads(std::max(cores - 1, 0)),
        num_threads(std::max(cores / options.num_devices, 1)),
        long_steps(options.long_steps) {}

  OneDnnMatmul matmul;
  HostPool pool;
  ThreadPool threads;
  const int num_threads;  // for each device
  LongSteps* const long_steps;
};

class CpuExecutable : public Executable {
 public:
  virtual absl::StatusOr<std::vector<Array>> Run(const RunContext& context,
                                                 absl::Span<const DeviceBufferRef> args) const = 0;
  virtual std::vector<int> ChooseDonations(const std::vector<bool>& donated) const = 0;
};

// Returns whether this is the only reference to the array's bytes, and all reads through earlier
// references are over.
bool OwnsItsBytes(const Array& array) {
  if (array.bytes().use_count() != 1) return false;
  // use_count() is a relaxed load, which does not order the reads of other threads before it.
  // Dropping a reference does, so a second reference is made and dropped here.
  std::shared_ptr<std::byte[]>(array.bytes()).reset();
  return true;
}

// ---- A program that is evaluated op by op. -----------------------------------------------------

class EvaluatedExecutable final : public CpuExecutable {
 public:
  EvaluatedExecutable(ir::Program program, bool quick)
      : program_(std::move(program)), memory_bytes_(ir::PeakBytes(*program_.entry)), quick_(quick) {
    AddLabels(*program_.entry);
  }
  int64_t memory_bytes() const override { return memory_bytes_; }
  bool has_collectives() const override { return false; }
  bool quick() const override { return quick_; }
  std::vector<int> ChooseDonations(const std::vector<bool>&) const override { return {}; }

  // Evaluates the program on the host. The hook runs before each op: it records the op in flight,
  // and answers axis_index from the program's mesh. An error gets the label of the op that was in
  // flight.
  absl::StatusOr<std::vector<Array>> Run(const RunContext& context,
                                         absl::Span<const DeviceBufferRef> args) const override {
    std::vector<Array> in;
    in.reserve(args.size());
    for (const DeviceBufferRef& arg : args) in.push_back(ArrayOf(*arg));
    // The hook captures a reference to this struct and nothing else, because a std::function that
    // captures a single pointer allocates no memory.
    struct {
      const EvaluatedExecutable& self;
      const RunContext& context;
      const std::string* label;
    } state{*this, context, nullptr};
    ir::EvalOptions options;
    options.device = context.mesh_device;
    options.hook =
        [&state](const ir::Function&, const ir::Op& op, const Site&,
                 absl::Span<const Array>) -> std::optional<absl::StatusOr<std::vector<Array>>> {
      state.label = &state.self.labels_.at(&op);
      state.context.SetOp(*state.label, /*waiting=*/false);
      if (op.def->collective != ir::CollectiveKind::kAxisIndex) return std::nullopt;
      const int64_t index = state.self.program_.mesh().IndexAlong(state.context.mesh_device,
                                                                  op.attrs.Strings("axes"));
      return std::vector<Array>{Array::ScalarInt(ir::DType::kS32, index)};
    };
    options.check_cancel = [&context] { return context.cancel->status(); };
    absl::StatusOr<std::vector<Array>> results =
        ir::Evaluator(std::move(options)).Run(*program_.entry, std::move(in));
    if (results.ok() || state.label == nullptr) return results;
    return WithLabel(results.status(), context, *state.label);
  }

 private:
  void AddLabels(const ir::Function& f) {
    for (size_t i = 0; i < f.ops.size(); ++i) {
      labels_[&f.ops[i]] = program::LabelOf(f, i);
      for (const ir::FunctionRef& region : f.ops[i].regions) AddLabels(*region);
    }
  }

  const ir::Program program_;
  const int64_t memory_bytes_;
  const bool quick_;
  absl::flat_hash_map<const ir::Op*, std::string> labels_;
};

// ---- A compiled program. -----------------------------------------------------------------------

// Returns whether every loop runs as native code that calls nothing back, and has a fixed number of
// iterations.
bool HasOnlyCountedNativeLoops(const HostProgram& host) {
  size_t loops = 0;
  bool counted = true;
  for (const NativeLoop& loop : host.native_loops) {
    loops += loop.loop_numbers.size();
    counted = counted && loop.called_steps.empty();
  }
  ForEachStep(host.program.steps, [&](const program::Step& step) {
    const auto* loop = std::get_if<program::LoopStep>(&step.what);
    counted = counted && (loop == nullptr || loop->condition < 0);
  });
  return counted && static_cast<int>(loops) == host.program.num_loops;
}

// Returns whether all host steps call routines of libraries or of our own, and not the plain loops
// of the evaluator. The ops of such routines are the ones that state their scratch memory.
bool HasOnlyRoutines(const HostProgram& host) {
  bool only = true;
  ForEachStep(host.program.steps, [&](const program::Step& step) {
    const auto* host_step = std::get_if<program::HostStep>(&step.what);
    if (host_step == nullptr) return;
    for (const ir::Op& op : host_step->function->ops) only = only && op.def->scratch != nullptr;
  });
  return only;
}

bool IsQuick(const HostProgram& host, double cost, double ops) {
  if (host.has_collectives || host.num_steps > kQuickOpsMax) return false;
  // The ops of host steps are bounded too, since a host step may contain loops, even loops on a
  // condition.
  if (host.has_host_steps && ops > kEvaluatedOpsMax) return false;
  if (host.has_host_steps &&
      cost > (HasOnlyRoutines(host) ? kQuickRoutineCostMax : kQuickEvaluatedCostMax))
    return false;
  if (host.program.num_loops == 0) return cost <= kQuickCompiledCostMax;
  return cost <= kQuickLoopCostMax && HasOnlyCountedNativeLoops(host);
}

bool IsBrief(const HostProgram& host, double cost) {
  return !host.has_collectives && !host.has_host_steps && cost <= kBriefCostMax &&
         (host.program.num_loops == 0 || HasOnlyCountedNativeLoops(host));
}

class CompiledExecutable final : public CpuExecutable {
 public:
  CompiledExecutable(HostProgram host, std::shared_ptr<SharedResources> shared, double cost,
                     double ops)
      : host_(std::move(host)),
        shared_(std::move(shared)),
        quick_(IsQuick(host_, cost, ops)),
        brief_(quick_ || IsBrief(host_, cost)),
        memory_bytes_(host_.program.arena_bytes + host_.scratch_bytes +
                      host_.program.argument_and_result_bytes()) {}
  int64_t memory_bytes() const override { return memory_bytes_; }
  bool has_collectives() const override { return host_.has_collectives; }
  bool quick() const override { return quick_; }
  bool brief() const override { return brief_; }
  std::vector<int> ChooseDonations(const std::vector<bool>& donated) const override {
    return program::ChooseDonations(host_.program, donated);
  }

  // Finds memory for each result and runs the program. A result that is an argument, or another
  // result, shares its bytes. A result to which an argument is donated overwrites that argument's
  // bytes. All other results and the arena come from the pool, whose pages are already mapped after
  // the first run.
  absl::StatusOr<std::vector<Array>> Run(const RunContext& context,
                                         absl::Span<const DeviceBufferRef> args) const override {
    const program::StepProgram& p = host_.program;
    absl::InlinedVector<const std::byte*, 8> arguments;
    for (const DeviceBufferRef& arg : args) arguments.push_back(ArrayOf(*arg).data());
    absl::InlinedVector<std::byte*, 8> result_addresses(p.results.size(), nullptr);
    std::vector<Array> results;
    results.reserve(p.results.size());
    for (size_t i = 0; i < p.results.size(); ++i) {
      const program::Result& r = p.results[i];
      const program::Slot& slot = p.slots[r.slot];
      std::shared_ptr<std::byte[]> bytes;
      if (slot.kind == program::Slot::Kind::kArgument) {
        bytes = ArrayOf(*args[slot.index]).bytes();
      } else if (slot.index < static_cast<int>(i)) {
        bytes = results[slot.index].bytes();
      } else if (!context.donations.empty() && context.donations[i] >= 0) {
        bytes = ArrayOf(*args[context.donations[i]]).bytes();
        result_addresses[i] = bytes.get();
      } else {
        bytes = shared_->pool.Allocate(slot.bytes());
        result_addresses[i] = bytes.get();
      }
      results.emplace_back(r.buffer.dtype, r.buffer.shape, std::move(bytes));
    }
    std::shared_ptr<std::byte[]> arena;
    if (p.arena_bytes > 0) arena = shared_->pool.Allocate(p.arena_bytes);
    const HostMemory memory{arguments, result_addresses, arena.get()};
    const HostResources resources{&shared_->matmul, &shared_->threads, shared_->num_threads,
                                  shared_->long_steps};
    TESSERA_RETURN_IF_ERROR(RunProgram(host_, context, memory, resources));
    return results;
  }

 private:
  const HostProgram host_;
  const std::shared_ptr<SharedResources> shared_;
  const bool quick_, brief_;
  const int64_t memory_bytes_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(CpuBackendOptions options)
      : options_(WithDefaultMemory(std::move(options))),
        shared_(std::make_shared<SharedResources>(options_, ProcessLimits().cores)),
        compiler_(options_.codegen) {}

  std::string_view device_kind() const override { return "cpu"; }
  int num_devices() const override { return options_.num_devices; }
  int64_t memory_bytes() const override { return options_.memory_bytes; }
  Speed speed() const override {
    const HostSpeed& all = MeasuredHostSpeed();
    const double devices = options_.num_devices;
    return {all.flops_per_second / devices, all.memory_bytes_per_second / devices};
  }
  absl::Span<const ir::Lowering> lowerings() const override { return program::kLoweredKinds; }

  // Decides whether to evaluate or to compile the program, and makes the executable. The decision
  // depends only on the flops, bytes and ops of the program, so that it never changes from run to
  // run. A program with collectives is always compiled, because the evaluator cannot exchange.
  // Reference: docs/decisions/0004.
  absl::StatusOr<std::shared_ptr<const Executable>> CompileFor(
      const std::string& tenant, const ir::Program& program) override {
    if (program.entry == nullptr) {
      return MakeError(ErrorKind::kMalformedProgram, "the program has no entry function");
    }
    const ir::Function& entry = *program.entry;
    ProgramDump dump = program::BeginDump(options_.dump, program);
    const ir::Cost total = ir::TotalCost(entry);
    const double cost = total.flops + total.bytes;
    const double ops = CountExecutedOps(entry);
    if (options_.kernels == CpuBackendOptions::Kernels::kAuto && cost <= kEvaluatedCostMax &&
        ops <= kEvaluatedOpsMax && !OnlySorts(entry) && !ir::AnyOp(entry, Communicates) &&
        !ir::AnyOp(entry, RoundsDifferently)) {
      return std::make_shared<const EvaluatedExecutable>(program, /*quick=*/ops <= kQuickOpsMax);
    }
    program::BuildOptions options;
    options.has_matmul = [this](ir::DType in, ir::DType out) {
      const bool known = in == ir::DType::kF32
                             ? out == in
                             : in == ir::DType::kBF16 && (out == in || out == ir::DType::kF32);
      return known && shared_->matmul.Supports(in, out);
    };
    options.small_matmul_multiplications_max = kKernelMatmulMultiplicationsMax;
    options.uninterrupted_operations_max = options_.uninterrupted_operations_max;
    options.has_scan = [](const ir::ScanSize&) { return true; };
    options.sort_scratch_bytes = [this](const SortShape& shape) {
      return SortScratchBytes(shape, shared_->num_threads);
    };
    TESSERA_ASSIGN_OR_RETURN(program::StepProgram built, program::Build(entry, options, &dump));
    TESSERA_RETURN_IF_ERROR(program::Verify(built));
    using Kernels = CpuBackendOptions::Kernels;
    const HostCodeKind kind = options_.kernels == Kernels::kInterpreted ? HostCodeKind::kInterpreted
                              : options_.kernels == Kernels::kStepByStep
                                  ? HostCodeKind::kSteps
                                  : HostCodeKind::kNativeLoops;
    TESSERA_ASSIGN_OR_RETURN(HostProgram host, MakeHostProgram(std::move(built), kind, tenant,
                                                               compiler_, shared_->matmul));
    return std::make_shared<const CompiledExecutable>(std::move(host), shared_, cost, ops);
  }

  std::vector<int> ChooseDonations(const Executable& executable,
                                   absl::Span<const DeviceBufferRef> args,
                                   std::vector<bool> donated) const override {
    for (size_t i = 0; i < args.size(); ++i) {
      donated[i] = donated[i] && OwnsItsBytes(ArrayOf(*args[i]));
    }
    return static_cast<const CpuExecutable&>(executable).ChooseDonations(donated);
  }

  absl::StatusOr<Enqueued> Enqueue(const Executable& executable, const RunContext& context,
                                   absl::Span<const DeviceBufferRef> args) override {
    TESSERA_RETURN_IF_ERROR(context.cancel->status());
    TESSERA_ASSIGN_OR_RETURN(std::vector<Array> results,
                             static_cast<const CpuExecutable&>(executable).Run(context, args));
    Enqueued enqueued;
    enqueued.results.reserve(results.size());
    for (Array& result : results) {
      enqueued.results.push_back(std::make_shared<const HostBuffer>(std::move(result)));
    }
    return enqueued;
  }

  // Takes the memory from the pool, so that a batch that a client uploads for each step of a
  // training reuses the memory of an earlier batch.
  std::shared_ptr<std::byte[]> NewShardMemory(int64_t bytes) override {
    return shared_->pool.Allocate(bytes);
  }
  absl::StatusOr<DeviceBufferRef> FromHost(int, Array value) override {
    return std::make_shared<const HostBuffer>(std::move(value));
  }
  absl::StatusOr<Array> ToHost(const DeviceBuffer& buffer) override { return ArrayOf(buffer); }

 private:
  static CpuBackendOptions WithDefaultMemory(CpuBackendOptions options) {
    TESSERA_CHECK_GT(options.num_devices, 0);
    if (options.memory_bytes > 0) return options;
    options.memory_bytes = CpuMemoryBytes() / options.num_devices;
    return options;
  }

  const CpuBackendOptions options_;
  const std::shared_ptr<SharedResources> shared_;
  codegen::HostCompiler compiler_;
};

}  // namespace

// Devices get four fifths of the memory. The other fifth is for the processes themselves, their
// compilers and the free lists of the pools.
int64_t CpuMemoryBytes() { return ProcessLimits().memory_bytes / 5 * 4; }

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace tessera::worker
