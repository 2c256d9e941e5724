// Draws the faults of a seed. Shrink (sim.cc) leaves some of them out; sim_test.cc checks that a
// seed has enough of them.
#include "tests/sim/fault.h"

#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace tessera::sim {
namespace {

struct Kind {
  const char* name;
  int64_t min_ms, max_ms;
  int weight;
};
constexpr Kind kKinds[] = {
#define TESSERA_SIM_FAULT(kind, name, min_ms, max_ms, weight) {name, min_ms, max_ms, weight},
    TESSERA_SIM_FAULTS(TESSERA_SIM_FAULT)
#undef TESSERA_SIM_FAULT
};

FaultKind RandomKind(Random& random) {
  int weights = 0;
  for (const Kind& kind : kKinds) weights += kind.weight;
  int64_t pick = random.Below(weights);
  size_t k = 0;
  while (pick >= kKinds[k].weight) pick -= kKinds[k++].weight;
  return static_cast<FaultKind>(k);
}

}  // namespace

const char* NameOf(FaultKind kind) { return kKinds[static_cast<size_t>(kind)].name; }

std::string ToString(const Fault& fault) {
  return absl::StrCat(absl::FormatDuration(fault.at), " ", NameOf(fault.kind), " #", fault.pick,
                      " for ", absl::FormatDuration(fault.duration));
}

// Draws faults one after the other, some seconds apart. The faults follow from the seed alone and
// not from what happens in the run, so that Shrink can leave some of them out while the others stay
// the same.
std::vector<Fault> FaultsOf(uint64_t seed, absl::Duration time) {
  Random random(seed * 0x2545f4914f6cdd1d + 1);
  std::vector<Fault> faults;
  absl::Duration at = absl::Seconds(2);
  while (true) {
    // Several faults sometimes strike at about the same time.
    at += random.OneIn(5) ? random.Within(absl::ZeroDuration(), absl::Milliseconds(500))
                          : random.Within(absl::Seconds(1), absl::Seconds(14));
    if (at > time) return faults;
    Fault fault;
    fault.at = at;
    fault.kind = RandomKind(random);
    fault.pick = static_cast<uint64_t>(random.Below(1 << 20));
    const Kind& kind = kKinds[static_cast<size_t>(fault.kind)];
    fault.duration =
        random.Within(absl::Milliseconds(kind.min_ms), absl::Milliseconds(kind.max_ms));
    faults.push_back(fault);
    // Rows that are not on the disk yet are lost when the process ends, so a fault of the disk is
    // often followed by a kill.
    if ((fault.kind != FaultKind::kDiskSlow && fault.kind != FaultKind::kDiskFull) ||
        random.OneIn(2))
      continue;
    at += random.Within(absl::ZeroDuration(), fault.duration);
    faults.push_back({at, FaultKind::kCoordinatorKill, 0,
                      random.Within(absl::Milliseconds(100), absl::Seconds(2))});
  }
}

}  // namespace tessera::sim
