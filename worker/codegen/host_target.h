// The instruction sets that host kernels are compiled for, by name. Objects do not depend on the
// machine that compiled them, so machines with the same target share them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::worker::codegen {

struct HostTarget {
  std::string name;            // "avx512"
  std::string cpu;             // LLVM's name of the oldest CPU that has these instructions
  int vector_bytes;            // of one register
  int num_registers;           // of vectors
  bool has_masked_memory_ops;  // has masked loads and stores of every element type
  bool has_fma;                // has fused multiply-adds of vectors
  int64_t cache_bytes;         // kernels that move more bytes store past the caches
};

// Every target of this architecture, the least demanding first.
std::vector<HostTarget> HostTargets();
bool CpuRuns(const HostTarget& target);
// Finds a target by name; "host" is the best that this CPU runs. VALUE_ERROR lists the names.
absl::StatusOr<HostTarget> FindHostTarget(absl::string_view name);

}  // namespace tessera::worker::codegen
