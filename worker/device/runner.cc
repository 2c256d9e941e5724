// Enqueues the steps of one launch. device_backend.cc makes a Runner in Enqueue and calls
// EnqueueAll, then Join. Consecutive steps that wait for no collective in between form a segment,
// which becomes a graph, because the launch of a graph costs the host a single call.
#include "worker/device/runner.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>

#include "base/host_memory.h"
#include "base/status.h"
#include "worker/cpu/parallel_for.h"
#include "worker/cpu/sort.h"
#include "worker/device/api_values.h"

namespace tessera::worker::device {

using program::Slot;
using program::Step;

namespace {

// The maximum number of nodes of a graph. A graph contains the steps of every iteration of its
// loops. A segment ends before it has more nodes, and a loop with more nodes is enqueued iteration
// by iteration.
constexpr int64_t kGraphNodesMax = 4096;

// Returns the number of graph nodes that the step becomes, at most kGraphNodesMax + 1. Requires
// that the step does not need the host.
int64_t NumGraphNodes(const Step& step) {
  const auto* const loop = std::get_if<program::LoopStep>(&step.what);
  if (loop == nullptr) return 1;
  int64_t body = 0;
  for (const Step& inner : loop->body)
    body = std::min(body + NumGraphNodes(inner), kGraphNodesMax + 1);
  if (body == 0 || loop->trip_count <= kGraphNodesMax / body) return body * loop->trip_count;
  return kGraphNodesMax + 1;
}

}  // namespace

absl::Status Runner::EnqueueAll() {
  const Steps& steps = program().steps;
  if (steps.empty()) return absl::OkStatus();
  Graphs::Key key = memory_.arguments;
  key.insert(key.end(), memory_.results.begin(), memory_.results.end());
  key.push_back(memory_.arena);
  key.push_back(static_cast<uint64_t>(context_.mesh_device));
  return EnqueueList(steps, executable_.graphs.FindOrAdd(key));
}

absl::Status Runner::Join() {
  if (!collectives_enqueued_) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const EventHandle end,
                           device_.RecordEvent(resources_.collective_stream));
  return MakeStreamWait(compute_stream(), end);
}

absl::Status Runner::MakeStreamWait(tessera_stream* stream, const EventHandle& event) {
  return device_.Check(device_.api().stream_wait(stream, event.get()), "an event");
}

// ---- Lists of steps. ----------------------------------------------------------------------------

// Walks a list of steps and enqueues them in three ways. A collective goes to its stream. A step
// that needs the host, or contains a collective, is run by itself. All other steps are collected
// into the longest segment whose collectives have been awaited and whose nodes fit into a graph. A
// wait for a collective ends a segment, because collectives are in no graph (docs/decisions/0005).
absl::Status Runner::EnqueueList(const Steps& steps, Graphs::GraphSegments* graphs) {
  std::vector<EventHandle> ends(steps.size());  // ends of the collectives
  int last_collective = -1;                     // index of the last collective so far
  // The compute stream waits for the collectives up to this one.
  int awaited = -1;
  const auto await = [&](int collective) -> absl::Status {
    if (collective <= awaited) return absl::OkStatus();
    awaited = collective;
    return MakeStreamWait(compute_stream(), ends[collective]);
  };
  const int size = static_cast<int>(steps.size());
  for (int at = 0; at < size;) {
    const Step& step = steps[at];
    if (program::IsCommunicatingStep(step)) {
      label_ = &program().labels[step.label];
      context_.SetOp(*label_, /*waiting=*/false);
      absl::StatusOr<EventHandle> end =
          EnqueueCollective(std::get<program::CollectiveStep>(step.what));
      if (!end.ok()) return Annotate(end.status(), *label_);
      ends[at] = *std::move(end);
      last_collective = at++;
      continue;
    }
    const bool needs_host = program::NeedsHost(step);
    TESSERA_RETURN_IF_ERROR(await(needs_host ? last_collective : step.after));
    compute_advanced_ = true;
    if (needs_host || program::ContainsCollective(step)) {
      TESSERA_RETURN_IF_ERROR(EnqueueLabelled(step));
      awaited = at++;
      continue;
    }
    int end = at + 1;
    int64_t nodes = NumGraphNodes(steps[at]);
    while (end < size && !program::ContainsCollective(steps[end]) &&
           !program::NeedsHost(steps[end]) && steps[end].after <= awaited) {
      nodes += NumGraphNodes(steps[end]);
      if (nodes > kGraphNodesMax) break;
      ++end;
    }
    TESSERA_RETURN_IF_ERROR(EnqueueSegment(steps, at, end, graphs));
    at = end;
  }
  return await(last_collective);
}

