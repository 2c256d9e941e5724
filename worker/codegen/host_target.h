// The CPUs that host kernels are compiled for, by name: what an object may use, not which machine
// made it, so objects are shared between machines of one kind.
//
// Plain values; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::worker::codegen {

struct HostTarget {
  std::string name;     // "avx512"
  std::string cpu;      // LLVM's name of the least CPU that has it all
  int vector_bytes;     // of one register
  bool masks;           // loads and stores of some lanes of any type are instructions
  int64_t cache_bytes;  // outputs of kernels that move more bypass the caches
};

// Every target of this architecture, the least demanding first; the last that this CPU runs.
std::vector<HostTarget> HostTargets();
bool CpuRuns(const HostTarget& target);
// By name; "host" is the best that this CPU runs. VALUE_ERROR lists the names.
absl::StatusOr<HostTarget> FindHostTarget(absl::string_view name);

}  // namespace tessera::worker::codegen
