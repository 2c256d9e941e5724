#include "worker/device/device_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/object_cache.h"
#include "worker/device/api_values.h"
#include "worker/device/core.h"
#include "worker/device/executable.h"
#include "worker/device/runner.h"
#include "worker/program/lower.h"
#include "worker/program/step_program.h"

namespace tessera::worker::device {
namespace {

using program::Slot;
using program::Step;

constexpr int64_t kMirrorBytes = 64 << 10;
enum Queue { kLaunchQueue, kAbortQueue, kNumQueues };
constexpr int kMirrors = 64;

class DeviceMemory final : public DeviceBuffer {
 public:
  DeviceMemory(ir::DType dtype, ir::Dims shape, AllocationRef block)
      : type_(ir::MakeType(dtype, std::move(shape))), block_(std::move(block)) {}
  ir::DType dtype() const override { return type_.dtype; }
  const ir::Dims& shape() const override { return type_.shape; }
  int64_t num_bytes() const override { return type_.num_bytes(); }
  const AllocationRef& block() const { return block_; }

  // The copy on the host that came along with the launch; null: none. Set before the launch's event
  // is done, read after.
  PinnedSlotRef mirror;
  // Another array shares the block, so that it must not be overwritten. Used by the enqueueing
  // thread alone.
  mutable bool shared = false;

 private:
  const ir::Type type_;
  const AllocationRef block_;
};

const DeviceMemory& MemoryOf(const DeviceBuffer& buffer) {
  return static_cast<const DeviceMemory&>(buffer);
}

// Bounds a call that may block for ever.
class AbortGuard final : public Pollable {
 public:
  AbortGuard(std::shared_ptr<const std::atomic<bool>> done, absl::Time deadline,
             std::function<void()> late)
      : done_(std::move(done)), deadline_(deadline), late_(std::move(late)) {}
  bool Poll(absl::Time now) override {
    if (*done_) return true;
    if (now <= deadline_) return false;
    late_();
    return true;
  }

 private:
  const std::shared_ptr<const std::atomic<bool>> done_;
  const absl::Time deadline_;
  const std::function<void()> late_;
};

class DeviceBackend final : public Backend {
 public:
  static absl::StatusOr<std::unique_ptr<Backend>> Make(const tessera_device_api* api,
                                                       const DeviceBackendOptions& options) {
    std::unique_ptr<DeviceBackend> backend(new DeviceBackend(options));
    TESSERA_RETURN_IF_ERROR(backend->Open(api));
    return backend;
  }

  ~DeviceBackend() override {
    if (!is_fatal()) return;
    if (core_->aborter != nullptr) core_->aborter->Abandon();
    // Reachable for ever, for threads that never come back.
    static auto* const lost = new std::vector<std::unique_ptr<DeviceResources>>;
    lost->push_back(std::move(core_));
  }

  std::string_view device_kind() const override { return kind_; }
  int num_devices() const override { return 1; }
  int64_t memory_bytes() const override { return core_->arena->capacity_bytes(); }
  absl::Span<const ir::Lowering> lowerings() const override { return program::kLoweredKinds; }

  absl::StatusOr<std::shared_ptr<const Executable>> Compile(const ir::Program& program) override {
    if (program.entry == nullptr) {
      return MakeError(ErrorKind::kMalformedProgram, "the program has no entry function");
    }
    auto executable = std::make_shared<DeviceExecutable>();
    TESSERA_ASSIGN_OR_RETURN(executable->program, program::Build(*program.entry, build_options_));
    const absl::Time deadline = SteadyNow() + options_.codegen.compile_deadline;
    TESSERA_RETURN_IF_ERROR(program::Verify(executable->program));
    TESSERA_RETURN_IF_ERROR(Plan(*executable));
    TESSERA_ASSIGN_OR_RETURN(
        executable->code,
        codegen::CompileForDevice(device().info().target, executable->program.kernels, &cache_,
                                  children_.get(), deadline));
    if (!executable->program.kernels.empty()) {
      tessera_module* module = nullptr;
      const std::string& image = executable->code.image;
      TESSERA_RETURN_IF_ERROR(
          device().Check(api().module_load(device().context(), image.data(),
                                           static_cast<int64_t>(image.size()), &module),
                         "loading the program"));
      executable->module = ModuleHandle(&api(), module);
    }
    for (const ir::Array& constant : executable->program.constants) {
      TESSERA_ASSIGN_OR_RETURN(AllocationRef block, Upload(constant, "a constant"));
      executable->constants.push_back(std::move(block));
    }
    return executable;
  }

