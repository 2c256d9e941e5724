// The memory and the cores that this process may use. In a container, a systemd unit or a batch job
// that is the minimum of what the machine has and what every control group from the process's own
// up to the root allows, of version 1 and 2 alike. Memory sizes and numbers of threads are derived
// from this, never from the machine's totals. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

namespace tessera {

struct HostLimits {
  int64_t memory_bytes = 0;
  int cores = 1;  // half a core is one
};

// `machine`, reduced to the limits of the control groups that root/proc/self/cgroup and
// root/proc/self/mountinfo name. Files that are missing or unreadable limit nothing. A mounted
// hierarchy shows a container its own group and those below it: limits above are seen where the
// kernel repeats them (memory, version 1).
HostLimits LimitsUnder(const std::string& root, HostLimits machine);

// Of this process, from the machine's memory and the cores that its threads may be scheduled on.
HostLimits OwnLimits();

// Lets this process open as many files as it may, at most 65,536: engines and shells start
// processes with 1,024, and a cluster's connections are more.
void RaiseFileLimit();

}  // namespace tessera
