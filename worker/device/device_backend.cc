#include "worker/device/device_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/object_cache.h"
#include "worker/device/arena.h"
#include "worker/device/communicators.h"
#include "worker/device/completion.h"
#include "worker/device/device.h"
#include "worker/device/launch.h"
#include "worker/device/pinned_slots.h"
#include "worker/device/staging.h"
#include "worker/program/device_program.h"

namespace tessera::worker::device {
namespace {

using program::Slot;
using program::Step;

constexpr int64_t kMirrorBytes = 64 << 10;
enum Lane { kLaunchLane, kAbortLane, kNumLanes };
constexpr int kMirrors = 64;
// Sets of buffers for which an executable keeps a graph. A training loop alternates between two.
constexpr size_t kGraphsMax = 8;

using BlockRef = std::shared_ptr<const Block>;

int64_t Rounded(int64_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

class DeviceMemory final : public DeviceBuffer {
 public:
  DeviceMemory(ir::DType dtype, ir::Dims shape, BlockRef block)
      : type_(ir::MakeType(dtype, std::move(shape))), block_(std::move(block)) {}
  ir::DType dtype() const override { return type_.dtype; }
  const ir::Dims& shape() const override { return type_.shape; }
  int64_t num_bytes() const override { return type_.num_bytes(); }
  const BlockRef& block() const { return block_; }

  // The copy on the host that came along with the launch; null: none. Set before the launch's event
  // is done, read after.
  PinnedSlotRef mirror;

 private:
  const ir::Type type_;
  const BlockRef block_;
};

const DeviceMemory& MemoryOf(const DeviceBuffer& buffer) {
  return static_cast<const DeviceMemory&>(buffer);
}

// A graph for each set of buffers that has been launched more than once.
class Graphs {
 public:
  using Key = std::vector<uint64_t>;

  // Null if there is none; whether it is worth making one now.
  tessera_graph* Find(const Key& key, bool* make) {
    for (auto it = graphs_.begin(); it != graphs_.end(); ++it) {
      if (it->first != key) continue;
      graphs_.splice(graphs_.begin(), graphs_, it);
      return graphs_.front().second.get();
    }
    *make = std::find(seen_.begin(), seen_.end(), key) != seen_.end();
    if (!*make) seen_.push_front(key);
    if (seen_.size() > kGraphsMax) seen_.pop_back();
    return nullptr;
  }
  void Keep(Key key, GraphHandle graph) {
    graphs_.emplace_front(std::move(key), std::move(graph));
    if (graphs_.size() > kGraphsMax) graphs_.pop_back();
  }

 private:
  std::list<std::pair<Key, GraphHandle>> graphs_;  // latest use first
  std::deque<Key> seen_;
};

class DeviceExecutable final : public Executable {
 public:
  int64_t memory_bytes() const override { return memory_bytes_; }
  bool has_collectives() const override { return has_collectives_; }
  bool quick() const override { return false; }

  program::DeviceProgram program;
  codegen::DeviceCode code;
  ModuleHandle module;
  std::vector<BlockRef> constants;
  std::map<MatmulShape, MatmulHandle> matmuls;
  // Behind the arena: what products need, then where kernels' slots are moved that lie unaligned.
  int64_t product_bytes = 0, moved_bytes = 0;
  int64_t scratch_bytes() const {
    return Rounded(program.arena_bytes) + product_bytes + moved_bytes;
  }
  int64_t memory_bytes_ = 0;
  bool has_collectives_ = false;
  // Of the thread that enqueues.
  mutable Graphs graphs;
};

// What kernels ask of their arguments' addresses (codegen/device_code.h).
constexpr int64_t kKernelAlignment = 16;
bool MayBeUnaligned(const Slot& slot) {
  if (slot.offset % kKernelAlignment != 0) return true;
  return std::any_of(slot.trips.begin(), slot.trips.end(),
                     [](const program::Trip& trip) { return trip.stride % kKernelAlignment != 0; });
}

// Every step, loops' bodies included, in the order of the text.
template <class F>
void ForEachStep(const std::vector<Step>& steps, const F& f) {
  for (const Step& step : steps) {
    f(step);
    if (const auto* loop = std::get_if<program::LoopStep>(&step.what)) ForEachStep(loop->body, f);
  }
}

class DeviceBackend;

// What all of a backend's work shares. Not destroyed once the device is lost: threads may be stuck
// in calls of its library, and the process ends.
struct Core {
  std::unique_ptr<Device> device;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<PinnedSlots> mirrors;
  StreamHandle compute;
  std::unique_ptr<Communicators> communicators;
  // The executables' scratch memory: one for all, since their work is in one order. Replaced by a
  // larger one when that is needed; launches hold the one they use.
  BlockRef scratch;
  std::map<int32_t, BlockRef> positions;  // an s32 of that value
  std::unique_ptr<AbortLadder> ladder;
  // Apart: those who are told the end of a launch may copy, and wait for it.
  std::unique_ptr<Completion> launches, copies;
  std::unique_ptr<Staging> staging;  // Last: watches its copies in `copies`.
};

// Bounds a call that may block for ever.
class AbortGuard final : public Watched {
 public:
  AbortGuard(std::shared_ptr<const std::atomic<bool>> done, absl::Time deadline,
             std::function<void()> late)
      : done_(std::move(done)), deadline_(deadline), late_(std::move(late)) {}
  bool Look(absl::Time now) override {
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

// Enqueues one launch.
class Runner {
 public:
  Runner(Core& core, const DeviceExecutable& executable, const RunContext& context,
         std::vector<uint64_t> arguments, std::vector<uint64_t> results, uint64_t arena)
      : core_(core),
        device_(*core.device),
        executable_(executable),
        context_(context),
        arguments_(std::move(arguments)),
        results_(std::move(results)),
        arena_(arena),
        trips_(executable.program.num_loops) {}

  // As a graph if there is one for these buffers, or it is worth making one.
  absl::Status Run() {
    if (executable_.has_collectives() || executable_.program.steps.empty()) return RunSteps();
    Graphs::Key key = arguments_;
    key.insert(key.end(), results_.begin(), results_.end());
    key.push_back(arena_);
    key.push_back(static_cast<uint64_t>(context_.mesh_device));
    bool make = false;
    tessera_graph* graph = executable_.graphs.Find(key, &make);
    if (graph == nullptr && make) {
      TESSERA_ASSIGN_OR_RETURN(GraphHandle captured, Capture());
      graph = captured.get();
      if (graph != nullptr) executable_.graphs.Keep(std::move(key), std::move(captured));
    }
    if (graph == nullptr) return RunSteps();
    return device_.Check(device_.api().graph_launch(stream(), graph), "a graph");
  }

  std::vector<WatchedExchange> TakeExchanges() { return std::move(exchanges_); }

 private:
  const program::DeviceProgram& program() const { return executable_.program; }
  tessera_stream* stream() const { return core_.compute.get(); }

  // An empty handle: this cannot be recorded.
  absl::StatusOr<GraphHandle> Capture() {
    const tessera_device_api& api = device_.api();
    TESSERA_RETURN_IF_ERROR(device_.Check(api.graph_begin(stream()), "recording a graph"));
    const absl::Status recorded = RunSteps();
    tessera_graph* graph = nullptr;
    const int code = api.graph_end(stream(), &graph);
    TESSERA_RETURN_IF_ERROR(recorded);
    if (code == TESSERA_UNSUPPORTED) return GraphHandle();
    TESSERA_RETURN_IF_ERROR(device_.Check(code, "recording a graph"));
    return GraphHandle(&api, graph);
  }

  absl::Status RunSteps() { return RunSteps(program().steps); }
  absl::Status RunSteps(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      label_ = &program().labels[step.label];
      if (context_.in_flight != nullptr) context_.in_flight->SetOp(*label_, /*waiting=*/false);
      const absl::Status status =
          std::visit([this](const auto& what) { return Run(what); }, step.what);
      if (!status.ok()) return Annotate(status, *label_);
    }
    return absl::OkStatus();
  }

  uint64_t AddressOf(int slot_index) const {
    const Slot& slot = program().slots[slot_index];
    uint64_t address = slot.offset;
    switch (slot.kind) {
      case Slot::Kind::kArgument:
        address += arguments_[slot.index];
        break;
      case Slot::Kind::kResult:
        address += results_[slot.index];
        break;
      case Slot::Kind::kConstant:
        address += executable_.constants[slot.index]->address();
        break;
      case Slot::Kind::kArena:
        address += arena_;
        break;
    }
    for (const program::Trip& trip : slot.trips) address += trips_[trip.loop] * trip.stride;
    return address;
  }

  // A row of a larger array may begin anywhere, and is then moved to where a kernel takes it.
  absl::Status Run(const program::KernelStep& step) {
    const codegen::GpuKernel& kernel = executable_.code.kernels[step.kernel];
    const std::vector<codegen::Param>& params = program().kernels[step.kernel].params;
    std::vector<uint64_t> args;
    struct Moved {
      uint64_t from, to;
      int64_t bytes;
    };
    std::vector<Moved> back;
    uint64_t aligned = arena_ + Rounded(program().arena_bytes) + executable_.product_bytes;
    for (size_t i = 0; i < step.slots.size(); ++i) {
      const Slot& slot = program().slots[step.slots[i]];
      uint64_t address = AddressOf(step.slots[i]);
      if (MayBeUnaligned(slot)) {
        TESSERA_RETURN_IF_ERROR(Copy(aligned, address, slot.bytes()));
        if (params[i].output) back.push_back({aligned, address, slot.bytes()});
        address = aligned;
        aligned += Rounded(slot.bytes());
      }
      args.push_back(address);
    }
    TESSERA_RETURN_IF_ERROR(
        device_.Check(device_.api().launch(stream(), executable_.module.get(), kernel.entry.c_str(),
                                           kernel.grid, kernel.block, kernel.shared_bytes,
                                           args.data(), static_cast<int32_t>(args.size())),
                      "a kernel"));
    for (const Moved& m : back) TESSERA_RETURN_IF_ERROR(Copy(m.to, m.from, m.bytes));
    return absl::OkStatus();
  }

  absl::Status Run(const program::ContractStep& step) {
    const int64_t width = ir::ByteWidth(step.shape.in);
    return device_.Check(
        device_.api().matmul_run(stream(), executable_.matmuls.at(step.shape).get(),
                                 AddressOf(step.a) + step.a_offset * width,
                                 AddressOf(step.b) + step.b_offset * width, AddressOf(step.c),
                                 arena_ + Rounded(program().arena_bytes)),
        "a product");
  }

  absl::Status Run(const program::CopyStep& step) {
    return Copy(AddressOf(step.out), AddressOf(step.in), program().slots[step.in].bytes());
  }
  absl::Status Copy(uint64_t to, uint64_t from, int64_t bytes) {
    return device_.Check(device_.api().copy(stream(), to, from, bytes), "a copy");
  }

  absl::Status Run(const program::PositionStep& step) {
    const auto at =
        static_cast<int32_t>(program().mesh.IndexAlong(context_.mesh_device, step.axes));
    return Copy(AddressOf(step.out), core_.positions.at(at)->address(), sizeof(at));
  }

  absl::Status Run(const program::GeneralStep&) {
    return MakeError(ErrorKind::kInternal, "the host's work is refused when it is compiled");
  }

  absl::Status Run(const program::LoopStep& step) {
    for (int64_t& trip = trips_[step.loop] = 0; trip < step.trips; ++trip) {
      TESSERA_RETURN_IF_ERROR(context_.cancel->status());
      TESSERA_RETURN_IF_ERROR(RunSteps(step.body));
    }
    trips_[step.loop] = 0;
    return absl::OkStatus();
  }

  absl::Status Run(const program::CollectiveStep& step) {
    const uint64_t in = AddressOf(step.in), out = AddressOf(step.out);
    const int64_t bytes = step.elements * ir::ByteWidth(step.dtype);
    std::vector<int> group;
    for (const int64_t device : program().mesh.GroupOf(context_.mesh_device, step.axes)) {
      group.push_back(context_.ranks[device]);
    }
    CallKey key{context_.launch, ++sequence_, *label_, std::string(context_.program)};
    int position = 0;
    CommunicatorRef communicator;
    if (group.size() > 1) {
      TESSERA_ASSIGN_OR_RETURN(communicator, core_.communicators->Get(context_, group, key));
      position = communicator->position;
    }
    int source = -1, target = -1;
    for (const auto& [from, to] : step.pairs) {
      if (from == position) target = to;
      if (to == position) source = from;
    }
    if (step.exchange == ir::Exchange::kPermute && source < 0) {
      TESSERA_RETURN_IF_ERROR(
          device_.Check(device_.api().fill_zero(stream(), out, bytes), "zeros"));
    }
    // A group of one has what it wants; so has a position that is sent its own.
    if (communicator == nullptr) {
      return step.exchange == ir::Exchange::kPermute && source < 0 ? absl::OkStatus()
                                                                   : Copy(out, in, bytes);
    }
    if (source == position && target == position) return Copy(out, in, bytes);
    WatchedExchange watched;
    watched.label = *label_;
    watched.key = std::move(key);
    watched.communicator = communicator;
    TESSERA_ASSIGN_OR_RETURN(watched.begin, device_.Record(core_.compute));
    // Kept also if it fails here: what of it is on the device has to be aborted.
    exchanges_.push_back(std::move(watched));
    const int code = Enqueue(step, communicator->handle.get(), in, out, source, target);
    if (code != TESSERA_NOT_READY) TESSERA_RETURN_IF_ERROR(device_.Check(code, "an exchange"));
    TESSERA_RETURN_IF_ERROR(core_.communicators->AwaitReady(*communicator, context_, *label_));
    TESSERA_ASSIGN_OR_RETURN(exchanges_.back().end, device_.Record(core_.compute));
    return absl::OkStatus();
  }

  // Its code.
  int Enqueue(const program::CollectiveStep& step, tessera_comm* comm, uint64_t in, uint64_t out,
              int source, int target) const {
    const tessera_device_api& api = device_.api();
    const auto dtype = static_cast<tessera_dtype>(step.dtype);
    switch (step.exchange) {
      case ir::Exchange::kAllReduce:
        return api.all_reduce(comm, stream(), dtype, ReduceOf(step.reduce), in, out, step.elements);
      case ir::Exchange::kAllGather:
        return api.all_gather(comm, stream(), dtype, in, out, step.elements);
      case ir::Exchange::kReduceScatter:
        return api.reduce_scatter(comm, stream(), dtype, ReduceOf(step.reduce), in, out,
                                  step.elements);
      case ir::Exchange::kAllToAll:
        return api.all_to_all(comm, stream(), dtype, in, out, step.elements);
      case ir::Exchange::kPermute:
        return api.send_receive(comm, stream(), dtype, in, target, out, source, step.elements);
      case ir::Exchange::kPosition:
      case ir::Exchange::kNone:
        break;
    }
    TESSERA_CHECK(false) << "a step that exchanges no blocks";
    return TESSERA_INVALID;
  }

  static tessera_reduce ReduceOf(ir::ReduceKind kind) {
    switch (kind) {
      case ir::ReduceKind::kMax:
        return static_cast<tessera_reduce>(ReduceKind::kMax);
      case ir::ReduceKind::kMin:
        return static_cast<tessera_reduce>(ReduceKind::kMin);
      case ir::ReduceKind::kProd:
        return static_cast<tessera_reduce>(ReduceKind::kProd);
      case ir::ReduceKind::kAnd:
        return static_cast<tessera_reduce>(ReduceKind::kAnd);
      case ir::ReduceKind::kOr:
        return static_cast<tessera_reduce>(ReduceKind::kOr);
      default:
        return static_cast<tessera_reduce>(ReduceKind::kSum);
    }
  }

  Core& core_;
  const Device& device_;
  const DeviceExecutable& executable_;
  const RunContext& context_;
  const std::vector<uint64_t> arguments_, results_;
  const uint64_t arena_;
  std::vector<int64_t> trips_;
  const std::string* label_ = nullptr;
  uint32_t sequence_ = 0;
  std::vector<WatchedExchange> exchanges_;
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
    if (core_->ladder != nullptr) core_->ladder->Abandon();
    // Reachable for ever, for threads that never come back.
    static auto* const lost = new std::vector<std::unique_ptr<Core>>;
    lost->push_back(std::move(core_));
  }

  std::string_view device_kind() const override { return kind_; }
  int num_devices() const override { return 1; }
  int64_t memory_bytes() const override { return core_->arena->capacity_bytes(); }
  absl::Span<const ir::Lowering> lowerings() const override {
    static constexpr ir::Lowering kOwn[] = {ir::Lowering::kScalar,       ir::Lowering::kReduce,
                                            ir::Lowering::kContract,     ir::Lowering::kIndexMap,
                                            ir::Lowering::kDynamicIndex, ir::Lowering::kCollective,
                                            ir::Lowering::kRegion,       ir::Lowering::kAlias};
    return kOwn;
  }

  absl::StatusOr<std::shared_ptr<const Executable>> Compile(const ir::Program& program) override {
    if (program.entry == nullptr) {
      return MakeError(ErrorKind::kMalformedProgram, "the program has no entry function");
    }
    auto executable = std::make_shared<DeviceExecutable>();
    TESSERA_ASSIGN_OR_RETURN(executable->program, program::Build(*program.entry, build_options_));
    TESSERA_RETURN_IF_ERROR(Plan(*executable));
    TESSERA_ASSIGN_OR_RETURN(
        executable->code,
        codegen::CompileForDevice(device().info().target, executable->program.kernels, &cache_,
                                  child_.get()));
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
      TESSERA_ASSIGN_OR_RETURN(BlockRef block, Upload(constant, "a constant"));
      executable->constants.push_back(std::move(block));
    }
    return executable;
  }

  absl::StatusOr<Enqueued> Enqueue(const Executable& base, const RunContext& context,
                                   absl::Span<const DeviceBufferRef> args) override {
    TESSERA_RETURN_IF_ERROR(context.cancel->status());
    TESSERA_RETURN_IF_ERROR(fatal());
    const auto& executable = static_cast<const DeviceExecutable&>(base);
    const program::DeviceProgram& program = executable.program;
    std::vector<uint64_t> arguments, results;
    for (const DeviceBufferRef& arg : args) {
      arguments.push_back(MemoryOf(*arg).block()->address());
    }
    Enqueued enqueued;
    std::vector<std::shared_ptr<DeviceMemory>> made;
    for (const program::Result& result : program.results) {
      const Slot& slot = program.slots[result.slot];
      BlockRef block;
      if (slot.kind == Slot::Kind::kArgument) {
        block = MemoryOf(*args[slot.index]).block();
      } else if (slot.index < static_cast<int>(made.size())) {
        block = made[slot.index]->block();
      } else {
        const int64_t bytes = ir::MakeType(result.buffer.dtype, result.buffer.shape).num_bytes();
        TESSERA_ASSIGN_OR_RETURN(block, Allocate(bytes, "a result"));
      }
      results.push_back(block->address());
      made.push_back(std::make_shared<DeviceMemory>(result.buffer.dtype, result.buffer.shape,
                                                    std::move(block)));
      enqueued.results.push_back(made.back());
    }
    TESSERA_RETURN_IF_ERROR(ReserveScratch(executable.scratch_bytes()));
    TESSERA_RETURN_IF_ERROR(PreparePositions(program, context));

    Runner runner(*core_, executable, context, std::move(arguments), std::move(results),
                  core_->scratch->address());
    Launch::Work work;
    work.broken = runner.Run();
    std::vector<std::pair<std::shared_ptr<DeviceMemory>, PinnedSlotRef>> mirrors;
    if (work.broken.ok()) {
      for (const auto& result : made) {
        if (result->num_bytes() > kMirrorBytes) continue;
        PinnedSlotRef slot = core_->mirrors->Take();
        if (slot == nullptr) break;
        work.broken.Update(
            device().Check(api().copy_to_host(core_->compute.get(), slot->address(),
                                              result->block()->address(), result->num_bytes()),
                           "a result's copy"));
        mirrors.emplace_back(result, std::move(slot));
      }
    }
    work.context = context;
    work.exchanges = runner.TakeExchanges();
    absl::StatusOr<EventHandle> end = device().Record(core_->compute);
    if (!end.ok()) {
      // The device takes nothing more.
      SetFatal(end.status());
      return work.broken.ok() ? end.status() : work.broken;
    }
    work.end = *std::move(end);
    work.finish = [mirrors = std::move(mirrors), scratch = core_->scratch,
                   made](const absl::Status& status) {
      for (const auto& [result, slot] : mirrors) {
        if (status.ok()) result->mirror = slot;
      }
    };
    auto ended = std::make_shared<LaunchEnd>();
    enqueued.event = std::make_unique<LaunchEvent>(ended);
    core_->launches->Add(
        kLaunchLane,
        std::make_unique<Launch>(
            &device(), core_->ladder.get(),
            LaunchBounds{options_.collective_timeout, options_.abort_grace, options_.cancel_grace},
            [this](const absl::Status& why) { SetFatal(why); }, ended, std::move(work)));
    return enqueued;
  }

  void CloseGeneration(uint64_t generation) override { core_->communicators->Close(generation); }

  absl::StatusOr<DeviceBufferRef> FromHost(int, ir::Array value) override {
    TESSERA_ASSIGN_OR_RETURN(BlockRef block, Upload(value, "an array"));
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
    Core& core = *core_;
    TESSERA_ASSIGN_OR_RETURN(core.device, Device::Open(api, options_.ordinal));
    int64_t bytes = options_.memory_bytes;
    if (bytes == 0) bytes = device().info().free_bytes / 10 * 9;
    TESSERA_ASSIGN_OR_RETURN(core.arena, Arena::Make(&device(), bytes));
    TESSERA_ASSIGN_OR_RETURN(core.mirrors, PinnedSlots::Make(&device(), kMirrors, kMirrorBytes));
    TESSERA_ASSIGN_OR_RETURN(core.compute, device().NewStream(/*high_priority=*/false));
    TESSERA_ASSIGN_OR_RETURN(core.scratch, Allocate(0, "scratch memory"));
    core.communicators = std::make_unique<Communicators>(&device(), options_.collective_timeout,
                                                         [this](Communicator& c) { AbortHere(c); });
    core.ladder = std::make_unique<AbortLadder>(&device());
    const StagingOptions staging;
    core.launches = std::make_unique<Completion>(kNumLanes);
    core.copies = std::make_unique<Completion>(staging.channels);
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
      child_ = std::make_unique<codegen::CompileChild>(codegen::CompileChildOptions{
          compiler.compile_binary, compiler.compile_args, device().info().target,
          compiler.compile_memory_bytes_max, compiler.compile_deadline});
    }
    // What device_api.h promises of all_reduce.
    build_options_.combines = [](ir::ReduceKind reduce, ir::DType dtype) {
      const bool extremum = reduce == ir::ReduceKind::kMax || reduce == ir::ReduceKind::kMin;
      return reduce == ir::ReduceKind::kSum || dtype == ir::DType::kBool ||
             (extremum && !ir::IsFloat(dtype));
    };
    return absl::OkStatus();
  }

