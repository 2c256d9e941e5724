// One simulated run: a cluster, clients and faults that follow from a seed.
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
  std::string violation;   // first promise that was broken; "" if every promise was kept
  std::string transcript;  // last lines of the transcript
  uint64_t hash = 0;       // hash of the whole transcript
  int64_t operations = 0;  // number of operations that the scheduler accepted
  absl::Duration time;     // simulated time
  std::map<std::string, int64_t> counts;
  Checker::Coverage coverage = {};
};

// Runs the cluster for 300 seconds with these faults, or longer until it has accepted enough
// operations. Then lets the cluster settle until all requests are answered. Ends with an audit and
// a probe by each client (client.h). `lines` is the number of lines of the transcript to return.
Outcome Run(uint64_t seed, const std::vector<Fault>& faults, size_t lines = 60);
// Like Run, with the faults of the seed.
Outcome RunSeed(uint64_t seed);
// Returns a subset of the faults, as small as the search could make it, with which the seed still
// breaks a promise in the same way.
std::vector<Fault> Shrink(uint64_t seed, std::vector<Fault> faults);

}  // namespace tessera::sim
