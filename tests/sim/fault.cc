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

FaultKind AnyKind(Random& random) {
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
                      " for ", absl::FormatDuration(fault.lasts));
}

std::vector<Fault> FaultsOf(uint64_t seed, absl::Duration time) {
  Random random(seed * 0x2545f4914f6cdd1d + 1);
  std::vector<Fault> faults;
  absl::Duration at = absl::Seconds(2);
  while (true) {
    // Several at once, at times.
    at += random.OneIn(5) ? random.Within(absl::ZeroDuration(), absl::Milliseconds(500))
                          : random.Within(absl::Seconds(1), absl::Seconds(14));
    if (at > time) return faults;
    Fault fault;
    fault.at = at;
    fault.kind = AnyKind(random);
    fault.pick = static_cast<uint64_t>(random.Below(1 << 20));
    const Kind& kind = kKinds[static_cast<size_t>(fault.kind)];
    fault.lasts = random.Within(absl::Milliseconds(kind.min_ms), absl::Milliseconds(kind.max_ms));
    faults.push_back(fault);
    // What is not on the disk yet is lost when the process ends.
    if ((fault.kind != FaultKind::kDiskSlow && fault.kind != FaultKind::kDiskFull) ||
        random.OneIn(2))
      continue;
    at += random.Within(absl::ZeroDuration(), fault.lasts);
    faults.push_back({at, FaultKind::kCoordinatorKill, 0,
                      random.Within(absl::Milliseconds(100), absl::Seconds(2))});
  }
}

}  // namespace tessera::sim