// Enqueues a segment, as a graph if it has been captured. A single step is launched as fast without
// a graph, unless it is a loop.
absl::Status Runner::EnqueueSegment(const Steps& steps, size_t begin, size_t end,
                                    Graphs::GraphSegments* graphs) {
  const bool use_graph =
      end > begin + 1 || (std::holds_alternative<program::LoopStep>(steps[begin].what) &&
                          NumGraphNodes(steps[begin]) <= kGraphNodesMax);
  if (graphs == nullptr || !use_graph) return EnqueueSteps(steps, begin, end);
  auto it = graphs->find(begin);
  if (it == graphs->end()) {
    TESSERA_ASSIGN_OR_RETURN(GraphHandle captured, Capture(steps, begin, end));
    it = graphs->emplace(begin, std::move(captured)).first;
  }
  if (it->second.get() == nullptr) return EnqueueSteps(steps, begin, end);
  return device_.Check(device_.api().graph_launch(compute_stream(), it->second.get()), "a graph");
}

// Captures a segment as a graph. Returns an empty handle if the segment cannot be captured.
absl::StatusOr<GraphHandle> Runner::Capture(const Steps& steps, size_t begin, size_t end) {
  const tessera_device_api& api = device_.api();
  TESSERA_RETURN_IF_ERROR(device_.Check(api.graph_begin(compute_stream()), "recording a graph"));
  const absl::Status recorded = EnqueueSteps(steps, begin, end);
  tessera_graph* graph = nullptr;
  const int code = api.graph_end(compute_stream(), &graph);
  TESSERA_RETURN_IF_ERROR(recorded);
  if (code == TESSERA_UNSUPPORTED) return GraphHandle();
  TESSERA_RETURN_IF_ERROR(device_.Check(code, "recording a graph"));
  return GraphHandle(&api, graph);
}

absl::Status Runner::EnqueueSteps(const Steps& steps, size_t begin, size_t end) {
  for (size_t at = begin; at < end; ++at) TESSERA_RETURN_IF_ERROR(EnqueueLabelled(steps[at]));
  return absl::OkStatus();
}

absl::Status Runner::EnqueueLabelled(const Step& step) {
  label_ = &program().labels[step.label];
  context_.SetOp(*label_, /*waiting=*/false);
  const absl::Status status =
      std::visit([this](const auto& what) { return Enqueue(what); }, step.what);
  return status.ok() ? status : Annotate(status, program().labels[step.label]);
}

absl::Status Runner::Enqueue(const program::LoopStep& step) {
  int64_t& iteration = iterations_[step.number];
  for (iteration = 0; step.condition >= 0 || iteration < step.trip_count; ++iteration) {
    TESSERA_RETURN_IF_ERROR(context_.cancel->status());
    if (step.condition >= 0) {
      TESSERA_ASSIGN_OR_RETURN(const uint8_t goes_on, ReadAs<uint8_t>(step.condition));
      if (goes_on == 0) break;
    }
    TESSERA_RETURN_IF_ERROR(EnqueueList(step.body, /*graphs=*/nullptr));
  }
  return absl::OkStatus();
}

absl::Status Runner::Enqueue(const program::BranchStep& step) {
  TESSERA_ASSIGN_OR_RETURN(const int32_t index, ReadAs<int32_t>(step.index));
  const auto last = static_cast<int64_t>(step.branches.size()) - 1;
  return EnqueueList(step.branches[std::clamp<int64_t>(index, 0, last)], /*graphs=*/nullptr);
}

