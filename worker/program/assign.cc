// Assigns memory to the values of a fused program. Build (build.cc) calls it after Fuse. It numbers
// the steps, finds the lifetime of each value, lets values share memory where one step can write in
// place, and places the rest in results and in one arena. Finally it replaces values by slots in
// the steps.
#include "worker/program/assign.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/log.h"

namespace tessera::worker::program {
namespace {

constexpr int kAfterAllSteps = std::numeric_limits<int>::max();

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Merges param `in` of the kernel into param `out`, which is then loaded and stored.
codegen::Kernel WithMergedParams(codegen::Kernel kernel, int in, int out) {
  const auto renamed = [&](int param) {
    if (param == in) param = out;
    return param > in ? param - 1 : param;
  };
  const auto rename = [&](codegen::Access* access) {
    for (codegen::DynamicOffset& s : access->shifts) s.param = renamed(s.param);
  };
  for (codegen::Node& n : kernel.nodes) {
    if (n.kind == codegen::Node::Kind::kLoad) n.param = renamed(n.param);
    rename(&n.access);
  }
  for (codegen::Store& s : kernel.stores) {
    s.param = renamed(s.param);
    rename(&s.access);
  }
  kernel.params.erase(kernel.params.begin() + in);
  return codegen::Canonical(kernel);
}

class Assigner {
 public:
  Assigner(LoweredFunction lowered, FusedFunction fused)
      : in_(std::move(lowered)), fused_(std::move(fused)) {
    out_.mesh = in_.mesh;
    out_.arguments = in_.arguments;
    out_.labels = in_.labels;
    out_.num_loops = in_.num_loops;
  }

  StepProgram Run() && {
    CopyConstantResults();
    FindLifetimes();
    ShareAtCopies(fused_.steps);
    ShareInKernels(fused_.steps);
    PlaceResults();
    FindDonations();
    AssignArenaOffsets();
    out_.steps = ToSlots(std::move(fused_.steps));
    CopyUsedKernels();
    return std::move(out_);
  }

 private:
  // The lifetime of a value: the numbers of the first and the last step that access its memory, and
  // the place of the memory. Values that share memory form a class, which one of them represents.
  // The Lifetime of this value is the lifetime of the class.
  struct Lifetime {
    int begin = -1, end = -1;
    std::set<int> accesses;  // numbers of steps
    int64_t bytes = 0;
    int subview = -1;     // value whose memory (part of a loop's result) the class has, or -1
    int result = -1;      // result whose memory the class has, or -1
    int64_t offset = -1;  // offset in the arena, if it lies there
  };
  struct StepRange {  // the numbers of a loop's begin and end (NumberSteps)
    int begin = 0, end = 0;
  };
  using Loops = std::vector<int>;

  const Value& value(int v) const { return in_.values[v]; }
  bool IsLocal(int v) const {
    return value(v).argument < 0 && value(v).constant < 0 && !value(v).subview;
  }
  int ClassOf(int v) const {
    while (class_of_[v] != v) v = class_of_[v] = class_of_[class_of_[v]];
    return v;
  }
  Lifetime& ClassLifetime(int v) { return lifetimes_[ClassOf(v)]; }

  // Copies each result that is a constant, because a result needs its own memory.
  void CopyConstantResults() {
    std::map<int, int> copies;
    for (int& v : in_.result_values) {
      if (value(v).constant < 0) continue;
      const auto [it, is_new] = copies.try_emplace(v, static_cast<int>(in_.values.size()));
      if (is_new) {
        Value copy = value(v);
        copy.constant = -1;
        in_.values.push_back(copy);
        Step step;
        step.label = static_cast<int>(out_.labels.size());
        step.fused_labels = {step.label};
        out_.labels.push_back("constant");
        step.what = CopyStep{v, it->second};
        if (copy.elements > 0) fused_.steps.push_back(std::move(step));
      }
      v = it->second;
    }
  }