  std::vector<int> ChooseDonations(const Executable& executable,
                                   absl::Span<const DeviceBufferRef> args,
                                   std::vector<bool> donated) const override {
    for (size_t i = 0; i < args.size(); ++i) {
      donated[i] = donated[i] && !MemoryOf(*args[i]).shared;
    }
    return program::ChooseDonations(static_cast<const DeviceExecutable&>(executable).program,
                                    donated);
  }

  absl::StatusOr<Enqueued> Enqueue(const Executable& base, const RunContext& context,
                                   absl::Span<const DeviceBufferRef> args) override {
    TESSERA_RETURN_IF_ERROR(context.cancel->status());
    TESSERA_RETURN_IF_ERROR(fatal());
    const auto& executable = static_cast<const DeviceExecutable&>(base);
    const program::StepProgram& program = executable.program;
    Runner::Memory addresses;
    for (const DeviceBufferRef& arg : args) {
      addresses.arguments.push_back(MemoryOf(*arg).block()->address());
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<DeviceMemory>> made,
                             MakeResults(program, context, args));
    Enqueued enqueued;
    for (const auto& result : made) {
      addresses.results.push_back(result->block()->address());
      enqueued.results.push_back(result);
    }
    TESSERA_RETURN_IF_ERROR(ReserveScratch(executable.scratch_bytes()));
    TESSERA_RETURN_IF_ERROR(PreparePositions(program, context));
    addresses.arena = core_->scratch->address();

    Runner runner(*core_, executable, context, std::move(addresses));
    Launch::Work work;
    work.broken = runner.Run();
    if (absl::Status joined = runner.Join(); !joined.ok()) {
      SetFatal(joined);
      return work.broken.ok() ? joined : work.broken;
    }
    std::vector<std::pair<std::shared_ptr<DeviceMemory>, PinnedSlotRef>> inline_slots;
    if (work.broken.ok()) {
      for (const auto& result : made) {
        if (result->num_bytes() > kMirrorBytes) continue;
        PinnedSlotRef slot = core_->inline_slots->Take();
        if (slot == nullptr) break;
        work.broken.Update(
            device().Check(api().copy_to_host(core_->compute.get(), slot->address(),
                                              result->block()->address(), result->num_bytes()),
                           "a result's copy"));
        inline_slots.emplace_back(result, std::move(slot));
      }
    }
    work.context = context;
    work.exchanges = runner.TakeCollectives();
    absl::StatusOr<EventHandle> end = device().Record(core_->compute);
    if (!end.ok()) {
      // The device takes nothing more.
      SetFatal(end.status());
      return work.broken.ok() ? end.status() : work.broken;
    }
    work.end = *std::move(end);
    work.finish = [inline_slots = std::move(inline_slots), scratch = core_->scratch,
                   made](const absl::Status& status) {
      for (const auto& [result, slot] : inline_slots) {
        if (status.ok()) result->mirror = slot;
      }
    };
    auto ended = std::make_shared<LaunchEnd>();
    enqueued.event = std::make_unique<LaunchEvent>(ended);
    core_->launches->Add(
        kLaunchQueue,
        std::make_unique<Launch>(
            &device(), core_->aborter.get(),
            LaunchBounds{options_.collective_timeout, options_.abort_grace, options_.cancel_grace},
            [this](const absl::Status& why) { SetFatal(why); }, ended, std::move(work)));
    return enqueued;
  }

  void CloseGeneration(uint64_t generation) override { core_->group_comms->Close(generation); }

  absl::StatusOr<DeviceBufferRef> FromHost(int, ir::Array value) override {
    TESSERA_ASSIGN_OR_RETURN(AllocationRef block, Upload(value, "an array"));
    return std::make_shared<const DeviceMemory>(value.dtype(), value.shape(), std::move(block));
  }

