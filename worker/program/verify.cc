// Checks the rules of step_program.h, on which backends rely. Backends and tests call Verify on the
// program that Build returns, so a fault is a bug of Build and is reported as INTERNAL. Verify
// looks only at the program (memory layout and order of steps), not at how Build chose it.
#include "worker/program/verify.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/program/overlap.h"
#include "worker/program/row_tile.h"

namespace tessera::worker::program {
namespace {

using ir::DType;

constexpr int64_t kOnCondition = -1;  // the trip count of a loop with a condition

template <class... Parts>
absl::Status Fault(const Parts&... parts) {
  return MakeError(ErrorKind::kInternal, absl::StrCat("device program: ", parts...));
}

class Verifier {
 public:
  explicit Verifier(const StepProgram& program) : p_(program) {}

  absl::Status Run() {
    if (p_.num_loops < 0) return Fault("the program has a negative number of loops");
    trip_counts_.assign(p_.num_loops, 0);
    ForEachStep(p_.steps, [&](const Step& step) {
      const auto* loop = std::get_if<LoopStep>(&step.what);
      if (loop != nullptr && loop->number >= 0 && loop->number < p_.num_loops)
        trip_counts_[loop->number] = loop->condition < 0 ? loop->trip_count : kOnCondition;
    });
    for (size_t k = 0; k < p_.kernels.size(); ++k)
      TESSERA_RETURN_IF_ERROR(Annotate(codegen::Verify(p_.kernels[k]), absl::StrCat("kernel ", k)));
    for (size_t i = 0; i < p_.slots.size(); ++i)
      TESSERA_RETURN_IF_ERROR(Annotate(CheckSlot(p_.slots[i]), absl::StrCat("slot ", i)));
    for (size_t i = 0; i < p_.results.size(); ++i)
      TESSERA_RETURN_IF_ERROR(
          Annotate(CheckResult(static_cast<int>(i)), absl::StrCat("result ", i)));
    std::vector<int> loops;
    TESSERA_RETURN_IF_ERROR(CheckSteps(p_.steps, &loops));
    // Conflicts and CheckDonations rely on the checks above.
    const Conflicts conflicts(p_);
    TESSERA_RETURN_IF_ERROR(CheckOrder(conflicts, p_.steps));
    TESSERA_RETURN_IF_ERROR(CheckDonations(conflicts));
    return CheckRowTiles(p_);
  }

 private:
  // Returns the size in bytes of the argument, result, constant or arena of which the slot is a
  // part.
  absl::StatusOr<int64_t> WholeBytes(const Slot& slot) const {
    const auto in = [&](size_t count) {
      return slot.index >= 0 && static_cast<size_t>(slot.index) < count;
    };
    switch (slot.kind) {
      case Slot::Kind::kArgument:
        if (!in(p_.arguments.size())) return Fault("there is no argument ", slot.index);
        return p_.arguments[slot.index].num_bytes();
      case Slot::Kind::kResult:
        if (!in(p_.results.size())) return Fault("there is no result ", slot.index);
        return p_.results[slot.index].buffer.num_bytes();
      case Slot::Kind::kConstant:
        if (!in(p_.constants.size())) return Fault("there is no constant ", slot.index);
        return p_.constants[slot.index].num_bytes();
      case Slot::Kind::kArena:
        break;
    }
    return p_.arena_bytes;
  }

  absl::Status CheckSlot(const Slot& slot) const {
    TESSERA_ASSIGN_OR_RETURN(const int64_t whole, WholeBytes(slot));
    int64_t low = slot.offset, high = slot.offset + slot.bytes();
    for (const auto& [loop, stride] : slot.loop_strides) {
      if (loop < 0 || loop >= p_.num_loops) return Fault("there is no loop ", loop);
      if (trip_counts_[loop] == kOnCondition)
        return Fault("the slot moves with loop ", loop,
                     ", which has a condition instead of a trip count");
      (stride < 0 ? low : high) += stride * std::max<int64_t>(trip_counts_[loop] - 1, 0);
    }
    if (slot.elements < 0 || low < 0 || high > whole)
      return Fault("the slot covers bytes ", low, " to ", high, " of memory that has ", whole,
                   " bytes");
    if (slot.kind == Slot::Kind::kArena && slot.loop_strides.empty() &&
        slot.offset % kAlignment != 0)
      return Fault("offset ", slot.offset, " is not a multiple of ", kAlignment);
    return absl::OkStatus();
  }