  // ---- Lifetimes. ----

  void FindLifetimes() {
    lifetimes_.resize(in_.values.size());
    loop_ranges_.resize(in_.num_loops);
    class_of_.resize(in_.values.size());
    for (size_t v = 0; v < class_of_.size(); ++v) {
      class_of_[v] = static_cast<int>(v);
      lifetimes_[v].bytes =
          value(static_cast<int>(v)).elements * ir::ByteWidth(value(static_cast<int>(v)).dtype);
    }
    NumberSteps(fused_.steps);
    for (const StepAccess& a : accesses_) AddAccess(a.value, a.at);
    // A value that is written before a loop and accessed in it stays alive until the loop ends.
    for (const StepAccess& a : accesses_) ExtendOverLoops(a.value, a.loops);
    for (int v : in_.result_values)
      if (IsLocal(v)) lifetimes_[v].end = kAfterAllSteps;
  }

  // Numbers the steps in order and records their accesses. A step with lists gets two numbers, one
  // before and one after them, so that its begin and end can be told apart. Each access records the
  // loops around it, because a value from before a loop is needed in every iteration. It also
  // records the end of the outermost step around it, which LastReads needs for donations.
  void NumberSteps(const std::vector<Step>& steps, const Loops& loops = {}) {
    for (const Step& step : steps) {
      const int at = static_cast<int>(step_at_.size());
      step_at_.push_back(&step);
      positions_[&step] = at;
      const auto access_at = [&](int number) {
        const auto access = [&](int v) { accesses_.push_back({v, number, number, loops}); };
        ForEachSlot(step, kernels_.kernels(), access, access);
      };
      if (!HasLists(step)) {
        access_at(at);
        continue;
      }
      const auto* loop = std::get_if<LoopStep>(&step.what);
      Loops inner = loops;
      if (loop != nullptr) inner.push_back(loop->number);
      const size_t first = accesses_.size();
      access_at(at);
      ForEachList(step, [&](const std::vector<Step>& list) { NumberSteps(list, inner); });
      const int end = static_cast<int>(step_at_.size());
      step_at_.push_back(&step);
      if (loop != nullptr) {
        loop_ranges_[loop->number] = {at, end};
        access_at(end);  // the condition is read before each iteration
      }
      for (size_t i = first; i < accesses_.size(); ++i) accesses_[i].outer_end = end;
    }
  }
  static bool HasLists(const Step& step) {
    return std::holds_alternative<LoopStep>(step.what) ||
           std::holds_alternative<BranchStep>(step.what);
  }

  void AddAccess(int v, int at) {
    Lifetime& life = lifetimes_[v];
    life.accesses.insert(at);
    life.begin = life.begin < 0 ? at : std::min(life.begin, at);
    life.end = std::max(life.end, at);
    if (const auto& subview = value(v).subview) {  // the whole value is alive while the loop runs
      AddAccess(subview->whole, loop_ranges_[subview->loop].begin);
      AddAccess(subview->whole, loop_ranges_[subview->loop].end);
    }
  }
  void ExtendOverLoops(int v, const Loops& loops) {
    for (int loop : loops)
      if (lifetimes_[v].begin < loop_ranges_[loop].begin)
        lifetimes_[v].end = std::max(lifetimes_[v].end, loop_ranges_[loop].end);
    if (const auto& subview = value(v).subview)
      ExtendOverLoops(subview->whole,
                      Loops(loops.begin(), std::find(loops.begin(), loops.end(), subview->loop)));
  }

  // ---- Sharing. ----

  void MergeClasses(int from, int to) {
    Lifetime &a = lifetimes_[from], &b = lifetimes_[to];
    b.begin = std::min(a.begin, b.begin);
    b.end = std::max(a.end, b.end);
    if (a.accesses.size() > b.accesses.size()) std::swap(a.accesses, b.accesses);
    b.accesses.insert(a.accesses.begin(), a.accesses.end());
    class_of_[from] = to;
  }

