// The backend for accelerators. The executor's runtime calls CompileFor and Enqueue. Runner
// (runner.h) enqueues the steps of a launch, Launch (launch.h) watches its end, and Staging copies
// arrays. This file connects them, and decides when the device is lost.
#include "worker/device/device_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/host_limits.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/object_cache.h"
#include "worker/cpu/thread_pool.h"
#include "worker/device/api_values.h"
#include "worker/device/device_resources.h"
#include "worker/device/executable.h"
#include "worker/device/runner.h"
#include "worker/program/build.h"
#include "worker/program/dump.h"
#include "worker/program/lower.h"
#include "worker/program/step_program.h"
#include "worker/program/verify.h"

namespace tessera::worker::device {
namespace {

using program::Slot;
using program::Step;

// Results up to this size are copied to the host as part of the launch, while slots are free.
constexpr int64_t kInlineResultBytesMax = 64 << 10;
constexpr int kInlineSlots = 64;
// The queues of DeviceResources::launches.
enum Queue { kLaunchQueue, kAbortQueue, kNumQueues };

class DeviceMemory final : public DeviceBuffer {
 public:
  // Makes an array in this allocation, which is that of `sharer` if that is not null.
  DeviceMemory(ir::DType dtype, ir::Dims shape, AllocationRef allocation,
               const DeviceMemory* sharer = nullptr)
      : DeviceBuffer(sharer),
        type_(ir::MakeType(dtype, std::move(shape))),
        allocation_(std::move(allocation)) {}
  ir::DType dtype() const override { return type_.dtype; }
  const ir::Dims& shape() const override { return type_.shape; }
  int64_t num_bytes() const override { return type_.num_bytes(); }
  const AllocationRef& allocation() const { return allocation_; }

  // The copy that was made as part of the launch, or null. It is set before the launch's event is
  // done, and read only after that.
  PinnedSlotRef host_copy;
  // Whether another array shares the allocation, so that it must not be overwritten. Only the
  // enqueueing thread uses this.
  mutable bool shared = false;

 private:
  const ir::Type type_;
  const AllocationRef allocation_;
};

const DeviceMemory& MemoryOf(const DeviceBuffer& buffer) {
  return static_cast<const DeviceMemory&>(buffer);
}

class DeviceLaunchMemory final : public LaunchMemory {
 public:
  std::vector<std::shared_ptr<DeviceMemory>> results;
  AllocationRef scratch;  // null if the launch needs none
};

class DeviceBackend final : public Backend {
 public:
  explicit DeviceBackend(const DeviceBackendOptions& options)
      : options_(options), cache_(options.codegen.cache_dir, options.codegen.cache_bytes_max) {}