  absl::Status CheckResult(int i) const {
    const Result& result = p_.results[i];
    TESSERA_RETURN_IF_ERROR(CheckSlotIndex(result.slot));
    const Slot& slot = p_.slots[result.slot];
    if (slot.offset != 0 || !slot.loop_strides.empty() || slot.bytes() != result.buffer.num_bytes())
      return Fault("the slot does not cover the whole result");
    // A value that is returned twice lies in the memory of the first of these results.
    const bool is_in_result = slot.kind == Slot::Kind::kResult && slot.index <= i;
    if (!is_in_result && slot.kind != Slot::Kind::kArgument)
      return Fault("the slot lies neither in this or an earlier result nor in an argument");
    return absl::OkStatus();
  }

  absl::Status CheckSlotIndex(int slot) const {
    if (slot < 0 || static_cast<size_t>(slot) >= p_.slots.size())
      return Fault("there is no slot ", slot);
    return absl::OkStatus();
  }
  // Checks that a step inside `loops` may use the slot as `elements` elements of `dtype`. The slot
  // must have this dtype and this number of elements, or at least this number if `exact` is false.
  // If `is_written` is true, the slot must be neither an argument nor a constant. It may move only
  // with `loops`.
  absl::Status CheckSlotElements(int slot, DType dtype, int64_t elements, bool is_written,
                                 const std::vector<int>& loops, bool exact = true) const {
    TESSERA_RETURN_IF_ERROR(CheckSlotIndex(slot));
    const Slot& s = p_.slots[slot];
    if (s.dtype != dtype || (exact ? s.elements != elements : s.elements < elements))
      return Fault("s", slot, " has ", s.elements, " elements of ", ToAbsl(DTypeName(s.dtype)),
                   "; expected ", elements, " of ", ToAbsl(DTypeName(dtype)));
    if (is_written && (s.kind == Slot::Kind::kArgument || s.kind == Slot::Kind::kConstant))
      return Fault("s", slot, " is written, and is an argument or a constant");
    for (const LoopStride& by : s.loop_strides)
      if (std::find(loops.begin(), loops.end(), by.loop) == loops.end())
        return Fault("s", slot, " moves with loop ", by.loop, ", which does not run here");
    return absl::OkStatus();
  }

  // Checks that a step inside `loops` may use the slot as a value of this type.
  absl::Status CheckSlotType(int slot, const ir::Type& type, bool is_written,
                             const std::vector<int>& loops) const {
    const Carrier carrier = CarrierOf(type.dtype);
    return CheckSlotElements(slot, carrier.dtype,
                             type.num_elements() * carrier.carriers_per_element, is_written, loops);
  }

  // Returns whether the slots overlap in the same iteration. Two slots of which one moves with
  // another loop, or by another stride, do not count as overlapping.
  bool Overlap(int a, int b) const {
    const Slot &x = p_.slots[a], &y = p_.slots[b];
    if (x.kind != y.kind || (x.kind != Slot::Kind::kArena && x.index != y.index)) return false;
    // A slot that moves with a loop has other bytes in each iteration.
    if (x.loop_strides != y.loop_strides) return false;
    return x.offset < y.offset + y.bytes() && y.offset < x.offset + x.bytes();
  }

  absl::Status CheckSteps(const std::vector<Step>& steps, std::vector<int>* loops) {
    for (const Step& step : steps) {
      const int labels = static_cast<int>(p_.labels.size());
      if (step.label < 0 || step.label >= labels) return Fault("there is no label ", step.label);
      for (int label : step.fused_labels)
        if (label < 0 || label >= labels) return Fault("there is no label ", label);
      TESSERA_RETURN_IF_ERROR(Annotate(CheckStep(step, loops), p_.labels[step.label]));
    }
    return absl::OkStatus();
  }