  // Returns whether the step may read class `in` in the memory in which it writes class `out`.
  bool MayWriteInPlace(const Step& step, int in, int out) const {
    if (std::holds_alternative<CopyStep>(step.what)) return true;
    const auto* k = std::get_if<KernelStep>(&step.what);
    if (k == nullptr) return false;
    const codegen::Kernel& kernel = kernels_.kernels()[k->kernel];
    int written = -1;
    for (size_t i = 0; i < k->slots.size(); ++i) {
      if (!kernel.params[i].output || !IsLocal(k->slots[i])) continue;
      const int c = ClassOf(k->slots[i]);
      if (c == in || (c == out && written >= 0)) return false;
      if (c == out) written = static_cast<int>(i);
    }
    if (written < 0) return false;
    for (size_t i = 0; i < k->slots.size(); ++i)
      if (!kernel.params[i].output && IsLocal(k->slots[i]) && ClassOf(k->slots[i]) == in &&
          !codegen::MayGoInPlace(kernel, static_cast<int>(i), written))
        return false;
    return true;
  }

  // Lets the source and the destination of a copy share memory, if the copy is the last use of the
  // source and one of two things holds: the copy is the first write of the destination, or no step
  // accesses the destination (a loop's carry) between the first write of the source and the copy.
  void ShareAtCopies(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      ForEachList(step, [this](const std::vector<Step>& list) { ShareAtCopies(list); });
      const auto* copy = std::get_if<CopyStep>(&step.what);
      if (copy == nullptr || !IsLocal(copy->in)) continue;
      const int at = PositionOf(step);
      const int from = ClassOf(copy->in);
      const Lifetime& a = lifetimes_[from];
      if (a.end != at || a.subview >= 0) continue;
      if (const auto& subview = value(copy->out).subview) {
        if (lifetimes_[copy->out].accesses.size() == 1 &&
            a.begin > loop_ranges_[subview->loop].begin)
          lifetimes_[from].subview = copy->out;
        continue;
      }
      const int to = ClassOf(copy->out);
      const Lifetime& b = lifetimes_[to];
      if (to == from || b.subview >= 0 || a.bytes != b.bytes) continue;
      if (b.begin == at) {
        MergeClasses(from, to);
      } else if (b.begin < a.begin) {
        const auto next = b.accesses.upper_bound(a.begin);
        if (next == b.accesses.end() || *next < at) continue;
        if (b.accesses.count(a.begin) > 0 && !MayWriteInPlace(*step_at_[a.begin], to, from))
          continue;
        MergeClasses(from, to);
      }
    }
  }

  // Lets a kernel write its result in place of an operand, if no later step uses the operand and
  // the kernel reads each element of it only to write the same element of the result.
  void ShareInKernels(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      ForEachList(step, [this](const std::vector<Step>& list) { ShareInKernels(list); });
      const auto* k = std::get_if<KernelStep>(&step.what);
      if (k == nullptr) continue;
      const codegen::Kernel& kernel = kernels_.kernels()[k->kernel];
      const int at = PositionOf(step);
      for (size_t o = 0; o < k->slots.size(); ++o) {
        if (!kernel.params[o].output || !IsLocal(k->slots[o])) continue;
        for (size_t i = 0; i < k->slots.size(); ++i) {
          if (kernel.params[i].output || !IsLocal(k->slots[i])) continue;
          const int from = ClassOf(k->slots[i]), to = ClassOf(k->slots[o]);
          const Lifetime &a = lifetimes_[from], &b = lifetimes_[to];
          if (from == to || a.end != at || b.begin != at || a.subview >= 0 || b.subview >= 0 ||
              a.bytes != b.bytes || !MayWriteInPlace(step, from, to))
            continue;
          MergeClasses(from, to);
          break;
        }
      }
    }
  }

  int PositionOf(const Step& step) const { return positions_.at(&step); }