  // Opens the device and makes its resources. Called once, before everything else.
  absl::Status Open(const tessera_device_api* api) {
    kind_ = api->kind;
    DeviceResources& resources = *resources_;
    TESSERA_ASSIGN_OR_RETURN(resources.device, Device::Open(api, options_.ordinal));
    char libraries[1024];
    api->describe_libraries(device().context(), libraries, sizeof libraries);
    TESSERA_LOG(INFO) << "device opened" << Field("device", device().name())
                      << Field("model", device().info().name)
                      << Field("memory_bytes", device().info().memory_bytes)
                      << Field("libraries", libraries);
    int64_t bytes = options_.memory_bytes;
    if (bytes == 0) bytes = device().info().free_bytes / 10 * 9;
    TESSERA_ASSIGN_OR_RETURN(resources.arena, Arena::Make(&device(), bytes));
    TESSERA_ASSIGN_OR_RETURN(resources.inline_slots,
                             PinnedSlots::Make(&device(), kInlineSlots, kInlineResultBytesMax));
    TESSERA_ASSIGN_OR_RETURN(resources.compute_stream, device().NewStream(/*high_priority=*/false));
    TESSERA_ASSIGN_OR_RETURN(resources.collective_stream,
                             device().NewStream(/*high_priority=*/true));
    resources.scratch = std::make_unique<Scratch>([this](int64_t bytes) {
      return AllocateCounted(bytes, "scratch memory", Arena::Place::kTop);
    });
    resources.group_comms = std::make_unique<GroupComms>(
        &device(),
        GroupComms::Options{options_.collective_timeout, options_.opening_timeout,
                            options_.comms_max},
        [this](GroupComm& comm, Collectives* host) { AbortCommunicator(comm, host); });
    resources.aborter = std::make_unique<CollectiveAborter>(&device(), options_.on_abort);
    const StagingOptions staging;
    resources.launches = std::make_unique<CompletionPoller>(kNumQueues);
    resources.copies = std::make_unique<CompletionPoller>(staging.num_channels);
    TESSERA_ASSIGN_OR_RETURN(resources.staging,
                             Staging::Make(&device(), resources.copies.get(), staging));
    build_options_.has_matmul = [this](ir::DType in, ir::DType out) {
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
    build_options_.has_scan = ir::IsForAccelerators;
    build_options_.uninterrupted_operations_max = options_.uninterrupted_operations_max;
    // These are the guarantees of device_api.h for all_reduce.
    build_options_.has_reduction = [](ir::ReduceKind reduce, ir::DType dtype) {
      const bool extremum = reduce == ir::ReduceKind::kMax || reduce == ir::ReduceKind::kMin;
      if (dtype == ir::DType::kBool) return true;
      if (dtype == ir::DType::kS16 || dtype == ir::DType::kU16) return false;
      return reduce == ir::ReduceKind::kSum || (extremum && !ir::IsFloat(dtype));
    };
    return absl::OkStatus();
  }

  ~DeviceBackend() override {
    if (!is_fatal()) return;
    if (resources_->aborter != nullptr) resources_->aborter->Abandon();
    // The resources are leaked, because threads that are stuck in the library may still use them.
    static auto* const lost = new std::vector<std::unique_ptr<DeviceResources>>;
    lost->push_back(std::move(resources_));
  }

  std::string_view device_kind() const override { return kind_; }
  int num_devices() const override { return 1; }
  int64_t memory_bytes() const override { return resources_->arena->capacity_bytes(); }
  int64_t bytes_in_use() const { return memory_bytes() - resources_->arena->free_bytes(); }
  absl::Span<const ir::Lowering> lowerings() const override { return program::kLoweredKinds; }

  // Builds the step program, plans its matmuls, compiles its kernels and loads everything onto the
  // device. The kernels are compiled in a child process if there is one, until the compile
  // deadline. Constants are uploaded once, here, so that launches only refer to them.
  absl::StatusOr<std::shared_ptr<const Executable>> CompileFor(
      const std::string& tenant, const ir::Program& program) override {
    if (program.entry == nullptr) {
      return MakeError(ErrorKind::kMalformedProgram, "the program has no entry function");
    }
    auto executable = std::make_shared<DeviceExecutable>();
    ProgramDump dump = program::BeginDump(options_.dump, program);
    TESSERA_ASSIGN_OR_RETURN(executable->program,
                             program::Build(*program.entry, build_options_, &dump));
    const absl::Time deadline = SteadyNow() + options_.codegen.compile_deadline;
    TESSERA_RETURN_IF_ERROR(program::Verify(executable->program));
    TESSERA_RETURN_IF_ERROR(PlanMatmulsAndScratch(*executable));
    TESSERA_ASSIGN_OR_RETURN(
        executable->code,
        codegen::CompileForDevice(device().info().target, executable->program.kernels, &cache_,
                                  children_.get(), deadline, tenant));
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
      TESSERA_ASSIGN_OR_RETURN(AllocationRef allocation, UploadCounted(constant, "constants"));
      executable->constants.push_back(std::move(allocation));
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

  void SetAccount(int, MemoryAccount* account) override { account_ = account; }
  int64_t AllocationBytes(int64_t array_bytes) const override {
    return Arena::AllocationBytes(array_bytes);
  }
  int64_t LaunchBytes(const Executable& executable, absl::Span<const DeviceBufferRef>,
                      absl::Span<const int> donations) const override {
    const program::StepProgram& program = static_cast<const DeviceExecutable&>(executable).program;
    int64_t bytes = 0;
    for (size_t r = 0; r < program.results.size(); ++r) {
      if (HasOwnMemory(program, r, donations))
        bytes += AllocationBytes(program.results[r].buffer.num_bytes());
    }
    return bytes;
  }

  absl::StatusOr<std::unique_ptr<LaunchMemory>> ReserveMemory(
      const Executable& base, absl::Span<const DeviceBufferRef> args,
      absl::Span<const int> donations) override {
    const auto& executable = static_cast<const DeviceExecutable&>(base);
    return AllocateOrTakeBack([&]() -> absl::StatusOr<std::unique_ptr<LaunchMemory>> {
      auto memory = std::make_unique<DeviceLaunchMemory>();
      TESSERA_ASSIGN_OR_RETURN(memory->scratch,
                               resources_->scratch->Reserve(executable.scratch_bytes()));
      TESSERA_ASSIGN_OR_RETURN(memory->results, MakeResults(executable.program, donations, args));
      return memory;
    });
  }

  bool GiveBackSharedMemory(int) override { return resources_->scratch->GiveBack(); }

  absl::StatusOr<Enqueued> Enqueue(const Executable& base, const RunContext& context,
                                   absl::Span<const DeviceBufferRef> args) override {
    bool all_enqueued = false;
    absl::StatusOr<Enqueued> enqueued = EnqueueLaunch(base, context, args, &all_enqueued);
    if (!all_enqueued) Skip(&base, context);
    return enqueued;
  }

  void Skip(const Executable* base, const RunContext& context) override {
    if (context.generation == 0) return;
    std::vector<std::vector<int>> groups;
    if (base != nullptr) {
      const program::StepProgram& program = static_cast<const DeviceExecutable*>(base)->program;
      program::ForEachStep(program.steps, [&](const Step& step) {
        if (!program::IsCommunicatingStep(step)) return;
        const auto& collective = std::get<program::CollectiveStep>(step.what);
        groups.push_back(context.GroupRanks(program.mesh, collective.axes));
        std::sort(groups.back().begin(), groups.back().end());
      });
      if (groups.empty()) return;
    }
    resources_->group_comms->Skip(context.generation, groups);
  }

  void CloseGeneration(uint64_t generation) override { resources_->group_comms->Close(generation); }

  absl::StatusOr<DeviceBufferRef> FromHost(int, ir::Array value) override {
    TESSERA_ASSIGN_OR_RETURN(AllocationRef allocation, AllocateOrTakeBack([&] {
                               return Allocate(value.num_bytes(), "an array");
                             }));
    TESSERA_RETURN_IF_ERROR(Upload(value, *allocation));
    return std::make_shared<const DeviceMemory>(value.dtype(), value.shape(),
                                                std::move(allocation));
  }

  absl::StatusOr<ir::Array> ToHost(const DeviceBuffer& buffer) override {
    const DeviceMemory& memory = MemoryOf(buffer);
    ir::Array value(memory.dtype(), memory.shape());
    if (memory.host_copy != nullptr) {
      std::memcpy(value.MutableData(), memory.host_copy.get(), memory.num_bytes());
      return value;
    }
    TESSERA_RETURN_IF_ERROR(SetFatalIfLost(resources_->staging->ToHost(
        value.MutableData(), memory.allocation()->address(), BlockRows(memory.num_bytes()))));
    return value;
  }

  absl::StatusOr<ir::Array> BlockToHost(const DeviceBuffer& buffer, const ir::Dims& starts,
                                        const ir::Dims& shape) override {
    if (IsOnHost(buffer)) return Backend::BlockToHost(buffer, starts, shape);
    const DeviceMemory& memory = MemoryOf(buffer);
    ir::Array block(memory.dtype(), shape);
    const BlockRows rows(ir::ByteWidth(memory.dtype()), memory.shape(), starts, shape);
    TESSERA_RETURN_IF_ERROR(SetFatalIfLost(
        resources_->staging->ToHost(block.MutableData(), memory.allocation()->address(), rows)));
    return block;
  }

  bool IsOnHost(const DeviceBuffer& buffer) const override {
    return MemoryOf(buffer).host_copy != nullptr;
  }

 private:
  // Enqueues a launch and returns before it has run. A launch whose memory does not fit fails
  // before any of its steps is enqueued. Once Runner::EnqueueAll has begun, an error no longer
  // returns early: work that is already enqueued uses the memory, so the launch is watched to its
  // end and then reports the error. Only a lost device ends Enqueue at once. Sets `*all_enqueued`
  // if every step was enqueued.
  absl::StatusOr<Enqueued> EnqueueLaunch(const Executable& base, const RunContext& context,
                                         absl::Span<const DeviceBufferRef> args,
                                         bool* all_enqueued) {
    TESSERA_RETURN_IF_ERROR(context.cancel->status());
    TESSERA_RETURN_IF_ERROR(fatal_status());
    const auto& executable = static_cast<const DeviceExecutable&>(base);
    const program::StepProgram& program = executable.program;
    Runner::Memory addresses;
    for (const DeviceBufferRef& arg : args) {
      addresses.arguments.push_back(MemoryOf(*arg).allocation()->address());
    }
    std::unique_ptr<LaunchMemory> reserved_here;
    if (context.memory == nullptr) {
      TESSERA_ASSIGN_OR_RETURN(reserved_here, ReserveMemory(base, args, context.donations));
    }
    const auto& memory = static_cast<const DeviceLaunchMemory&>(
        context.memory == nullptr ? *reserved_here : *context.memory);
    const std::vector<std::shared_ptr<DeviceMemory>> results = memory.results;
    Enqueued enqueued;
    for (const auto& result : results) {
      addresses.results.push_back(result->allocation()->address());
      enqueued.results.push_back(result);
    }
    TESSERA_RETURN_IF_ERROR(UploadAxisIndices(program, context));
    if (memory.scratch != nullptr) addresses.arena = memory.scratch->address();

    Runner runner(*resources_, executable, context, std::move(addresses), HostAccessFor(context));
    Launch::Work work;
    work.enqueue_status = runner.EnqueueAll();
    *all_enqueued = work.enqueue_status.ok();
    // The other ranks may wait on the host for this launch, so they hear of the failure at once.
    if (!work.enqueue_status.ok() && context.collectives != nullptr)
      context.collectives->AbortLaunch(context.launch, StatusForPeers(work.enqueue_status));
    if (absl::Status joined = runner.Join(); !joined.ok()) {
      SetFatal(joined);
      return work.enqueue_status.ok() ? joined : work.enqueue_status;
    }
    std::vector<std::pair<std::shared_ptr<DeviceMemory>, PinnedSlotRef>> inline_slots;
    if (work.enqueue_status.ok()) {
      for (const auto& result : results) {
        if (result->num_bytes() > kInlineResultBytesMax) continue;
        PinnedSlotRef slot = resources_->inline_slots->Take();
        if (slot == nullptr) break;
        work.enqueue_status.Update(
            device().Check(api().copy_to_host(resources_->compute_stream.get(), slot.get(),
                                              result->allocation()->address(), result->num_bytes()),
                           "a result's copy"));
        inline_slots.emplace_back(result, std::move(slot));
      }
    }
    work.context = context;
    work.collectives = runner.TakeCollectives();
    absl::StatusOr<EventHandle> end = device().RecordEvent(resources_->compute_stream);
    if (!end.ok()) {
      // A device that cannot record an event is lost.
      SetFatal(end.status());
      return work.enqueue_status.ok() ? end.status() : work.enqueue_status;
    }
    work.end = *std::move(end);
    work.finish = [inline_slots = std::move(inline_slots), scratch = memory.scratch,
                   results](const absl::Status& status) {
      for (const auto& [result, slot] : inline_slots) {
        if (status.ok()) result->host_copy = slot;
      }
    };
    enqueued.event = std::make_unique<LaunchEvent>(Watch(std::move(work)));
    return enqueued;
  }

  // Hands the work to the polling thread, and returns the object that reports its end.
  std::shared_ptr<LaunchEnd> Watch(Launch::Work work) {
    auto ended = std::make_shared<LaunchEnd>();
    auto launch = std::make_unique<Launch>(
        &device(), resources_->aborter.get(),
        LaunchTimeouts{options_.collective_timeout, options_.abort_grace, options_.cancel_grace,
                       options_.peer_abort_delay},
        [this](const absl::Status& why) { SetFatal(why); }, ended, std::move(work));
    resources_->launches->Add(
        kLaunchQueue, [launch = std::move(launch)](absl::Time now) { return launch->Poll(now); });
    return ended;
  }

  // Waits for the work that a launch has enqueued so far. The wait ends like a launch: when the
  // work ends, or when it is aborted.
  absl::Status Drain(const RunContext& context, std::vector<WatchedCollective> collectives) {
    Launch::Work work;
    work.context = context;
    work.collectives = std::move(collectives);
    absl::StatusOr<EventHandle> end = device().RecordEvent(resources_->compute_stream);
    if (!end.ok()) SetFatal(end.status());
    TESSERA_RETURN_IF_ERROR(end.status());
    work.end = *std::move(end);
    work.finish = [](const absl::Status&) {};
    absl::Notification ended;
    absl::Status status;
    Watch(std::move(work))->OnDone([&](const absl::Status& how) {
      status = how;
      ended.Notify();
    });
    ended.WaitForNotification();
    return status;
  }

  Runner::HostAccess HostAccessFor(const RunContext& context) {
    return {[this, &context](std::vector<WatchedCollective> collectives) {
              return Drain(context, std::move(collectives));
            },
            [this](absl::Span<std::byte> to, uint64_t from) {
              return SetFatalIfLost(resources_->staging->ToHost(
                  to.data(), from, BlockRows(static_cast<int64_t>(to.size()))));
            },
            [this](uint64_t to, absl::Span<const std::byte> from) {
              return SetFatalIfLost(resources_->staging->ToDevice(
                  to, from.data(), static_cast<int64_t>(from.size())));
            },
            options_.long_steps,
            [this]() -> ThreadPool& { return HostThreads(); },
            num_host_threads_};
  }

  // Returns the threads of host steps, which the first program with such a step starts.
  ThreadPool& HostThreads() {
    absl::call_once(host_threads_once_, [this] {
      host_threads_ = std::make_unique<ThreadPool>(num_host_threads_ - 1);
    });
    return *host_threads_;
  }

  const Device& device() const { return *resources_->device; }
  const tessera_device_api& api() const { return device().api(); }

  // Calls `allocate`, and once more if it fails and unused scratch memory can be given back.
  template <class F>
  std::invoke_result_t<F> AllocateOrTakeBack(const F& allocate) {
    std::invoke_result_t<F> allocated = allocate();
    return allocated.ok() || !resources_->scratch->GiveBack() ? std::move(allocated) : allocate();
  }
  // Allocates memory for an array, which the executor has reserved in the account.
  absl::StatusOr<AllocationRef> Allocate(int64_t bytes, const char* what) {
    TESSERA_ASSIGN_OR_RETURN(Allocation allocation, resources_->arena->Allocate(bytes, what));
    return std::make_shared<const Allocation>(std::move(allocation));
  }
  // Reserves memory in the account, and allocates it.
  absl::StatusOr<AllocationRef> AllocateCounted(int64_t bytes, const char* what,
                                                Arena::Place place = Arena::Place::kBestFit) {
    struct Counted {
      Reservation reservation;
      Allocation memory;  // the last member, so that it is freed before its reservation ends
    };
    auto counted = std::make_shared<Counted>();
    if (account_ != nullptr) {
      TESSERA_ASSIGN_OR_RETURN(counted->reservation,
                               account_->Reserve(AllocationBytes(bytes), what));
    }
    TESSERA_ASSIGN_OR_RETURN(counted->memory, resources_->arena->Allocate(bytes, what, place));
    return AllocationRef(counted, &counted->memory);
  }
  absl::Status Upload(const ir::Array& value, const Allocation& to) {
    return SetFatalIfLost(
        resources_->staging->ToDevice(to.address(), value.data(), value.num_bytes()));
  }
  absl::StatusOr<AllocationRef> UploadCounted(const ir::Array& value, const char* what) {
    TESSERA_ASSIGN_OR_RETURN(AllocationRef allocation, AllocateOrTakeBack([&] {
                               return AllocateCounted(value.num_bytes(), what);
                             }));
    TESSERA_RETURN_IF_ERROR(Upload(value, *allocation));
    return allocation;
  }
  // Returns `copied`. A copy that fails with WORKER_LOST means that the device is lost.
  absl::Status SetFatalIfLost(absl::Status copied) {
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
    wanted.allow_tf32 = options_.allow_tf32 && shape.allow_tf32 ? 1 : 0;
    tessera_matmul* matmul = nullptr;
    TESSERA_RETURN_IF_ERROR(device().Check(
        api().matmul_plan(device().context(), &wanted, &matmul, scratch_bytes), "a product"));
    return MatmulHandle(&api(), matmul);
  }

  // Plans the matmuls, and adds up the sizes of the parts of scratch memory. Each shape is planned
  // once. Operands and results that may be unaligned get room for an aligned copy. Steps run one
  // after the other, so the room for the step that needs most is enough.
  absl::Status PlanMatmulsAndScratch(DeviceExecutable& executable) const {
    const program::StepProgram& program = executable.program;
    absl::Status status;
    program::ForEachStep(program.steps, [&](const Step& step) {
      if (!status.ok()) return;
      const std::string& label = program.labels[step.label];
      executable.has_collectives_ |= std::holds_alternative<program::CollectiveStep>(step.what);
      if (const auto* kernel = std::get_if<program::KernelStep>(&step.what)) {
        int64_t aligned_bytes = 0;
        for (const int slot : kernel->slots) {
          if (MayBeUnaligned(program.slots[slot]))
            aligned_bytes += Arena::RoundUp(program.slots[slot].bytes());
        }
        executable.realigned_bytes = std::max(executable.realigned_bytes, aligned_bytes);
      }
      const auto* matmul_step = std::get_if<program::MatmulStep>(&step.what);
      if (matmul_step == nullptr) return;
      const MatmulRanges ranges = RangesOf(*matmul_step);
      int64_t aligned_bytes = 0;
      for (const SlotRange& range : {ranges.a, ranges.b, ranges.c}) {
        if (MayBeUnaligned(program.slots[range.slot], range.offset))
          aligned_bytes += Arena::RoundUp(range.bytes);
      }
      executable.realigned_bytes = std::max(executable.realigned_bytes, aligned_bytes);
      if (executable.matmuls.count(matmul_step->shape) > 0) return;
      int64_t scratch = 0;
      absl::StatusOr<MatmulHandle> matmul = PlanMatmul(matmul_step->shape, &scratch);
      if (!matmul.ok()) {
        status = Annotate(matmul.status(), label);
        return;
      }
      executable.matmuls.emplace(matmul_step->shape, *std::move(matmul));
      executable.matmul_bytes = std::max(executable.matmul_bytes, Arena::RoundUp(scratch));
    });
    TESSERA_RETURN_IF_ERROR(status);
    int64_t& bytes = executable.memory_bytes_;
    bytes = executable.scratch_bytes();
    for (const auto& argument : program.arguments) bytes += AllocationBytes(argument.num_bytes());
    for (const auto& result : program.results) bytes += AllocationBytes(result.buffer.num_bytes());
    for (const ir::Array& constant : program.constants)
      bytes += AllocationBytes(constant.num_bytes());
    return absl::OkStatus();
  }

  // Whether a result is neither an argument nor an earlier result, and no argument is donated to
  // it.
  static bool HasOwnMemory(const program::StepProgram& program, size_t result,
                           absl::Span<const int> donations) {
    const Slot& slot = program.slots[program.results[result].slot];
    return slot.kind != Slot::Kind::kArgument && slot.index >= static_cast<int>(result) &&
           (donations.empty() || donations[result] < 0);
  }

  absl::StatusOr<std::vector<std::shared_ptr<DeviceMemory>>> MakeResults(
      const program::StepProgram& program, absl::Span<const int> donations,
      absl::Span<const DeviceBufferRef> args) {
    std::vector<std::shared_ptr<DeviceMemory>> results;
    for (const program::Result& result : program.results) {
      const Slot& slot = program.slots[result.slot];
      AllocationRef allocation;
      const DeviceMemory* sharer = nullptr;  // the array whose allocation the result shares
      if (HasOwnMemory(program, results.size(), donations)) {
        TESSERA_ASSIGN_OR_RETURN(allocation, Allocate(result.buffer.num_bytes(), "a result"));
      } else if (slot.kind == Slot::Kind::kArgument) {
        sharer = &MemoryOf(*args[slot.index]);
      } else if (slot.index < static_cast<int>(results.size())) {
        sharer = results[slot.index].get();
      } else {
        allocation = MemoryOf(*args[donations[results.size()]]).allocation();
      }
      results.push_back(std::make_shared<DeviceMemory>(
          result.buffer.dtype, result.buffer.shape,
          sharer != nullptr ? sharer->allocation() : std::move(allocation), sharer));
      if (sharer != nullptr) results.back()->shared = sharer->shared = true;
    }
    return results;
  }

  absl::Status UploadAxisIndices(const program::StepProgram& program, const RunContext& context) {
    std::set<int32_t> needed;
    program::ForEachStep(program.steps, [&](const Step& step) {
      if (const auto* axis_index = std::get_if<program::AxisIndexStep>(&step.what)) {
        needed.insert(
            static_cast<int32_t>(program.mesh.IndexAlong(context.mesh_device, axis_index->axes)));
      }
    });
    for (const int32_t index : needed) {
      if (resources_->axis_indices.count(index) > 0) continue;
      TESSERA_ASSIGN_OR_RETURN(
          resources_->axis_indices[index],
          UploadCounted(ir::Array::ScalarInt(ir::DType::kS32, index), "positions of devices"));
    }
    return absl::OkStatus();
  }

  // Aborts a communicator for which GroupComms::AwaitReady has given up, or that another rank has
  // aborted. Called by the enqueueing thread, which enqueues nothing else before this returns.
  void AbortCommunicator(GroupComm& communicator, Collectives* host) {
    if (!communicator.MarkAborted(host)) return;
    // The abort may block for ever, so the poller watches it and declares the device lost.
    const auto done = std::make_shared<std::atomic<bool>>(false);
    const absl::Time deadline = SteadyNow() + options_.abort_grace;
    resources_->launches->Add(kAbortQueue, [this, done, deadline](absl::Time now) {
      if (*done) return true;
      if (now <= deadline) return false;
      SetFatal(MakeError(ErrorKind::kWorkerLost,
                         absl::StrCat(device().name(), ": an abort did not end within ",
                                      absl::FormatDuration(options_.abort_grace))));
      return true;
    });
    AbortTimed(device(), communicator, options_.on_abort);
    *done = true;
  }

  bool is_fatal() const { return is_fatal_.load(std::memory_order_acquire); }
  absl::Status fatal_status() const ABSL_LOCKS_EXCLUDED(mu_) {
    if (!is_fatal()) return absl::OkStatus();
    absl::MutexLock lock(&mu_);
    return fatal_status_;
  }
  void SetFatal(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (!fatal_status_.ok()) return;
      fatal_status_ = why;
      is_fatal_.store(true, std::memory_order_release);
    }
    TESSERA_LOG(ERROR) << "device lost" << Field("device", device().name())
                       << Field("why", why.message());
    if (options_.on_fatal) options_.on_fatal(why);
  }

  const DeviceBackendOptions options_;
  const int num_host_threads_ = options_.host_threads > 0 ? options_.host_threads
                                                          : ProcessLimits().cores;
  absl::once_flag host_threads_once_;
  std::unique_ptr<ThreadPool> host_threads_;
  codegen::ObjectCache cache_;
  // Null if this process compiles the kernels.
  std::unique_ptr<codegen::CompileChildren> children_;
  std::string kind_;
  MemoryAccount* account_ = nullptr;  // null if there is none
  program::BuildOptions build_options_;
  std::unique_ptr<DeviceResources> resources_ = std::make_unique<DeviceResources>();
  std::atomic<bool> is_fatal_{false};
  mutable absl::Mutex mu_;
  absl::Status fatal_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend(const tessera_device_api* api,
                                                           const DeviceBackendOptions& options) {
  auto backend = std::make_unique<DeviceBackend>(options);
  TESSERA_RETURN_IF_ERROR(backend->Open(api));
  return backend;
}

int64_t BytesInUse(const Backend& backend) {
  return static_cast<const DeviceBackend&>(backend).bytes_in_use();
}

}  // namespace tessera::worker::device
