// The effective cgroup memory and CPU limits of this process: the minimum of the machine's totals
// and the limits of every cgroup (v1 and v2) from the process's own up to the root. Memory sizes
// and numbers of threads are derived from these, never from the machine's totals. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

namespace tessera {

struct HostLimits {
  int64_t memory_bytes = 0;
  int cores = 1;  // rounded up
};

// Reduces `machine` to the limits of the cgroups that root/proc/self/cgroup and
// root/proc/self/mountinfo name. Files that are missing or unreadable limit nothing. In a container
// limits of cgroups above its own are visible only where the kernel repeats them (memory, v1).
HostLimits ReadCgroupLimits(const std::string& root, HostLimits machine);

// The limits of this process, from the machine's memory and the affinity mask of its threads.
HostLimits ProcessLimits();

// Raises the soft limit of open files to the hard limit, at most 65,536: container engines and
// shells set 1,024, and a cluster needs more connections.
void RaiseFileLimit();

}  // namespace tessera
