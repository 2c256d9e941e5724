// One simulated run: a cluster, clients and faults from a seed.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/fault.h"

namespace tessera::sim {

inline constexpr absl::Duration kFaultTime = absl::Seconds(300);

struct Outcome {
  std::string violation;   // "": every promise was kept
  std::string transcript;  // its end
  uint64_t hash = 0;       // of all of it
  int64_t operations = 0;  // that the scheduler accepted
  absl::Duration time;     // simulated
  std::map<std::string, int64_t> counts;
  Checker::Coverage coverage = {};
};

// 300 seconds with these faults, then until all that was asked is answered, then an audit and a
// probe by each client.
// `lines`: of the transcript that are returned.
Outcome Run(uint64_t seed, const std::vector<Fault>& faults, size_t lines = 60);
// With the faults of the seed.
Outcome RunSeed(uint64_t seed);
// As few of the faults as were found with which the seed still fails in the same way.
std::vector<Fault> Shrink(uint64_t seed, std::vector<Fault> faults);

}  // namespace tessera::sim
