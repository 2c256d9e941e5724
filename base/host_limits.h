// Finds how much memory and how many cores this process may use. These limits are the minimum of
// the machine's totals and the limits of every cgroup (v1 and v2) from the process's own up to the
// root. Memory sizes and numbers of threads are derived from these limits, never from the machine's
// totals. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

namespace tessera {

struct HostLimits {
  int64_t memory_bytes = 0;
  int cores = 1;  // number of cores, rounded up
};

// Reduces `machine` to the limits of the cgroups that root/proc/self/cgroup and
// root/proc/self/mountinfo name. `root` is "" except in tests. Files that are missing or unreadable
// impose no limit. A container sees only its own cgroup. Limits of the cgroups above it therefore
// count only for memory in v1, where the kernel repeats them in the container's own files.
HostLimits ReadCgroupLimits(const std::string& root, HostLimits machine);

// Returns the limits of this process. They start from the machine's memory and from the cores on
// which this process may run, by its affinity mask.
HostLimits ProcessLimits();

// Raises the soft limit of open files to the hard limit, but not above 65,536. Container engines
// and shells set 1,024, and a cluster needs more connections than that.
void RaiseFileLimit();

}  // namespace tessera