  // ---- Locations. ----

  void PlaceResults() {
    for (size_t i = 0; i < in_.result_values.size(); ++i) {
      const int v = in_.result_values[i];
      if (IsLocal(v) && ClassLifetime(v).result < 0) ClassLifetime(v).result = static_cast<int>(i);
      out_.results.push_back({in_.results[i], SlotOf(v)});
    }
  }

  // ---- Results in the memory of arguments. ----

  int WholeOf(int v) const {
    while (value(v).subview) v = value(v).subview->whole;
    return v;
  }

  // Returns the number of the last step that reads each argument. An argument that is itself a
  // result counts as read after all steps.
  std::vector<int> LastReads() const {
    std::vector<int> last(in_.arguments.size(), -1);
    for (const StepAccess& a : accesses_) {
      const int argument = value(WholeOf(a.value)).argument;
      if (argument < 0) continue;
      last[argument] = std::max(last[argument], a.outer_end);
    }
    for (int v : in_.result_values)
      if (const int argument = value(WholeOf(v)).argument; argument >= 0)
        last[argument] = kAfterAllSteps;
    return last;
  }

  // Returns whether the step may write class `to` over the argument: the step is a copy, or it
  // reads each element of the argument only to write the same element of the class. Requires that
  // the step is the last one that reads the argument and the first one that writes the class.
  bool MayOverwriteArgument(const Step& step, int argument, int to) const {
    if (const auto* copy = std::get_if<CopyStep>(&step.what))
      return value(copy->in).argument == argument && IsLocal(copy->out) && ClassOf(copy->out) == to;
    const auto* k = std::get_if<KernelStep>(&step.what);
    if (k == nullptr) return false;
    const codegen::Kernel& kernel = kernels_.kernels()[k->kernel];
    int written = -1;
    for (size_t i = 0; i < k->slots.size(); ++i) {
      if (!kernel.params[i].output || ClassOf(WholeOf(k->slots[i])) != to) continue;
      if (written >= 0 || !IsLocal(k->slots[i])) return false;
      written = static_cast<int>(i);
    }
    if (written < 0) return false;
    for (size_t i = 0; i < k->slots.size(); ++i) {
      if (kernel.params[i].output || value(WholeOf(k->slots[i])).argument != argument) continue;
      if (value(k->slots[i]).subview ||
          !codegen::MayGoInPlace(kernel, static_cast<int>(i), written))
        return false;
    }
    return true;
  }

  // Lists the donations. Donations that a step writes in place come first, because they save a
  // copy. For each result the argument with the same index is tried first, because programs return
  // their state in the order of their arguments.
  void FindDonations() {
    constexpr int kNotInPlaceMax = 4;  // for each result
    const std::vector<int> last_reads = LastReads();
    const int arguments = static_cast<int>(in_.arguments.size());
    std::vector<Donation> not_in_place;
    for (int r = 0; r < static_cast<int>(in_.results.size()); ++r) {
      const int v = in_.result_values[r];
      if (!IsLocal(v) || ClassLifetime(v).result != r || ClassLifetime(v).begin < 0) continue;
      const Lifetime& life = ClassLifetime(v);
      int num_not_in_place = 0;
      for (int i = 0; i < arguments; ++i) {
        const int a = (r + i) % arguments;
        if (life.bytes == 0 || in_.arguments[a].num_bytes() != life.bytes) continue;
        if (last_reads[a] < life.begin) {
          if (num_not_in_place++ < kNotInPlaceMax) not_in_place.push_back({a, r});
        } else if (last_reads[a] == life.begin &&
                   MayOverwriteArgument(*step_at_[life.begin], a, ClassOf(v))) {
          out_.donations.push_back({a, r});
          in_place_[step_at_[life.begin]].insert(a);
        }
      }
    }
    out_.donations.insert(out_.donations.end(), not_in_place.begin(), not_in_place.end());
  }