  // Checks one step and the steps of its lists. `loops` are the loops around the step, the only
  // loops with which a slot of the step may move.
  absl::Status CheckStep(const Step& step, std::vector<int>* loops) {
    if (const auto* k = std::get_if<KernelStep>(&step.what)) return CheckKernel(*k, *loops);
    if (const auto* matmul = std::get_if<MatmulStep>(&step.what))
      return CheckMatmul(*matmul, *loops);
    if (const auto* sort = std::get_if<SortStep>(&step.what)) return CheckSort(*sort, *loops);
    if (const auto* collective = std::get_if<CollectiveStep>(&step.what))
      return CheckCollective(*collective, *loops);
    if (const auto* axis_index = std::get_if<AxisIndexStep>(&step.what))
      return CheckSlotElements(axis_index->out, DType::kS32, 1, /*is_written=*/true, *loops);
    if (const auto* copy = std::get_if<CopyStep>(&step.what)) return CheckCopy(*copy, *loops);
    if (const auto* h = std::get_if<HostStep>(&step.what)) return CheckHostStep(*h, *loops);
    if (const auto* b = std::get_if<BranchStep>(&step.what)) {
      TESSERA_RETURN_IF_ERROR(
          CheckSlotElements(b->index, DType::kS32, 1, /*is_written=*/false, *loops));
      if (b->branches.empty()) return Fault("the step has no branches");
      for (const std::vector<Step>& branch : b->branches)
        TESSERA_RETURN_IF_ERROR(CheckSteps(branch, loops));
      return absl::OkStatus();
    }
    const LoopStep& loop = std::get<LoopStep>(step.what);
    if (loop.number < 0 || loop.number >= p_.num_loops)
      return Fault("loop ", loop.number, " does not exist; the program has ", p_.num_loops,
                   " loops");
    if (loop.condition < 0 && loop.trip_count < 1)
      return Fault("loop ", loop.number, " has a trip count of ", loop.trip_count,
                   "; expected 1 or more");
    if (loop.condition >= 0)
      TESSERA_RETURN_IF_ERROR(
          CheckSlotElements(loop.condition, DType::kBool, 1, /*is_written=*/false, *loops));
    loops->push_back(loop.number);
    const absl::Status body = CheckSteps(loop.body, loops);
    loops->pop_back();
    return body;
  }

  absl::Status CheckCopy(const CopyStep& copy, const std::vector<int>& loops) const {
    TESSERA_RETURN_IF_ERROR(CheckSlotIndex(copy.in));
    TESSERA_RETURN_IF_ERROR(CheckSlotIndex(copy.out));
    const Slot& out = p_.slots[copy.out];
    TESSERA_RETURN_IF_ERROR(
        CheckSlotElements(copy.out, out.dtype, out.elements, /*is_written=*/true, loops));
    TESSERA_RETURN_IF_ERROR(
        CheckSlotElements(copy.in, out.dtype, out.elements, /*is_written=*/false, loops));
    if (Overlap(copy.in, copy.out))
      return Fault("the operand s", copy.in, " of a copy overlaps the result s", copy.out);
    return absl::OkStatus();
  }

  absl::Status CheckKernel(const KernelStep& k, const std::vector<int>& loops) const {
    if (k.kernel < 0 || static_cast<size_t>(k.kernel) >= p_.kernels.size())
      return Fault("there is no kernel ", k.kernel);
    const codegen::Kernel& kernel = p_.kernels[k.kernel];
    if (k.slots.size() != kernel.params.size())
      return Fault("the step has ", k.slots.size(), " slots; kernel ", k.kernel, " has ",
                   kernel.params.size(), " params");
    for (size_t i = 0; i < k.slots.size(); ++i) {
      const codegen::Param& param = kernel.params[i];
      TESSERA_RETURN_IF_ERROR(
          CheckSlotElements(k.slots[i], param.dtype, param.size, param.output, loops));
      for (size_t j = 0; j < i; ++j)
        if ((param.output || kernel.params[j].output) && Overlap(k.slots[i], k.slots[j]))
          return Fault("params ", j, " and ", i, " overlap, and one of them is written");
    }
    return absl::OkStatus();
  }

  absl::Status CheckMatmul(const MatmulStep& step, const std::vector<int>& loops) const {
    const MatmulShape& s = step.shape;
    if (s.allow_tf32 && (s.in != DType::kF32 || s.out != DType::kF32))
      return Fault("the matmul allows TF32, but its operands or its result are not f32");
    const int64_t sizes[2][3] = {{s.batch, s.m, s.k}, {s.batch, s.k, s.n}};
    const int64_t* strides[2] = {s.a_strides, s.b_strides};
    const int slots[2] = {step.a, step.b};
    const int64_t offsets[2] = {step.a_offset, step.b_offset};
    for (int i = 0; i < 2; ++i) {
      int64_t last = offsets[i];
      for (int d = 0; d < 3; ++d) {
        if (sizes[i][d] < 1 || strides[i][d] < (d == 0 ? 0 : 1))
          return Fault("operand ", i, " has a size or stride that is too small");
        last += strides[i][d] * (sizes[i][d] - 1);
      }
      if (offsets[i] < 0 || (strides[i][1] != 1 && strides[i][2] != 1))
        return Fault("operand ", i,
                     " begins before its slot, or neither its rows nor its columns are contiguous");
      TESSERA_RETURN_IF_ERROR(CheckSlotElements(slots[i], s.in, last + 1, /*is_written=*/false,
                                                loops, /*exact=*/false));
      if (Overlap(slots[i], step.c)) return Fault("operand ", i, " overlaps the product");
    }
    return CheckSlotElements(step.c, s.out, s.batch * s.m * s.n, /*is_written=*/true, loops);
  }

