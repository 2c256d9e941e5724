// The step program: a device program after fusion, scheduling and buffer assignment. It says which
// kernels, matmuls, collectives and loops one device runs, in which order, and on which memory.
//
// Build (build.h) makes it from a function at local types; the CPU backend and the backend of
// accelerators run it. It consists of plain values and is immutable once built, so any thread may
// read it. Verify (verify.h) checks the rules that the comments here state.
//
// Memory: a slot is the location of a value: in an argument, in a result, in a constant, or in the
// arena, the one block of memory that a run has for all other values. Arguments, results,
// constants, the arena and the slots in it are aligned to kAlignment; a slot with loop strides may
// begin at any element. Slots that are in use at the same time do not overlap, unless they are
// exactly the same bytes. Steps write only their results. Arguments and constants are never
// written, except that a result may alias an argument (Donation).
//
// Order: steps run in order, but collectives overlap with other steps as Step::after says. Only
// CollectiveStep and AxisIndexStep depend on the device.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/collective.h"
#include "ir/eval/eval.h"
#include "ir/mesh.h"
#include "ir/program.h"
#include "worker/codegen/kernel.h"
#include "worker/program/matmul.h"
#include "worker/program/sort.h"

namespace tessera::worker::program {

inline constexpr int64_t kAlignment = 64;

// In iteration i of loop number `loop`, the slot begins i * stride bytes further.
struct LoopStride {
  int loop = 0;
  int64_t stride = 0;
  bool operator==(const LoopStride&) const = default;
};

// How elements of a dtype lie in slots, which have only computable dtypes: each element is stored
// as `carriers_per_element` elements of `dtype`. A dtype without kernels is moved as a dtype that
// has kernels. A complex number is a pair of floats, and complex sums add such pairs.
struct Carrier {
  ir::DType dtype = ir::DType::kF32;
  int64_t carriers_per_element = 1;
};
Carrier CarrierOf(ir::DType dtype);

struct Slot {
  enum class Kind : uint8_t { kArgument, kResult, kConstant, kArena };
  Kind kind = Kind::kArena;
  int index = 0;       // which argument, result or constant
  int64_t offset = 0;  // bytes from the beginning of the argument, result, constant or arena
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 0;
  std::vector<LoopStride> loop_strides;

