// The instruction sets for which host kernels are compiled, by name. An object depends on the
// target and not on the machine that compiled it, so machines with the same target share objects.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::worker::codegen {

struct HostTarget {
  std::string name;  // for example "avx512"
  // LLVM's name of the oldest CPU that has these instructions.
  std::string cpu;
  int vector_bytes;            // size of one vector register
  int num_registers;           // number of vector registers
  bool has_masked_memory_ops;  // has masked loads and stores of every element type
  bool has_fma;                // has fused multiply-adds of vectors
  // A kernel that moves more bytes than this stores its results past the caches.
  int64_t cache_bytes;
};

// Returns every target of this architecture, the least demanding first.
std::vector<HostTarget> HostTargets();
bool CpuRuns(const HostTarget& target);
// Finds a target by name. "host" means the best target that this CPU runs. Returns VALUE_ERROR,
// which lists the names, if there is no such target.
absl::StatusOr<HostTarget> FindHostTarget(absl::string_view name);

}  // namespace tessera::worker::codegen