  // Checks the sizes and keys of a sort, and the types of its slots. The results and the scratch
  // memory must overlap neither one another nor the operands. The routines of backends assume all
  // of this.
  absl::Status CheckSort(const SortStep& s, const std::vector<int>& loops) const {
    const SortShape& shape = s.shape;
    TESSERA_RETURN_IF_ERROR(CheckSortShape(shape, s.in, s.out));
    TESSERA_RETURN_IF_ERROR(CheckSlotIndex(s.scratch));
    TESSERA_RETURN_IF_ERROR(CheckSlotElements(s.scratch, DType::kU8, p_.slots[s.scratch].elements,
                                              /*is_written=*/true, loops));
    std::vector<int> written = {s.scratch};
    for (size_t i = 0; i < s.out.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(CheckSlotType(s.out[i], shape.result(i), /*is_written=*/true, loops));
      written.push_back(s.out[i]);
    }
    for (size_t i = 0; i < s.in.size(); ++i)
      TESSERA_RETURN_IF_ERROR(
          CheckSlotType(s.in[i], shape.operand(i), /*is_written=*/false, loops));
    for (size_t i = 0; i < written.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        if (Overlap(written[i], written[j]))
          return Fault("s", written[j], " overlaps s", written[i]);
      for (int in : s.in)
        if (Overlap(in, written[i])) return Fault("s", in, " overlaps s", written[i]);
    }
    return absl::OkStatus();
  }

  // Checks the sizes and keys of a sort, and its numbers of slots.
  absl::Status CheckSortShape(const SortShape& shape, const std::vector<int>& in,
                              const std::vector<int>& out) const {
    if (shape.outer < 1 || shape.inner < 1 || shape.n < 1 || shape.n > SortShape::kRowMax ||
        shape.kept < 1 || shape.kept > shape.n)
      return Fault("the sort has shape ", shape.outer, " x ", shape.n, " x ", shape.inner,
                   " and keeps ", shape.kept,
                   " elements of each row; expected 1 or more of each, at most ",
                   SortShape::kRowMax, " elements in a row, and at most a whole row kept");
    if (shape.num_keys < 1 || static_cast<size_t>(shape.num_keys) > shape.dtypes.size())
      return Fault("the sort has ", shape.num_keys, " keys; expected 1 to its number of operands, ",
                   shape.dtypes.size());
    for (int k = 0; k < shape.num_keys; ++k)
      if (ir::IsComplex(shape.dtypes[k])) return Fault("key ", k, " of the sort is complex");
    if (in.size() != shape.dtypes.size() || out.size() != shape.num_results())
      return Fault("the sort has ", in.size(), " operand slots and ", out.size(),
                   " result slots; expected ", shape.dtypes.size(), " and ", shape.num_results());
    return absl::OkStatus();
  }

  absl::Status CheckCollective(const CollectiveStep& step, const std::vector<int>& loops) const {
    const int64_t n = step.group_size;
    const ir::CollectiveInfo& info = ir::InfoOf(step.kind);
    for (const std::string& axis : step.axes)
      if (!p_.mesh.Has(axis)) return Fault("the mesh has no axis ", axis);
    const int64_t devices = p_.mesh.SizeOf(step.axes);
    if (n != devices)
      return Fault("the collective has a group of ", n, " devices; its axes have ", devices);
    TESSERA_RETURN_IF_ERROR(CheckSlotElements(
        step.in, step.dtype, step.elements * (info.in == ir::BlockCount::kEach ? n : 1),
        /*is_written=*/false, loops));
    TESSERA_RETURN_IF_ERROR(CheckSlotElements(
        step.out, step.dtype, step.elements * (info.out == ir::BlockCount::kEach ? n : 1),
        /*is_written=*/true, loops));
    if (Overlap(step.in, step.out)) return Fault("s", step.in, " overlaps s", step.out);
    return absl::OkStatus();
  }