  int64_t bytes() const { return elements * ir::ByteWidth(dtype); }
  bool operator==(const Slot&) const = default;
};

// Runs a kernel of StepProgram::kernels on slots, one for each param.
struct KernelStep {
  int kernel = 0;
  std::vector<int> slots;
  int tile = -1;  // index of its tile in StepProgram::tiles, or -1
};

// Consecutive kernel steps that a host may run on a block of rows at a time (row_tile.h).
struct RowTile {
  int64_t rows = 0;
};

// A batched matmul c = a b. The operands begin at element offsets in their slots.
struct MatmulStep {
  MatmulShape shape;
  int a = 0, b = 0, c = 0;
  int64_t a_offset = 0, b_offset = 0;
};

// Puts rows in order. `scratch` has as many bytes as BuildOptions::sort_scratch_bytes says. The
// content of `scratch` does not matter before or after the step.
struct SortStep {
  SortShape shape;
  std::vector<int> in, out;  // one slot for each operand, and one for each result
  int scratch = 0;
};

// A collective of the devices that differ along `axes`, in the order of Mesh::GroupOf, on
// contiguous blocks of `elements` elements. base/collective_kinds.def says how many blocks `in` and
// `out` have: one, or one for each device of the group.
struct CollectiveStep {
  ir::CollectiveKind kind = ir::CollectiveKind::kNone;
  ir::ReduceKind reduce = ir::ReduceKind::kNone;
  ir::AxisList axes;
  std::vector<std::pair<int, int>> pairs;  // kPermute: source and target, as positions in the group
  int group_size = 1;
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 0;
  int in = 0, out = 0;
};

// Writes the device's index along `axes`, as an s32.
struct AxisIndexStep {
  ir::AxisList axes;
  int out = 0;
};

// Copies the bytes. The slots do not overlap.
struct CopyStep {
  int in = 0, out = 0;
};

// An op without compiled code. The reference evaluator runs the function, which consists of this
// op, on the host. An accelerator copies the operands to the host before, and the results back
// after.
struct HostStep {
  ir::FunctionRef function;
  std::vector<int> in, out;
  // Whether the evaluation works for long between two polls of the cancellation flag. A backend
  // then evaluates the step where it can be stopped, if there is such a place
  // (worker/runtime/long_steps.h).
  bool is_long = false;
  // The sort that the function is, if it is one. A routine that sorts can then take the place of
  // the evaluation, with the same results.
  std::optional<SortShape> sort = std::nullopt;
};
// The largest cost, in multiplications, of the parts into which EvalOptions::parallel_for cuts the
// work of a host step. The cancellation flag is polled between two parts, which take some tenths of
// a second each.
inline constexpr int64_t kHostPartMax = 1 << 30;

struct Step;
// Runs `body` `trip_count` times or, if it has a condition, as long as the bool in slot `condition`
// is true before an iteration. The cancellation flag is polled at each back-edge.
struct LoopStep {
  int number = 0;          // LoopStride::loop names it; no slot moves with a loop on a condition
  int64_t trip_count = 0;  // at least 1, unless there is a condition
  int condition = -1;      // slot of the condition, or -1 if there is none
  std::vector<Step> body;
};

// Runs one of the branches: the one whose number is in slot `index`, an s32 that is clamped to the
// existing branches.
struct BranchStep {
  int index = 0;
  std::vector<std::vector<Step>> branches;
};

// A collective begins when all steps before it have ended. Any other step begins when two groups of
// earlier steps have ended: the steps that are not collectives, and the collectives up to `after`.
// Later collectives may still be running. A step that needs the host (NeedsHost) begins when all
// steps before it have ended. All steps have ended at the end of their list: of the program, of
// each loop iteration, or of a branch.
struct Step {
  // The index, in this step's list, of an earlier collective, or -1 if the step waits for none.
  int after = -1;
  // Indices into StepProgram::labels: of the step's main op, and of all its ops.
  int label = 0;
  std::vector<int> fused_labels;
  std::variant<KernelStep, MatmulStep, SortStep, CollectiveStep, AxisIndexStep, CopyStep, HostStep,
               LoopStep, BranchStep>
      what;
};

struct Buffer {
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;
  int64_t num_bytes() const { return ir::MakeType(dtype, shape).num_bytes(); }
};
// The slot of result i is the whole memory of a result (result i itself, or an earlier one with the
// same memory), or the whole memory of an argument, which the result then shares.
struct Result {
  Buffer buffer;
  int slot = 0;
};

// An input-output alias: result `result` may reuse the memory of argument `argument` in a run that
// donates it. There are two cases. The result may be first written after the last read of the
// argument. Or the step that reads the argument last writes the result in place, element for
// element; this is a kernel whose param is marked `in_place`, or a copy, which then has nothing to
// do. If there are several donations of one argument, or to one result, a run uses at most one of
// them.
struct Donation {
  int argument = 0, result = 0;
  bool operator==(const Donation&) const = default;
};

struct StepProgram {
  ir::Mesh mesh;
  std::vector<Buffer> arguments;
  std::vector<Result> results;
  std::vector<ir::Array> constants;
  std::vector<codegen::Kernel> kernels;  // distinct
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<RowTile> tiles;
  std::vector<std::string> labels;  // "psum (model.cc:41)"
  std::vector<Donation> donations;  // the most useful first
  int num_loops = 0;
  int64_t arena_bytes = 0;

  // The size of all arguments and results. Aliases do not matter: each array is counted separately.
  int64_t argument_and_result_bytes() const {
    int64_t bytes = 0;
    for (const Buffer& argument : arguments) bytes += argument.num_bytes();
    for (const Result& result : results) bytes += result.buffer.num_bytes();
    return bytes;
  }

