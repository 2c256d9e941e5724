// Decides which exchange each step has to wait for. Build (build.cc) calls PlanOverlap after
// Assign, since two steps conflict if they use the same memory. Accelerators run exchanges beside
// other steps by this plan; the CPU backend runs all steps in order.
#include "worker/program/overlap.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace tessera::worker::program {
namespace {

class OverlapPlanner {
 public:
  explicit OverlapPlanner(StepProgram* program) : p_(*program), conflicts_(*program) {}

  // Sets `after` for the steps of one list. `running` holds the collectives that may still be
  // running. A step that conflicts with one of them waits for this collective, and thereby for all
  // earlier ones. A list inside a step is planned separately, because all earlier steps have ended
  // where the list begins, and all of its own steps have ended where it ends.
  void PlanList(std::vector<Step>* steps) {
    std::vector<Collective> running;
    for (int at = 0; at < static_cast<int>(steps->size()); ++at) {
      Step& step = (*steps)[at];
      if (IsCommunicatingStep(step)) {
        running.push_back({at, conflicts_.UseOf(step)});
        continue;
      }
      if (!running.empty()) {
        const Conflicts::Use use = conflicts_.UseOf(step);
        const auto last = std::find_if(running.rbegin(), running.rend(), [&](const Collective& x) {
          return conflicts_.Between(use, x.use);
        });
        if (last != running.rend()) {
          step.after = last->at;
          running.erase(running.begin(), last.base());
        }
        for (const Collective& collective : running) {
          NoteConcurrent(collective.use, use);
          NoteConcurrent(use, collective.use);
        }
      }
      if (!ContainsCollective(step)) continue;
      ForEachList(step, [this](std::vector<Step>& list) { PlanList(&list); });
      // Collectives in the lists begin after the ones in `running`, and end before the step does.
      running.clear();
    }
  }

  // Returns whether a collective and another step that may run at the same time read the argument
  // and write the result.
  bool IsConcurrent(const Donation& donation) const {
    return concurrent_.count({donation.argument, donation.result}) > 0;
  }

 private:
  struct Collective {
    int at = 0;
    Conflicts::Use use;
  };

  void NoteConcurrent(const Conflicts::Use& reader, const Conflicts::Use& writer) {
    for (int r : reader.reads)
      for (int w : writer.writes)
        if (p_.slots[r].kind == Slot::Kind::kArgument && p_.slots[w].kind == Slot::Kind::kResult)
          concurrent_.emplace(p_.slots[r].index, p_.slots[w].index);
  }

  const StepProgram& p_;
  const Conflicts conflicts_;
  std::set<std::pair<int, int>> concurrent_;  // pairs of an argument and a result
};

// Returns whether one step reads the argument and writes the result.
bool IsInPlace(const StepProgram& program, const std::vector<Conflicts::Use>& uses,
               const Donation& donation) {
  const auto any = [&](const std::vector<int>& slots, Slot::Kind kind, int index) {
    return std::any_of(slots.begin(), slots.end(), [&](int s) {
      return program.slots[s].kind == kind && program.slots[s].index == index;
    });
  };
  return std::any_of(uses.begin(), uses.end(), [&](const Conflicts::Use& use) {
    return any(use.reads, Slot::Kind::kArgument, donation.argument) &&
           any(use.writes, Slot::Kind::kResult, donation.result);
  });
}

}  // namespace

void PlanOverlap(StepProgram* program) {
  if (std::none_of(program->steps.begin(), program->steps.end(), ContainsCollective)) return;
  std::vector<Conflicts::Use> uses;
  const Conflicts conflicts(*program);
  for (const Step& step : program->steps) uses.push_back(conflicts.UseOf(step));
  // Which steps conflict depends on program->donations. Donations that are not in place are removed
  // for the planning, and those that make no step wait are added again afterwards.
  std::vector<Donation>& all = program->donations;
  const auto rest = std::stable_partition(all.begin(), all.end(), [&](const Donation& donation) {
    return IsInPlace(*program, uses, donation);
  });
  const std::vector<Donation> others(rest, all.end());
  all.erase(rest, all.end());
  OverlapPlanner planner(program);
  planner.PlanList(&program->steps);
  std::copy_if(others.begin(), others.end(), std::back_inserter(all),
               [&](const Donation& donation) { return !planner.IsConcurrent(donation); });
}

Conflicts::Conflicts(const StepProgram& program) : p_(program) {
  std::vector<int64_t> trip_count(p_.num_loops, 0);
  ForEachStep(p_.steps, [&](const Step& step) {
    const auto* loop = std::get_if<LoopStep>(&step.what);
    if (loop != nullptr && loop->condition < 0) trip_count[loop->number] = loop->trip_count;
  });
  for (const Slot& slot : p_.slots) {
    Extent extent{slot.offset, slot.offset + slot.bytes()};
    for (const auto& [loop, stride] : slot.loop_strides)
      (stride < 0 ? extent.low : extent.high) +=
          stride * std::max<int64_t>(trip_count[loop] - 1, 0);
    extents_.push_back(extent);
  }
}

Conflicts::Use Conflicts::UseOf(const Step& step) const {
  Use use;
  const auto add = [&](const Step& s) {
    ForEachSlot(
        s, p_.kernels, [&](int slot) { use.reads.push_back(slot); },
        [&](int slot) { use.writes.push_back(slot); });
  };
  add(step);
  ForEachList(step, [&](const std::vector<Step>& list) { ForEachStep(list, add); });
  for (std::vector<int>* slots : {&use.reads, &use.writes}) {
    std::sort(slots->begin(), slots->end());
    slots->erase(std::unique(slots->begin(), slots->end()), slots->end());
  }
  return use;
}

bool Conflicts::MayAlias(int a, int b) const {
  const Slot &x = p_.slots[a], &y = p_.slots[b];
  if (x.kind == y.kind) {
    if (x.kind != Slot::Kind::kArena && x.index != y.index) return false;
    return extents_[a].low < extents_[b].high && extents_[b].low < extents_[a].high;
  }
  if (y.kind == Slot::Kind::kArgument) return MayAlias(b, a);
  if (x.kind != Slot::Kind::kArgument || y.kind != Slot::Kind::kResult) return false;
  return std::find(p_.donations.begin(), p_.donations.end(), Donation{x.index, y.index}) !=
         p_.donations.end();
}

bool Conflicts::Between(const Use& a, const Use& b) const {
  const auto any = [this](const std::vector<int>& some, const std::vector<int>& others) {
    return std::any_of(some.begin(), some.end(), [&](int s) {
      return std::any_of(others.begin(), others.end(), [&](int o) { return MayAlias(s, o); });
    });
  };
  return any(a.writes, b.writes) || any(a.writes, b.reads) || any(a.reads, b.writes);
}

}  // namespace tessera::worker::program