  // Checks that a host step has a slot of the right type for each param and result of its function,
  // that no result overlaps a param and, if the step is a sort, that the shape of the sort has the
  // same types.
  absl::Status CheckHostStep(const HostStep& h, const std::vector<int>& loops) const {
    if (h.function == nullptr || h.in.size() != static_cast<size_t>(h.function->num_params) ||
        h.out.size() != h.function->results.size())
      return Fault(
          "the host step has no function, or the function has another number of params or "
          "results than the step has slots");
    for (size_t i = 0; i < h.in.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(
          CheckSlotType(h.in[i], h.function->types[i], /*is_written=*/false, loops));
    }
    for (size_t i = 0; i < h.out.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(CheckSlotType(h.out[i], h.function->type(h.function->results[i]),
                                            /*is_written=*/true, loops));
      for (int in : h.in)
        if (Overlap(in, h.out[i])) return Fault("s", in, " overlaps s", h.out[i]);
    }
    if (!h.sort) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(CheckSortShape(*h.sort, h.in, h.out));
    for (size_t i = 0; i < h.in.size(); ++i)
      TESSERA_RETURN_IF_ERROR(
          CheckSlotType(h.in[i], h.sort->operand(i), /*is_written=*/false, loops));
    for (size_t i = 0; i < h.out.size(); ++i)
      TESSERA_RETURN_IF_ERROR(
          CheckSlotType(h.out[i], h.sort->result(i), /*is_written=*/true, loops));
    return absl::OkStatus();
  }

  // Checks that no step uses the memory of a collective that may still be running when the step
  // begins.
  absl::Status CheckOrder(const Conflicts& conflicts, const std::vector<Step>& steps) const {
    int last_ended = -1;  // the collectives up to this step have ended
    std::vector<std::pair<int, Conflicts::Use>> collectives;
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const Step& step = steps[at];
      const std::string& label = p_.labels[step.label];
      if (step.after != -1 && (IsCommunicatingStep(step) || step.after < 0 || step.after >= at ||
                               !IsCommunicatingStep(steps[step.after])))
        return Fault(label, ": the step comes after step ", step.after,
                     ", which is not an earlier exchange");
      if (IsCommunicatingStep(step)) {
        collectives.emplace_back(at, conflicts.UseOf(step));
        continue;
      }
      last_ended = std::max(last_ended, step.after);
      const Conflicts::Use use = conflicts.UseOf(step);
      for (const auto& [collective, collective_use] : collectives)
        if (collective > last_ended && conflicts.Between(use, collective_use))
          return Fault(label, ": the step does not wait for step ", collective,
                       ", an exchange with which it shares memory");
      absl::Status inside;
      ForEachList(
          step, [&](const std::vector<Step>& list) { inside.Update(CheckOrder(conflicts, list)); });
      TESSERA_RETURN_IF_ERROR(inside);
      if (ContainsCollective(step)) last_ended = at;
    }
    return absl::OkStatus();
  }

  // ---- Donation. ----

  // The uses of arguments and results, as indices into StepProgram::steps. A step inside a list
  // counts as the top-level step that contains it.
  struct LastReadsAndFirstWrites {
    // By argument: the last step that reads the argument, or -1 if no step does. It is the number
    // of steps if the argument is itself a result.
    std::vector<int> last_read;
    // By result: the first step that writes the result, or the number of steps if no step does.
    std::vector<int> first_write;
  };
  LastReadsAndFirstWrites LastReadsAndFirstWritesOf(const Conflicts& conflicts) const {
    const int steps = static_cast<int>(p_.steps.size());
    LastReadsAndFirstWrites uses{std::vector<int>(p_.arguments.size(), -1),
                                 std::vector<int>(p_.results.size(), steps)};
    for (int at = 0; at < steps; ++at) {
      const Conflicts::Use use = conflicts.UseOf(p_.steps[at]);
      for (int s : use.reads)
        if (p_.slots[s].kind == Slot::Kind::kArgument) uses.last_read[p_.slots[s].index] = at;
      for (int s : use.writes) {
        if (p_.slots[s].kind != Slot::Kind::kResult) continue;
        int& first = uses.first_write[p_.slots[s].index];
        first = std::min(first, at);
      }
    }
    for (const Result& r : p_.results)
      if (p_.slots[r.slot].kind == Slot::Kind::kArgument)
        uses.last_read[p_.slots[r.slot].index] = steps;
    return uses;
  }

