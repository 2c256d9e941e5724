// FindNativeLoops: turns loops of a step program into loops of kernels (codegen/kernel_loop.h).
// program_run.cc has them compiled and runs them, so that an iteration of small steps costs some
// nanoseconds.
#include "worker/cpu/native_loop.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/cpu/grain.h"

namespace tessera::worker {
namespace {

using codegen::LoopOp;
using program::BranchStep;
using program::CopyStep;
using program::KernelStep;
using program::LoopStep;
using program::Step;

// The most work that the code may do between two polls of the cancellation flag. The unit is that
// of kKernelGrain, one node at one element, so that this work takes some milliseconds. If an
// iteration does more, interpreting its steps costs nothing in comparison.
constexpr int64_t kWorkMax = 1 << 22;
// A copy moves this many bytes in the time that one node takes at one element.
constexpr int64_t kCopiedBytesPerNode = 16;
constexpr size_t kDepthMax = 16;  // nesting of loops and branches

class NativeLoopBuilder {
 public:
  explicit NativeLoopBuilder(const program::StepProgram& program) : p_(program) {}

  // Returns nullopt if the loop is better interpreted.
  std::optional<NativeLoop> TryBuild(const Step& step) {
    loop_.code.ops.push_back(Translate(step, 0));
    if (!has_code_ || work_ > kWorkMax || too_deep_) return std::nullopt;
    loop_.code.num_loops = static_cast<int>(loop_.loop_numbers.size());
    loop_.code.num_bases = static_cast<int>(loop_.base_slots.size());
    loop_.label =
        absl::StrCat(p_.labels[step.label], ", most work in ", p_.labels[heaviest_label_]);
    return std::move(loop_);
  }

 private:
  // Translates a step and, recursively, the steps in its lists. Small kernels and copies become
  // code, and loops and branches become loops and branches of the code. Every other step becomes a
  // callback. The work of an iteration is added up on the way, and TryBuild decides from the sum
  // whether the code is worth having.
  LoopOp Translate(const Step& step, size_t depth) {
    LoopOp op;
    too_deep_ = too_deep_ || depth > kDepthMax;
    const int64_t work_before = work_;
    if (const auto* k = std::get_if<KernelStep>(&step.what); k != nullptr && TryAddWork(*k)) {
      KeepHeaviest(step.label, work_before);
      has_code_ = true;
      op.kind = LoopOp::Kind::kKernel;
      op.number = InternKernel(k->kernel);
      for (const int slot : k->slots) op.addresses.push_back(InternAddress(slot));
    } else if (const auto* c = std::get_if<CopyStep>(&step.what); c != nullptr && TryAddWork(*c)) {
      KeepHeaviest(step.label, work_before);
      has_code_ = true;
      op.kind = LoopOp::Kind::kCopy;
      op.count = p_.slots[c->out].bytes();
      op.addresses = {InternAddress(c->out), InternAddress(c->in)};
    } else if (const auto* l = std::get_if<LoopStep>(&step.what)) {
      op.kind = l->condition < 0 ? LoopOp::Kind::kFor : LoopOp::Kind::kWhile;
      if (l->condition >= 0) op.addresses = {InternAddress(l->condition)};
      if (l->condition < 0) op.count = l->trip_count;
      op.number = static_cast<int>(loop_.loop_numbers.size());
      loop_.loop_numbers.push_back(l->number);
      const double outer_trips = std::exchange(
          trip_product_, trip_product_ * static_cast<double>(std::max<int64_t>(l->trip_count, 1)));
      op.lists = {TranslateList(l->body, depth + 1)};
      trip_product_ = outer_trips;
    } else if (const auto* b = std::get_if<BranchStep>(&step.what)) {
      op.kind = LoopOp::Kind::kBranch;
      op.addresses = {InternAddress(b->index)};
      for (const std::vector<Step>& branch : b->branches)
        op.lists.push_back(TranslateList(branch, depth + 1));
    } else {
      op.kind = LoopOp::Kind::kCall;
      op.number = static_cast<int>(loop_.called_steps.size());
      loop_.called_steps.push_back(step);
    }
    return op;
  }
  std::vector<LoopOp> TranslateList(const std::vector<Step>& steps, size_t depth) {
    std::vector<LoopOp> ops;
    for (const Step& step : steps) ops.push_back(Translate(step, depth));
    return ops;
  }