  absl::StatusOr<ir::Array> ToHost(const DeviceBuffer& buffer) override {
    const DeviceMemory& memory = MemoryOf(buffer);
    ir::Array value(memory.dtype(), memory.shape());
    if (memory.mirror != nullptr) {
      std::memcpy(value.MutableData(), memory.mirror->address(), memory.num_bytes());
      return value;
    }
    TESSERA_RETURN_IF_ERROR(Noted(core_->staging->ToHost(
        value.MutableData(), memory.block()->address(), memory.num_bytes())));
    return value;
  }

 private:
  explicit DeviceBackend(const DeviceBackendOptions& options)
      : options_(options), cache_(options.codegen.cache_dir, options.codegen.cache_bytes_max) {}

  absl::Status Open(const tessera_device_api* api) {
    kind_ = api->kind;
    DeviceResources& core = *core_;
    TESSERA_ASSIGN_OR_RETURN(core.device, Device::Open(api, options_.ordinal));
    int64_t bytes = options_.memory_bytes;
    if (bytes == 0) bytes = device().info().free_bytes / 10 * 9;
    TESSERA_ASSIGN_OR_RETURN(core.arena, Arena::Make(&device(), bytes));
    TESSERA_ASSIGN_OR_RETURN(core.inline_slots,
                             PinnedSlots::Make(&device(), kMirrors, kMirrorBytes));
    TESSERA_ASSIGN_OR_RETURN(core.compute, device().NewStream(/*high_priority=*/false));
    TESSERA_ASSIGN_OR_RETURN(core.exchange, device().NewStream(/*high_priority=*/true));
    TESSERA_ASSIGN_OR_RETURN(core.scratch, Allocate(0, "scratch memory"));
    core.group_comms = std::make_unique<GroupComms>(&device(), options_.collective_timeout,
                                                    [this](GroupComm& c) { AbortHere(c); });
    core.aborter = std::make_unique<CollectiveAborter>(&device());
    const StagingOptions staging;
    core.launches = std::make_unique<CompletionPoller>(kNumQueues);
    core.copies = std::make_unique<CompletionPoller>(staging.channels);
    TESSERA_ASSIGN_OR_RETURN(core.staging, Staging::Make(&device(), core.copies.get(), staging));
    build_options_.multiplies = [this](ir::DType in, ir::DType out) {
      MatmulShape shape{.batch = 1, .m = 16, .n = 16, .k = 16, .in = in, .out = out};
      for (int64_t* strides : {shape.a_strides, shape.b_strides}) {
        strides[0] = 256, strides[1] = 16, strides[2] = 1;
      }
      int64_t scratch = 0;
      return PlanMatmul(shape, &scratch).ok();
    };
    const codegen::HostCompilerOptions& compiler = options_.codegen;
    if (!compiler.compile_binary.empty()) {
      children_ = std::make_unique<codegen::CompileChildren>(
          codegen::CompileChildOptions{compiler.compile_binary, compiler.compile_args,
                                       device().info().target, compiler.compile_memory_bytes_max});
    }
    // The guarantees of device_api.h for all_reduce.
    build_options_.combines = [](ir::ReduceKind reduce, ir::DType dtype) {
      const bool extremum = reduce == ir::ReduceKind::kMax || reduce == ir::ReduceKind::kMin;
      return reduce == ir::ReduceKind::kSum || dtype == ir::DType::kBool ||
             (extremum && !ir::IsFloat(dtype));
    };
    return absl::OkStatus();
  }

  const Device& device() const { return *core_->device; }
  const tessera_device_api& api() const { return device().api(); }