  const Device& device() const { return *core_->device; }
  const tessera_device_api& api() const { return device().api(); }

  absl::StatusOr<BlockRef> Allocate(int64_t bytes, const char* what) {
    TESSERA_ASSIGN_OR_RETURN(Block block, core_->arena->Allocate(bytes, what));
    return std::make_shared<const Block>(std::move(block));
  }
  absl::StatusOr<BlockRef> Upload(const ir::Array& value, const char* what) {
    TESSERA_ASSIGN_OR_RETURN(BlockRef block, Allocate(value.num_bytes(), what));
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
    wanted.in = static_cast<tessera_dtype>(shape.in);
    wanted.out = static_cast<tessera_dtype>(shape.out);
    tessera_matmul* matmul = nullptr;
    TESSERA_RETURN_IF_ERROR(device().Check(
        api().matmul_plan(device().context(), &wanted, &matmul, scratch_bytes), "a product"));
    return MatmulHandle(&api(), matmul);
  }

  // Products, the host's work, sizes.
  absl::Status Plan(DeviceExecutable& executable) const {
    const program::DeviceProgram& program = executable.program;
    absl::Status status;
    ForEachStep(program.steps, [&](const Step& step) {
      if (!status.ok()) return;
      const std::string& label = program.labels[step.label];
      executable.has_collectives_ |= std::holds_alternative<program::CollectiveStep>(step.what);
      if (std::holds_alternative<program::GeneralStep>(step.what)) {
        status = MakeError(ErrorKind::kNotImplemented,
                           absl::StrCat(label, ": there is no code for this on a ", kind_,
                                        "; run the program on CPU devices"));
      }
      if (const auto* kernel = std::get_if<program::KernelStep>(&step.what)) {
        int64_t moved = 0;
        for (const int slot : kernel->slots) {
          if (MayBeUnaligned(program.slots[slot])) moved += Rounded(program.slots[slot].bytes());
        }
        executable.moved_bytes = std::max(executable.moved_bytes, moved);
      }
      const auto* contract = std::get_if<program::ContractStep>(&step.what);
      if (contract == nullptr || executable.matmuls.count(contract->shape) > 0) return;
      int64_t scratch = 0;
      absl::StatusOr<MatmulHandle> matmul = PlanMatmul(contract->shape, &scratch);
      if (!matmul.ok()) {
        status = Annotate(matmul.status(), label);
        return;
      }
      executable.matmuls.emplace(contract->shape, *std::move(matmul));
      executable.product_bytes = std::max(executable.product_bytes, Rounded(scratch));
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

  absl::Status ReserveScratch(int64_t bytes) {
    if (core_->scratch->bytes() >= bytes) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(core_->scratch, Allocate(bytes, "scratch memory"));
    return absl::OkStatus();
  }

  absl::Status PreparePositions(const program::DeviceProgram& program, const RunContext& context) {
    std::set<int32_t> wanted;
    ForEachStep(program.steps, [&](const Step& step) {
      if (const auto* position = std::get_if<program::PositionStep>(&step.what)) {
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
  void AbortHere(Communicator& communicator) {
    if (communicator.aborted.exchange(true)) return;
    const auto done = std::make_shared<std::atomic<bool>>(false);
    core_->launches->Add(
        kAbortLane, std::make_unique<AbortGuard>(done, absl::Now() + options_.abort_grace, [this] {
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
  std::unique_ptr<codegen::CompileChild> child_;  // null: kernels are compiled in this process
  std::string kind_;
  program::BuildOptions build_options_;
  std::unique_ptr<Core> core_ = std::make_unique<Core>();
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
