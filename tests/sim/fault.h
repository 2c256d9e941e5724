// The faults of a run, and when they strike.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tessera::sim {

// Each row is one kind of fault: its name, the shortest and the longest time that it lasts in
// milliseconds, and its weight in the random choice.
#define TESSERA_SIM_FAULTS(F)                                       \
  F(kSlowNetwork, "slow network", 500, 8'000, 3)                    \
  F(kSlowClientNetwork, "slow client network", 500, 8'000, 2)       \
  F(kConnectionReset, "connections reset", 0, 0, 3)                 \
  F(kStreamReset, "one stream reset", 0, 0, 2)                      \
  F(kPartition, "partition", 300, 12'000, 3)                        \
  F(kPartitionUp, "partition to coordinator", 300, 12'000, 2)       \
  F(kPartitionDown, "partition from coordinator", 300, 12'000, 2)   \
  F(kPeerPartition, "partition of two workers", 300, 12'000, 3)     \
  F(kClientPartition, "partition of a client", 300, 12'000, 3)      \
  F(kRepliesLost, "replies to a client lost", 300, 8'000, 3)        \
  F(kDuplicateCalls, "duplicate calls", 1'000, 10'000, 3)           \
  F(kWorkerKill, "worker killed", 0, 0, 2)                          \
  F(kExecutorKill, "executor killed", 0, 0, 4)                      \
  F(kExecutorsKill, "a worker's executors killed", 0, 0, 1)         \
  F(kExecutorFreeze, "executor frozen", 50, 40'000, 4)              \
  F(kDaemonPause, "daemon paused", 100, 40'000, 3)                  \
  F(kCoordinatorPause, "coordinator paused", 100, 40'000, 3)        \
  F(kCoordinatorStarved, "coordinator starved", 1'000, 8'000, 2)    \
  F(kCoordinatorKill, "coordinator killed", 100, 6'000, 5)          \
  F(kCoordinatorLongOutage, "long outage", 15'000, 30'000, 1)       \
  F(kCoordinatorReplaced, "coordinator replaced", 1'000, 10'000, 1) \
  F(kDiskSlow, "disk slow", 500, 10'000, 3)                         \
  F(kDiskFull, "disk full", 200, 8'000, 3)                          \
  F(kClockAhead, "clock an hour ahead", 0, 0, 2)                    \
  F(kClockBack, "clock an hour back", 0, 0, 2)                      \
  F(kClientKill, "client killed", 0, 0, 2)                          \
  F(kClientPause, "client paused", 500, 12'000, 2)

enum class FaultKind : uint8_t {
#define TESSERA_SIM_FAULT(kind, ...) kind,
  TESSERA_SIM_FAULTS(TESSERA_SIM_FAULT)
#undef TESSERA_SIM_FAULT
};
#define TESSERA_SIM_FAULT(...) +1
inline constexpr size_t kFaultKinds = 0 TESSERA_SIM_FAULTS(TESSERA_SIM_FAULT);
#undef TESSERA_SIM_FAULT

const char* NameOf(FaultKind kind);

struct Fault {
  absl::Duration at;  // time from the start of the run
  FaultKind kind = FaultKind::kSlowNetwork;
  uint64_t pick = 0;  // selects one of the machines or clients that the fault can strike
  absl::Duration duration;
};
std::string ToString(const Fault& fault);

// Returns the faults of a seed within `time`, in order.
std::vector<Fault> FaultsOf(uint64_t seed, absl::Duration time);

}  // namespace tessera::sim
