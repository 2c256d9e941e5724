// Proves on a few seeds that the scheduler keeps its promises under faults, and that a seed always
// gives the same transcript. TESSERA_SIM_SEEDS is the number of seeds (default 3) and
// TESSERA_SIM_FIRST the first of them (default 1); the tests sim_seeds and sim_all_seeds run many
// more with tessera-sim. A seed that fails prints the end of its transcript.
#include "tests/sim/sim.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera::sim {
namespace {

uint64_t Setting(const char* name, uint64_t default_value) {
  const char* text = std::getenv(name);
  return text == nullptr ? default_value : std::strtoull(text, nullptr, 10);
}

TEST(Sim, EveryPromiseIsKept) {
  const uint64_t first = Setting("TESSERA_SIM_FIRST", 1), seeds = Setting("TESSERA_SIM_SEEDS", 3);
  std::map<std::string, int64_t> counts;
  int64_t operations = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome outcome = RunSeed(seed);
    ASSERT_EQ(outcome.violation, "") << "seed " << seed << "\n" << outcome.transcript;
    EXPECT_GE(outcome.operations, 1'000) << "seed " << seed;
    operations += outcome.operations;
    for (const auto& [what, count] : outcome.counts) counts[what] += count;
  }
  std::printf("%llu seeds: %lld operations", static_cast<unsigned long long>(seeds),
              static_cast<long long>(operations));
  for (const auto& [what, count] : counts)
    std::printf(", %s %lld", what.c_str(), static_cast<long long>(count));
  std::printf("\n");
}

TEST(Sim, ASeedHasEnoughFaults) {
  for (uint64_t seed = 1; seed <= 500; ++seed)
    EXPECT_GE(FaultsOf(seed, kFaultTime).size(), 20u) << "seed " << seed;
}

TEST(Sim, ASeedGivesTheSameTranscript) {
  EXPECT_EQ(RunSeed(7).hash, RunSeed(7).hash);
  EXPECT_NE(RunSeed(7).hash, RunSeed(8).hash);
}

}  // namespace
}  // namespace tessera::sim