  // Places the classes that have no other memory in the arena: the largest first, each in the
  // smallest gap that is free during its whole lifetime. The largest come first because small
  // values fit into the gaps that large ones leave. Ties are broken by the begin of the lifetime.
  void AssignArenaOffsets() {
    std::vector<int> classes, placed;  // the classes that lie in the arena
    for (size_t v = 0; v < lifetimes_.size(); ++v) {
      const Lifetime& life = lifetimes_[v];
      if (IsLocal(static_cast<int>(v)) && class_of_[v] == static_cast<int>(v) && life.begin >= 0 &&
          life.result < 0 && life.subview < 0)
        classes.push_back(static_cast<int>(v));
    }
    std::stable_sort(classes.begin(), classes.end(), [&](int a, int b) {
      return lifetimes_[a].bytes != lifetimes_[b].bytes ? lifetimes_[a].bytes > lifetimes_[b].bytes
                                                        : lifetimes_[a].begin < lifetimes_[b].begin;
    });
    for (int v : classes) {
      Lifetime& life = lifetimes_[v];
      std::vector<std::pair<int64_t, int64_t>> taken;  // pairs of begin and end
      for (int other : placed) {
        const Lifetime& o = lifetimes_[other];
        if (o.begin <= life.end && life.begin <= o.end)
          taken.emplace_back(o.offset, o.offset + Aligned(o.bytes));
      }
      std::sort(taken.begin(), taken.end());
      const int64_t need = Aligned(life.bytes);
      int64_t free_from = 0, best = -1, best_size = 0;
      for (const auto& [from, to] : taken) {
        const int64_t gap = from - free_from;
        if (gap >= need && (best < 0 || gap < best_size)) {
          best = free_from;
          best_size = gap;
        }
        free_from = std::max(free_from, to);
      }
      life.offset = best >= 0 ? best : free_from;
      out_.arena_bytes = std::max(out_.arena_bytes, life.offset + need);
      placed.push_back(v);
    }
  }

  int SlotOf(int v) {
    const auto known = slot_of_.find(v);
    if (known != slot_of_.end()) return known->second;
    Slot slot = Locate(v);
    slot.dtype = value(v).dtype;
    slot.elements = value(v).elements;
    const auto [same, is_new] =
        known_slots_.try_emplace(SlotKey(slot), static_cast<int>(out_.slots.size()));
    if (is_new) out_.slots.push_back(std::move(slot));
    return slot_of_[v] = same->second;
  }

  static std::vector<int64_t> SlotKey(const Slot& slot) {
    std::vector<int64_t> key = {static_cast<int64_t>(slot.kind), slot.index, slot.offset,
                                static_cast<int64_t>(slot.dtype), slot.elements};
    for (const auto& [loop, stride] : slot.loop_strides) key.insert(key.end(), {loop, stride});
    return key;
  }

  // Finds the memory of a value. A subview is a place in the value of which it is a part, an
  // argument or constant is its own memory, and any other value has the memory of its class.
  // Constants are copied into the program only here, so that unused ones are left out.
  Slot Locate(int v) {
    Slot slot;
    if (const auto& subview = value(v).subview) {
      const int64_t width = ir::ByteWidth(value(v).dtype);
      slot = Locate(subview->whole);
      slot.offset += subview->offset * width;
      slot.loop_strides.push_back({subview->loop, subview->stride * width});
      return slot;
    }
    if (value(v).argument >= 0) {
      slot.kind = Slot::Kind::kArgument;
      slot.index = value(v).argument;
      return slot;
    }
    if (value(v).constant >= 0) {
      slot.kind = Slot::Kind::kConstant;
      const auto [it, is_new] =
          constants_.try_emplace(value(v).constant, static_cast<int>(out_.constants.size()));
      if (is_new) out_.constants.push_back(in_.constants[value(v).constant]);
      slot.index = it->second;
      return slot;
    }
    const Lifetime& life = ClassLifetime(v);
    if (life.subview >= 0) return Locate(life.subview);
    slot.kind = life.result >= 0 ? Slot::Kind::kResult : Slot::Kind::kArena;
    slot.index = std::max(life.result, 0);
    slot.offset = std::max<int64_t>(life.offset, 0);
    return slot;
  }