  absl::StatusOr<AllocationRef> Allocate(int64_t bytes, const char* what) {
    TESSERA_ASSIGN_OR_RETURN(Allocation block, core_->arena->Allocate(bytes, what));
    return std::make_shared<const Allocation>(std::move(block));
  }
  absl::StatusOr<AllocationRef> Upload(const ir::Array& value, const char* what) {
    TESSERA_ASSIGN_OR_RETURN(AllocationRef block, Allocate(value.num_bytes(), what));
    TESSERA_RETURN_IF_ERROR(
        Noted(core_->staging->ToDevice(block->address(), value.data(), value.num_bytes())));
    return block;
  }
  // A copy that is lost means that the device is.
  absl::Status Noted(absl::Status copied) {
    if (KindOf(copied) == ErrorKind::kWorkerLost) SetFatal(copied);
    return copied;
  }

  absl::StatusOr<MatmulHandle> PlanMatmul(const MatmulShape& shape, int64_t* scratch_bytes) const {
    tessera_matmul_shape wanted = {};
    wanted.batch = shape.batch, wanted.m = shape.m, wanted.n = shape.n, wanted.k = shape.k;
    std::copy_n(shape.a_strides, 3, wanted.a_strides);
    std::copy_n(shape.b_strides, 3, wanted.b_strides);
    wanted.c_strides[0] = shape.m * shape.n, wanted.c_strides[1] = shape.n, wanted.c_strides[2] = 1;
    wanted.in = ApiValue(shape.in);
    wanted.out = ApiValue(shape.out);
    tessera_matmul* matmul = nullptr;
    TESSERA_RETURN_IF_ERROR(device().Check(
        api().matmul_plan(device().context(), &wanted, &matmul, scratch_bytes), "a product"));
    return MatmulHandle(&api(), matmul);
  }

