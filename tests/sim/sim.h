// One simulated run: a cluster, clients and faults from a seed.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace tessera::sim {

struct Outcome {
  std::string violation;   // "": every promise was kept
  std::string transcript;  // its end
  uint64_t hash = 0;       // of all of it
  int64_t operations = 0;  // that the scheduler accepted
  std::map<std::string, int64_t> faults;
};

// 300 seconds with faults, then until all that was asked is answered, then a probe by each client.
Outcome RunSeed(uint64_t seed);

}  // namespace tessera::sim