  absl::Status CheckDonations(const Conflicts& conflicts) const {
    const LastReadsAndFirstWrites uses = LastReadsAndFirstWritesOf(conflicts);
    for (const Donation& donation : p_.donations)
      TESSERA_RETURN_IF_ERROR(Annotate(
          CheckDonation(donation, uses),
          absl::StrCat("result ", donation.result, " in place of argument ", donation.argument)));
    for (const Step& step : p_.steps) TESSERA_RETURN_IF_ERROR(CheckInPlaceParams(step));
    return absl::OkStatus();
  }

  absl::Status CheckDonation(const Donation& donation, const LastReadsAndFirstWrites& uses) const {
    const auto in = [](int i, size_t count) { return i >= 0 && static_cast<size_t>(i) < count; };
    if (!in(donation.argument, p_.arguments.size()) || !in(donation.result, p_.results.size()))
      return Fault("there is no such argument or result");
    const Result& result = p_.results[donation.result];
    if (!IsPartOf(result.slot, Slot::Kind::kResult, donation.result))
      return Fault("the result has no memory of its own");
    if (p_.arguments[donation.argument].num_bytes() != result.buffer.num_bytes())
      return Fault("the argument and the result differ in size");
    const int read = uses.last_read[donation.argument], written = uses.first_write[donation.result];
    if (read < written) return absl::OkStatus();
    if (read > written || read == static_cast<int>(p_.steps.size()))
      return Fault("the argument is read or returned after the first write of the result");
    if (!WritesInPlace(p_.steps[read], donation))
      return Fault(p_.labels[p_.steps[read].label],
                   " does not overwrite the argument element for element");
    return absl::OkStatus();
  }

  bool IsPartOf(int slot, Slot::Kind kind, int index) const {
    return p_.slots[slot].kind == kind && p_.slots[slot].index == index;
  }
  // Returns whether the slot is a whole buffer of this many bytes.
  bool IsWhole(int slot, int64_t bytes) const {
    const Slot& s = p_.slots[slot];
    return s.offset == 0 && s.loop_strides.empty() && s.bytes() == bytes;
  }

  // Returns whether the step writes the result in place of the argument, element for element.
  bool WritesInPlace(const Step& step, const Donation& donation) const {
    const int64_t bytes = p_.arguments[donation.argument].num_bytes();
    if (const auto* copy = std::get_if<CopyStep>(&step.what))
      return IsWhole(copy->in, bytes) && IsWhole(copy->out, bytes);
    const auto* k = std::get_if<KernelStep>(&step.what);
    if (k == nullptr) return false;
    const codegen::Kernel& kernel = p_.kernels[k->kernel];
    std::vector<int> ins, outs;
    for (size_t i = 0; i < k->slots.size(); ++i) {
      if (IsPartOf(k->slots[i], Slot::Kind::kArgument, donation.argument))
        ins.push_back(static_cast<int>(i));
      if (IsPartOf(k->slots[i], Slot::Kind::kResult, donation.result))
        outs.push_back(static_cast<int>(i));
    }
    if (outs.size() != 1 || !IsWhole(k->slots[outs[0]], bytes)) return false;
    return std::all_of(ins.begin(), ins.end(), [&](int i) {
      return kernel.params[i].in_place && IsWhole(k->slots[i], bytes) &&
             codegen::MayGoInPlace(kernel, i, outs[0]);
    });
  }

  // Checks that every param marked `in_place` belongs to a donation.
  absl::Status CheckInPlaceParams(const Step& step) const {
    absl::Status inside;
    ForEachList(step, [&](const std::vector<Step>& list) {
      for (const Step& inner : list) inside.Update(CheckInPlaceParams(inner));
    });
    TESSERA_RETURN_IF_ERROR(inside);
    const auto* k = std::get_if<KernelStep>(&step.what);
    if (k == nullptr) return absl::OkStatus();
    for (size_t i = 0; i < k->slots.size(); ++i) {
      if (!p_.kernels[k->kernel].params[i].in_place) continue;
      const bool has_donation =
          std::any_of(p_.donations.begin(), p_.donations.end(), [&](const Donation& donation) {
            return IsPartOf(k->slots[i], Slot::Kind::kArgument, donation.argument) &&
                   WritesInPlace(step, donation);
          });
      if (!has_donation)
        return Fault(p_.labels[step.label], ": param ", i,
                     " is marked in_place, but is overwritten by no result");
    }
    return absl::OkStatus();
  }

  const StepProgram& p_;
  std::vector<int64_t> trip_counts_;
};

}  // namespace

absl::Status Verify(const StepProgram& program) { return Verifier(program).Run(); }

}  // namespace tessera::worker::program