// Returns the value that the steps before have written to the slot, once they have ended.
template <class T>
absl::StatusOr<T> Runner::ReadAs(int slot) {
  TESSERA_RETURN_IF_ERROR(host_.drain(TakeCollectives()));
  std::byte bytes[sizeof(T)];
  TESSERA_RETURN_IF_ERROR(host_.to_host(bytes, AddressOf(slot)));
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// ---- Steps on the compute stream. ---------------------------------------------------------------

uint64_t Runner::AddressOf(int slot_index) const {
  const Slot& slot = program().slots[slot_index];
  uint64_t address = slot.offset;
  switch (slot.kind) {
    case Slot::Kind::kArgument:
      address += memory_.arguments[slot.index];
      break;
    case Slot::Kind::kResult:
      address += memory_.results[slot.index];
      break;
    case Slot::Kind::kConstant:
      address += executable_.constants[slot.index]->address();
      break;
    case Slot::Kind::kArena:
      address += memory_.arena;
      break;
  }
  for (const auto& [loop, stride] : slot.loop_strides) address += iterations_[loop] * stride;
  return address;
}

// Launches a kernel. An operand that may be unaligned, such as a row of a larger array, is first
// copied to an aligned address. A result that may be unaligned is copied back afterwards.
absl::Status Runner::Enqueue(const program::KernelStep& step) {
  const codegen::GpuKernel& kernel = executable_.code.kernels[step.kernel];
  const std::vector<codegen::Param>& params = program().kernels[step.kernel].params;
  std::vector<uint64_t> args;
  struct CopyBack {
    uint64_t to, from;
    int64_t bytes;
  };
  std::vector<CopyBack> copies_back;
  uint64_t aligned =
      memory_.arena + Arena::RoundUp(program().arena_bytes) + executable_.matmul_bytes;
  for (size_t i = 0; i < step.slots.size(); ++i) {
    const Slot& slot = program().slots[step.slots[i]];
    uint64_t address = AddressOf(step.slots[i]);
    if (MayBeUnaligned(slot)) {
      TESSERA_RETURN_IF_ERROR(Copy(compute_stream(), aligned, address, slot.bytes()));
      if (params[i].output) copies_back.push_back({address, aligned, slot.bytes()});
      address = aligned;
      aligned += Arena::RoundUp(slot.bytes());
    }
    args.push_back(address);
  }
  TESSERA_RETURN_IF_ERROR(device_.Check(
      device_.api().launch(compute_stream(), executable_.module.get(), kernel.entry.c_str(),
                           kernel.grid, kernel.block, kernel.shared_bytes, args.data(),
                           static_cast<int32_t>(args.size())),
      "a kernel"));
  for (const auto& [to, from, bytes] : copies_back) {
    TESSERA_RETURN_IF_ERROR(Copy(compute_stream(), to, from, bytes));
  }
  return absl::OkStatus();
}

// Runs a matmul. Unaligned operands are copied before it, and an unaligned result after it, as for
// kernels.
absl::Status Runner::Enqueue(const program::MatmulStep& step) {
  const MatmulRanges ranges = RangesOf(step);
  const uint64_t scratch = memory_.arena + Arena::RoundUp(program().arena_bytes);
  uint64_t aligned = scratch + executable_.matmul_bytes;
  // Sets the address of an operand. Returns whether it is the address of an aligned copy.
  const auto place = [&](const SlotRange& range, uint64_t* address) {
    *address = AddressOf(range.slot) + range.offset;
    if (!MayBeUnaligned(program().slots[range.slot], range.offset)) return false;
    *address = aligned;
    aligned += Arena::RoundUp(range.bytes);
    return true;
  };
  uint64_t a = 0, b = 0, c = 0;
  for (const auto& [range, address] : {std::pair(&ranges.a, &a), std::pair(&ranges.b, &b)}) {
    if (!place(*range, address)) continue;
    TESSERA_RETURN_IF_ERROR(
        Copy(compute_stream(), *address, AddressOf(range->slot) + range->offset, range->bytes));
  }
  const bool copy_back = place(ranges.c, &c);
  TESSERA_RETURN_IF_ERROR(device_.Check(
      device_.api().matmul_run(compute_stream(), executable_.matmuls.at(step.shape).get(), a, b, c,
                               scratch),
      "a product"));
  if (!copy_back) return absl::OkStatus();
  return Copy(compute_stream(), AddressOf(ranges.c.slot), c, ranges.c.bytes);
}

absl::Status Runner::Enqueue(const program::CopyStep& step) {
  const uint64_t to = AddressOf(step.out), from = AddressOf(step.in);
  // This is so if the argument was donated to the result.
  if (to == from) return absl::OkStatus();
  return Copy(compute_stream(), to, from, program().slots[step.in].bytes());
}
absl::Status Runner::Copy(tessera_stream* stream, uint64_t to, uint64_t from, int64_t bytes) {
  return device_.Check(device_.api().copy(stream, to, from, bytes), "a copy");
}

absl::Status Runner::Enqueue(const program::AxisIndexStep& step) {
  const auto index =
      static_cast<int32_t>(program().mesh.IndexAlong(context_.mesh_device, step.axes));
  const uint64_t from = resources_.axis_indices.at(index)->address();
  return Copy(compute_stream(), AddressOf(step.out), from, sizeof(index));
}

// Programs for accelerators have no sort steps, because their BuildOptions::sort_scratch_bytes is
// null. The host sorts (HostStep::sort).
absl::Status Runner::Enqueue(const program::SortStep&) {
  return MakeError(ErrorKind::kInternal, "devices have no routine that sorts");
}

// Waits for the device, and then computes the step: by the routine that sorts, in a process that
// can be killed, or on the threads for host steps. The cancellation flag is polled between the
// parts of the last.
absl::Status Runner::Enqueue(const program::HostStep& step) {
  TESSERA_RETURN_IF_ERROR(host_.drain(TakeCollectives()));
  const auto read = [this](int slot, absl::Span<std::byte> to) {
    return host_.to_host(to, AddressOf(slot));
  };
  const auto write = [this](int slot, absl::Span<const std::byte> from) {
    return host_.to_device(AddressOf(slot), from);
  };
  if (step.sort)
    return program::EvaluateBy(
        [&](std::vector<ir::Array> in) { return SortOnHost(*step.sort, in); }, step, read, write);
  if (step.is_long && host_.long_steps != nullptr)
    return program::EvaluateBy(
        [&](std::vector<ir::Array> in) { return EvaluateElsewhere(step, std::move(in)); }, step,
        read, write);
  ir::EvalOptions options;
  options.device = context_.mesh_device;
  options.check_cancel = [this] { return context_.cancel->status(); };
  options.parallel_for = [this](int64_t n, int64_t cost_each,
                                absl::FunctionRef<void(int64_t, int64_t)> work) {
    ParallelFor(
        host_.threads(), host_.num_threads, n, cost_each, kHostStepGrain,
        [this] { return context_.cancel->cancelled(); }, work);
    return context_.cancel->status();
  };
  return program::Evaluate(step, std::move(options), read, write);
}

absl::StatusOr<std::vector<ir::Array>> Runner::SortOnHost(const SortShape& shape,
                                                          const std::vector<ir::Array>& in) {
  std::vector<ir::Array> out;
  std::vector<const std::byte*> operands;
  std::vector<std::byte*> results;
  for (const ir::Array& array : in) operands.push_back(array.data());
  for (size_t i = 0; i < shape.num_results(); ++i) {
    const ir::Type type = shape.result(i);
    out.emplace_back(type.dtype, type.shape);
  }
  for (ir::Array& array : out) results.push_back(array.MutableData());
  const std::shared_ptr<std::byte[]> scratch =
      NewHostMemory(SortScratchBytes(shape, host_.num_threads));
  Sort(shape, {operands, results, scratch.get()}, host_.threads(), host_.num_threads,
       [this] { return context_.cancel->cancelled(); });
  TESSERA_RETURN_IF_ERROR(context_.cancel->status());
  return out;
}

absl::StatusOr<std::vector<ir::Array>> Runner::EvaluateElsewhere(const program::HostStep& step,
                                                                 std::vector<ir::Array> in) {
  const auto size = [](const ir::Array& array) { return static_cast<size_t>(array.num_bytes()); };
  std::vector<ir::Array> out;
  for (const ir::Type& t : step.function->result_types()) out.emplace_back(t.dtype, t.shape);
  std::vector<absl::Span<const std::byte>> operands;
  std::vector<absl::Span<std::byte>> results;
  for (const ir::Array& array : in) operands.push_back({array.data(), size(array)});
  for (ir::Array& array : out) results.push_back({array.MutableData(), size(array)});
  TESSERA_RETURN_IF_ERROR(host_.long_steps->Evaluate(step.function, context_, operands, results));
  return out;
}

// Runs a collective in a group of one device, where the result is a copy of the operand.
absl::Status Runner::Enqueue(const program::CollectiveStep& step) {
  const uint64_t in = AddressOf(step.in), out = AddressOf(step.out);
  const int64_t bytes = step.elements * ir::ByteWidth(step.dtype);
  if (ir::InfoOf(step.kind).paired && step.pairs.empty()) {
    return device_.Check(device_.api().fill_zero(compute_stream(), out, bytes), "zeros");
  }
  return Copy(compute_stream(), out, in, bytes);
}

// ---- Collectives of several devices. ------------------------------------------------------------

absl::StatusOr<EventHandle> Runner::EnqueueCollective(const program::CollectiveStep& step) {
  if (compute_advanced_) {
    TESSERA_ASSIGN_OR_RETURN(const EventHandle before,
                             device_.RecordEvent(resources_.compute_stream));
    TESSERA_RETURN_IF_ERROR(MakeStreamWait(collective_stream(), before));
    compute_advanced_ = false;
  }
  collectives_enqueued_ = true;
  TESSERA_RETURN_IF_ERROR(Exchange(step));
  return device_.RecordEvent(resources_.collective_stream);
}

// Enqueues a collective of several devices on the collective stream and waits until the library has
// enqueued it, which may take as long as its peers do. Before the call, the collective is added to
// the watched ones, so that it is aborted with the launch even if the call fails. In a permute, a
// rank without a source gets zeros, and a rank that sends to itself makes a plain copy instead of a
// call of the library.
absl::Status Runner::Exchange(const program::CollectiveStep& step) {
  const uint64_t in = AddressOf(step.in), out = AddressOf(step.out);
  const int64_t bytes = step.elements * ir::ByteWidth(step.dtype);
  const std::vector<int> group = context_.GroupRanks(program().mesh, step.axes);
  std::vector<int> ranks = group;
  std::sort(ranks.begin(), ranks.end());
  CallKey key{context_.launch, call_numbers_.Next(ranks), *label_, std::string(context_.program)};
  TESSERA_ASSIGN_OR_RETURN(const GroupCommRef comm,
                           resources_.group_comms->GetOrCreate(context_, ranks, key));
  // The rank of the communicator at each position of the group.
  std::vector<int32_t> order;
  int position = 0;  // that of this device
  for (const int rank : group) {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
    if (at == comm->position) position = static_cast<int>(order.size());
    order.push_back(static_cast<int32_t>(at));
  }
  tessera_collective collective = {.kind = ApiValue(step.kind),
                                   .dtype = ApiValue(step.dtype),
                                   .reduce = ApiValue(step.reduce),
                                   .source = -1,
                                   .target = -1,
                                   .in = in,
                                   .out = out,
                                   .elements = step.elements,
                                   .order = group == ranks ? nullptr : order.data()};
  for (const auto& [from, to] : step.pairs) {
    if (from == position) collective.target = to;
    if (to == position) collective.source = from;
  }
  if (ir::InfoOf(step.kind).paired && collective.source < 0) {
    TESSERA_RETURN_IF_ERROR(
        device_.Check(device_.api().fill_zero(collective_stream(), out, bytes), "zeros"));
  }
  const bool to_itself = collective.source == position && collective.target == position;
  if (to_itself && step.kind == ir::CollectiveKind::kPermute)
    return Copy(collective_stream(), out, in, bytes);
  WatchedCollective watched;
  watched.label = *label_;
  watched.key = std::move(key);
  watched.kind = step.kind;
  watched.in_bytes = ir::InfoOf(step.kind).in == ir::BlockCount::kEach
                         ? bytes * static_cast<int64_t>(group.size())
                         : bytes;
  watched.comm = comm;
  TESSERA_ASSIGN_OR_RETURN(watched.begin, device_.RecordEvent(resources_.collective_stream));
  // The collective is added even if the call fails, because the part of it that was enqueued must
  // be aborted.
  collectives_.push_back(std::move(watched));
  const int code = device_.api().collective(comm->handle.get(), collective_stream(), &collective);
  if (code == TESSERA_PEER && comm->IsAbortedAnywhere(context_.collectives))
    return comm->AbortedError(*label_);
  if (code != TESSERA_NOT_READY) TESSERA_RETURN_IF_ERROR(device_.Check(code, "an exchange"));
  TESSERA_RETURN_IF_ERROR(resources_.group_comms->AwaitReady(*comm, context_, *label_));
  TESSERA_ASSIGN_OR_RETURN(collectives_.back().end,
                           device_.RecordEvent(resources_.collective_stream));
  return absl::OkStatus();
}

}  // namespace tessera::worker::device
