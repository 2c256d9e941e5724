// What this process may take of the machine: memory and cores. In a container, a systemd unit or a
// batch job that is the least of what the machine has and what every control group on the way from
// the process's own to the root allows, version 1 and 2 alike. Memory that is offered and threads
// that are started come from here, never from the machine. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

namespace tessera {

struct HostLimits {
  int64_t memory_bytes = 0;
  int cores = 1;  // half a core is one
};

// `machine`, lessened by the control groups that root/proc/self/cgroup and root/proc/self/mountinfo
// name, as their files below `root` say. What is missing or does not read limits nothing. A mounted
// hierarchy shows a container its own group and those below it: limits above are seen where the
// kernel repeats them (memory, version 1).
HostLimits LimitsUnder(const std::string& root, HostLimits machine);

// Of this process, from the machine's memory and the cores that its threads may be scheduled on.
HostLimits OwnLimits();

// Lets this process open as many files as it may, at most 65,536: engines and shells start
// processes with 1,024, and a cluster's connections are more.
void RaiseFileLimit();

}  // namespace tessera