  // ---- Steps on slots. ----

  std::vector<Step> ToSlots(std::vector<Step> steps) {
    std::vector<Step> emitted;
    for (Step& step : steps) {
      ForEachList(step, [this](std::vector<Step>& list) { list = ToSlots(std::move(list)); });
      if (auto* k = std::get_if<KernelStep>(&step.what)) {
        KernelToSlots(k, in_place_[&step]);
      } else {
        const auto to_slot = [this](int& v) { v = SlotOf(v); };
        ForEachSlot(step, kernels_.kernels(), to_slot, to_slot);
      }
      const auto* copy = std::get_if<CopyStep>(&step.what);
      if (copy != nullptr && copy->in == copy->out) continue;
      emitted.push_back(std::move(step));
    }
    return emitted;
  }

  // Replaces the values of a kernel step by slots. A slot that is both read and written becomes one
  // param. `in_place` are the arguments that the kernel may overwrite.
  void KernelToSlots(KernelStep* step, const std::set<int>& in_place) {
    codegen::Kernel kernel = kernels_.kernels()[step->kernel];
    bool changed = false;
    for (size_t i = 0; i < step->slots.size(); ++i) {
      const int v = step->slots[i];
      if (!kernel.params[i].output && in_place.count(value(v).argument) > 0)
        kernel.params[i].in_place = changed = true;
      step->slots[i] = SlotOf(v);
    }
    for (size_t i = 0; i < step->slots.size();) {
      size_t o = 0;
      while (o < step->slots.size() &&
             (!kernel.params[o].output || step->slots[o] != step->slots[i]))
        ++o;
      if (kernel.params[i].output || o == step->slots.size()) {
        ++i;
        continue;
      }
      kernel = WithMergedParams(std::move(kernel), static_cast<int>(i), static_cast<int>(o));
      step->slots.erase(step->slots.begin() + i);
      changed = true;
    }
    if (!changed) return;
    step->kernel = kernels_.Add(std::move(kernel));
  }

  void CopyUsedKernels() {
    std::map<int, int> renumbered;
    ForEachStep(out_.steps, [&](Step& step) {
      auto* k = std::get_if<KernelStep>(&step.what);
      if (k == nullptr) return;
      const auto [it, is_new] =
          renumbered.try_emplace(k->kernel, static_cast<int>(out_.kernels.size()));
      if (is_new) out_.kernels.push_back(kernels_.kernels()[k->kernel]);
      k->kernel = it->second;
    });
  }

  struct StepAccess {
    int value, at;
    int outer_end;  // end of the outermost step with lists around the access, or else `at`
    Loops loops;
  };

  LoweredFunction in_;
  FusedFunction fused_;
  StepProgram out_;
  KernelTable& kernels_ = fused_.kernels;
  // The step of each number. A step with lists has two numbers, one for its begin and one for its
  // end.
  std::vector<const Step*> step_at_;
  std::map<const Step*, int> positions_;  // the number of each step, at its begin
  std::vector<StepRange> loop_ranges_;    // by loop
  std::vector<StepAccess> accesses_;
  // A union-find forest, in which values that share memory have the same root.
  mutable std::vector<int> class_of_;
  std::vector<Lifetime> lifetimes_;
  std::map<const Step*, std::set<int>> in_place_;  // arguments that the step may overwrite
  std::map<int, int> slot_of_, constants_;
  std::map<std::vector<int64_t>, int> known_slots_;
};

}  // namespace

StepProgram Assign(LoweredFunction lowered, FusedFunction fused) {
  return Assigner(std::move(lowered), std::move(fused)).Run();
}

}  // namespace tessera::worker::program