  // If the step is so small that it runs on one thread, adds its work to `work_` and returns true.
  // The loop's code then contains the step.
  bool TryAddWork(const KernelStep& step) {
    const codegen::Kernel& kernel = p_.kernels[step.kernel];
    const int64_t work = WorkOfIteration(kernel) * kernel.num_iterations();
    if (work >= 2 * kKernelGrain.min) return false;
    work_ += work;
    return true;
  }
  bool TryAddWork(const CopyStep& step) {
    const int64_t bytes = p_.slots[step.out].bytes();
    if (bytes >= 2 * kCopyGrain.min) return false;
    work_ += bytes / kCopiedBytesPerNode;
    return true;
  }

  // Keeps the label of the step that does the most work, counting its work in all iterations of the
  // loops around the step. The step did the work by which `work_` exceeds `work_before`.
  void KeepHeaviest(int label, int64_t work_before) {
    const double work = static_cast<double>(work_ - work_before + 1) * trip_product_;
    if (work <= heaviest_work_) return;
    heaviest_work_ = work;
    heaviest_label_ = label;
  }

  // Returns the index of the program's kernel in the code's `kernels`, and adds it there if it is
  // new.
  int InternKernel(int kernel) {
    const auto [it, is_new] = kernel_indices_.try_emplace(kernel, loop_.code.kernels.size());
    if (is_new) loop_.code.kernels.push_back(codegen::Canonical(p_.kernels[kernel]));
    return static_cast<int>(it->second);
  }

  // Returns the index of the slot's address in the code's `addresses`, and adds it there if it is
  // new.
  int InternAddress(int slot) {
    const auto [it, is_new] = address_indices_.try_emplace(slot, loop_.code.addresses.size());
    if (!is_new) return static_cast<int>(it->second);
    codegen::LoopAddress address{static_cast<int>(loop_.base_slots.size()), {}};
    for (const program::LoopStride& by : p_.slots[slot].loop_strides)
      for (size_t l = 0; l < loop_.loop_numbers.size(); ++l)
        if (loop_.loop_numbers[l] == by.loop)
          address.strides.emplace_back(static_cast<int>(l), by.stride);
    loop_.base_slots.push_back(slot);
    loop_.code.addresses.push_back(std::move(address));
    return static_cast<int>(it->second);
  }

  const program::StepProgram& p_;
  NativeLoop loop_;
  // By the program's kernel: its index in the code's `kernels`. By the program's slot: the index of
  // its address in the code's `addresses`.
  std::map<int, size_t> kernel_indices_, address_indices_;
  bool has_code_ = false, too_deep_ = false;
  // The work of one iteration, in which the iterations of inner loops count once.
  int64_t work_ = 0;
  // The product of the trip counts of the loops around the current step.
  double trip_product_ = 1;
  // The label of the step that does the most work in all its iterations, and this work.
  double heaviest_work_ = 0;
  int heaviest_label_ = 0;
};

void Find(const program::StepProgram& program, const std::vector<Step>& steps,
          std::vector<NativeLoop>* found) {
  for (const Step& step : steps) {
    if (std::holds_alternative<LoopStep>(step.what)) {
      if (std::optional<NativeLoop> loop = NativeLoopBuilder(program).TryBuild(step)) {
        found->push_back(*std::move(loop));
        continue;
      }
    }
    ForEachList(step, [&](const std::vector<Step>& list) { Find(program, list, found); });
  }
}

}  // namespace

std::vector<NativeLoop> FindNativeLoops(const program::StepProgram& program) {
  std::vector<NativeLoop> found;
  Find(program, program.steps, &found);
  return found;
}

}  // namespace tessera::worker