  // Plans matmuls, refuses what the host would have to do, and adds up sizes.
  absl::Status Plan(DeviceExecutable& executable) const {
    const program::StepProgram& program = executable.program;
    absl::Status status;
    program::ForEachStep(program.steps, [&](const Step& step) {
      if (!status.ok()) return;
      const std::string& label = program.labels[step.label];
      executable.has_collectives_ |= std::holds_alternative<program::CollectiveStep>(step.what);
      if (std::holds_alternative<program::HostFallbackStep>(step.what)) {
        status = MakeError(ErrorKind::kNotImplemented,
                           absl::StrCat(label, ": there is no code for this on a ", kind_,
                                        "; run the program on CPU devices"));
      }
      if (const auto* kernel = std::get_if<program::KernelStep>(&step.what)) {
        int64_t moved = 0;
        for (const int slot : kernel->slots) {
          if (MayBeUnaligned(program.slots[slot])) moved += Rounded(program.slots[slot].bytes());
        }
        executable.realigned_bytes = std::max(executable.realigned_bytes, moved);
      }
      const auto* multiply = std::get_if<program::MatmulStep>(&step.what);
      if (multiply == nullptr) return;
      const MatmulRanges ranges = RangesOf(*multiply);
      int64_t moved = 0;
      for (const SlotRange& range : {ranges.a, ranges.b, ranges.c}) {
        if (MayBeUnaligned(program.slots[range.slot], range.offset)) moved += Rounded(range.bytes);
      }
      executable.realigned_bytes = std::max(executable.realigned_bytes, moved);
      if (executable.matmuls.count(multiply->shape) > 0) return;
      int64_t scratch = 0;
      absl::StatusOr<MatmulHandle> matmul = PlanMatmul(multiply->shape, &scratch);
      if (!matmul.ok()) {
        status = Annotate(matmul.status(), label);
        return;
      }
      executable.matmuls.emplace(multiply->shape, *std::move(matmul));
      executable.matmul_bytes = std::max(executable.matmul_bytes, Rounded(scratch));
    });
    TESSERA_RETURN_IF_ERROR(status);
    executable.memory_bytes_ = executable.scratch_bytes();
    for (const program::Buffer& arg : program.arguments) {
      executable.memory_bytes_ += ir::MakeType(arg.dtype, arg.shape).num_bytes();
    }
    for (const program::Result& result : program.results) {
      executable.memory_bytes_ +=
          ir::MakeType(result.buffer.dtype, result.buffer.shape).num_bytes();
    }
    for (const ir::Array& constant : program.constants) {
      executable.memory_bytes_ += constant.num_bytes();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::shared_ptr<DeviceMemory>>> MakeResults(
      const program::StepProgram& program, const RunContext& context,
      absl::Span<const DeviceBufferRef> args) {
    std::vector<std::shared_ptr<DeviceMemory>> made;
    for (const program::Result& result : program.results) {
      const Slot& slot = program.slots[result.slot];
      const int taken = context.donations.empty() ? -1 : context.donations[made.size()];
      AllocationRef block;
      const DeviceMemory* sharer = nullptr;
      if (slot.kind == Slot::Kind::kArgument) {
        sharer = &MemoryOf(*args[slot.index]);
      } else if (slot.index < static_cast<int>(made.size())) {
        sharer = made[slot.index].get();
      } else if (taken >= 0) {
        block = MemoryOf(*args[taken]).block();
      } else {
        const int64_t bytes = ir::MakeType(result.buffer.dtype, result.buffer.shape).num_bytes();
        TESSERA_ASSIGN_OR_RETURN(block, Allocate(bytes, "a result"));
      }
      made.push_back(
          std::make_shared<DeviceMemory>(result.buffer.dtype, result.buffer.shape,
                                         sharer != nullptr ? sharer->block() : std::move(block)));
      if (sharer != nullptr) made.back()->shared = sharer->shared = true;
    }
    return made;
  }

  absl::Status ReserveScratch(int64_t bytes) {
    if (core_->scratch->bytes() >= bytes) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(core_->scratch, Allocate(bytes, "scratch memory"));
    return absl::OkStatus();
  }

  absl::Status PreparePositions(const program::StepProgram& program, const RunContext& context) {
    std::set<int32_t> wanted;
    program::ForEachStep(program.steps, [&](const Step& step) {
      if (const auto* position = std::get_if<program::AxisIndexStep>(&step.what)) {
        wanted.insert(
            static_cast<int32_t>(program.mesh.IndexAlong(context.mesh_device, position->axes)));
      }
    });
    for (const int32_t at : wanted) {
      if (core_->positions.count(at) > 0) continue;
      TESSERA_ASSIGN_OR_RETURN(
          core_->positions[at],
          Upload(ir::Array::ScalarInt(ir::DType::kS32, at), "a device's position"));
    }
    return absl::OkStatus();
  }

  // On the thread that enqueues, which may enqueue nothing else before this has returned.
  void AbortHere(GroupComm& communicator) {
    if (communicator.aborted.exchange(true)) return;
    const auto done = std::make_shared<std::atomic<bool>>(false);
    core_->launches->Add(
        kAbortQueue, std::make_unique<AbortGuard>(done, SteadyNow() + options_.abort_grace, [this] {
          SetFatal(MakeError(ErrorKind::kWorkerLost,
                             absl::StrCat(device().name(), ": an abort did not end within ",
                                          absl::FormatDuration(options_.abort_grace))));
        }));
    static_cast<void>(api().comm_abort(communicator.handle.get()));
    *done = true;
  }

  bool is_fatal() const { return is_fatal_.load(std::memory_order_acquire); }
  absl::Status fatal() const ABSL_LOCKS_EXCLUDED(mu_) {
    if (!is_fatal()) return absl::OkStatus();
    absl::MutexLock lock(&mu_);
    return fatal_;
  }
  void SetFatal(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (!fatal_.ok()) return;
      fatal_ = why;
      is_fatal_.store(true, std::memory_order_release);
    }
    TESSERA_LOG(ERROR) << "device lost" << Field("device", device().name())
                       << Field("why", why.message());
    if (options_.on_fatal) options_.on_fatal(why);
  }

  const DeviceBackendOptions options_;
  codegen::ObjectCache cache_;
  // Null: kernels are compiled in this process.
  std::unique_ptr<codegen::CompileChildren> children_;
  std::string kind_;
  program::BuildOptions build_options_;
  std::unique_ptr<DeviceResources> core_ = std::make_unique<DeviceResources>();
  std::atomic<bool> is_fatal_{false};
  mutable absl::Mutex mu_;
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend(const tessera_device_api* api,
                                                           const DeviceBackendOptions& options) {
  return DeviceBackend::Make(api, options);
}

}  // namespace tessera::worker::device