  // Prints one line for each buffer, slot and step, and then the kernels.
  std::string ToString() const;
};

// Calls f(steps) for each list that the step has: the body of a loop, or the branches.
template <class StepType, class F>
void ForEachList(StepType& step, const F& f) {
  if (auto* loop = std::get_if<LoopStep>(&step.what)) f(loop->body);
  if (auto* branch = std::get_if<BranchStep>(&step.what))
    for (auto& list : branch->branches) f(list);
}

// Calls f(step) for every step in order, and after each step for the steps of its lists.
template <class Steps, class F>
void ForEachStep(Steps& steps, const F& f) {
  for (auto& step : steps) {
    f(step);
    ForEachList(step, [&](auto& list) { ForEachStep(list, f); });
  }
}

// Calls read(slot) and write(slot) for the slots that the step reads and writes. The arguments are
// references to the step's fields. The steps of its lists are not included.
template <class StepType, class Read, class Write>
void ForEachSlot(StepType& step, const std::vector<codegen::Kernel>& kernels, const Read& read,
                 const Write& write) {
  if (auto* k = std::get_if<KernelStep>(&step.what)) {
    for (size_t i = 0; i < k->slots.size(); ++i)
      kernels[k->kernel].params[i].output ? write(k->slots[i]) : read(k->slots[i]);
  } else if (auto* m = std::get_if<MatmulStep>(&step.what)) {
    read(m->a);
    read(m->b);
    write(m->c);
  } else if (auto* s = std::get_if<SortStep>(&step.what)) {
    for (auto& slot : s->in) read(slot);
    for (auto& slot : s->out) write(slot);
    write(s->scratch);
  } else if (auto* c = std::get_if<CollectiveStep>(&step.what)) {
    read(c->in);
    write(c->out);
  } else if (auto* p = std::get_if<AxisIndexStep>(&step.what)) {
    write(p->out);
  } else if (auto* c = std::get_if<CopyStep>(&step.what)) {
    read(c->in);
    write(c->out);
  } else if (auto* h = std::get_if<HostStep>(&step.what)) {
    for (auto& slot : h->in) read(slot);
    for (auto& slot : h->out) write(slot);
  } else if (auto* l = std::get_if<LoopStep>(&step.what)) {
    if (l->condition >= 0) read(l->condition);
  } else if (auto* b = std::get_if<BranchStep>(&step.what)) {
    read(b->index);
  }
}

// Returns whether the step is a collective among more than one device.
bool IsCommunicatingStep(const Step& step);
// Returns whether the step, or a step of its lists, is such a collective.
bool ContainsCollective(const Step& step);
// Returns whether the step, or a step of its lists, needs the host: the host runs it (HostStep), or
// reads a slot to decide which step is next (branches and loops with a condition).
bool NeedsHost(const Step& step);
// Runs a host step by the reference evaluator. `read` copies the bytes of a slot to the host's
// memory, and `write` copies the bytes of a result to its slot. Errors of `read` and `write` are
// returned.
using ReadSlot = absl::FunctionRef<absl::Status(int slot, absl::Span<std::byte> to)>;
using WriteSlot = absl::FunctionRef<absl::Status(int slot, absl::Span<const std::byte> from)>;
absl::Status Evaluate(const HostStep& step, ir::EvalOptions options, ReadSlot read,
                      WriteSlot write);
// Like Evaluate, but has `evaluate` return the results for the operands.
using EvaluateStep =
    absl::FunctionRef<absl::StatusOr<std::vector<ir::Array>>(std::vector<ir::Array> in)>;
absl::Status EvaluateBy(EvaluateStep evaluate, const HostStep& step, ReadSlot read,
                        WriteSlot write);
// Like Evaluate, but for slots in the host's memory, at `address`. Operands are read in their
// slots. Results are written to their slots directly if the op can do that, and are copied there
// otherwise.
absl::Status EvaluateInPlace(const HostStep& step, ir::EvalOptions options,
                             absl::FunctionRef<std::byte*(int slot)> address);

// Returns, for each result, the argument whose memory it reuses in a run that donates these
// arguments, or -1.
std::vector<int> ChooseDonations(const StepProgram& program, const std::vector<bool>& donated);

}  // namespace tessera::worker::program
