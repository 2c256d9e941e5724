// The table of host targets, and the choice of one. HostCompiler finds its target by the name in
// its options, and the process that compiles finds it by the name in the request.
#include "worker/codegen/host_target.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker::codegen {
namespace {

// Kernels that move more bytes than this use non-temporal stores. All machines have the same value,
// so that the code for a target is the same everywhere. The size of the last-level cache would say
// little anyway, since a virtual machine shares that cache with others.
constexpr int64_t kCacheBytes = 64 << 20;

}  // namespace

std::vector<HostTarget> HostTargets() {
#if defined(__x86_64__)
  return {
      {"baseline", "x86-64", 16, 16, /*has_masked_memory_ops=*/false, /*has_fma=*/false,
       kCacheBytes},
      {"avx2", "x86-64-v3", 32, 16, /*has_masked_memory_ops=*/false, /*has_fma=*/true, kCacheBytes},
      {"avx512", "x86-64-v4", 64, 32, /*has_masked_memory_ops=*/true, /*has_fma=*/true,
       kCacheBytes}};
#else
  return {{"baseline", "generic", 16, 16, /*has_masked_memory_ops=*/false, /*has_fma=*/false,
           kCacheBytes}};
#endif
}

bool CpuRuns(const HostTarget& target) {
#if defined(__x86_64__)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (target.name == "avx2") return v3;
  if (target.name == "avx512") {
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  }
#endif
  return target.name == "baseline";
}

absl::StatusOr<HostTarget> FindHostTarget(absl::string_view name) {
  std::string names = "host";
  HostTarget best;
  for (const HostTarget& target : HostTargets()) {
    if (target.name == name) return target;
    if (CpuRuns(target)) best = target;
    absl::StrAppend(&names, ", ", target.name);
  }
  if (name == "host") return best;
  return MakeError(
      ErrorKind::kValueError,
      absl::StrCat("host target '", name, "' does not exist; expected one of ", names));
}

}  // namespace tessera::worker::codegen
