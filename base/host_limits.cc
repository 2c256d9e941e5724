// Reads the cgroup files of this process to find its memory and CPU limits. The daemons call it at
// their start to choose memory sizes and numbers of threads, since a container usually has less
// than its machine.
#include "base/host_limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace tessera {
namespace {

constexpr rlim_t kFilesMax = 65'536;

// Returns the contents of a file of /proc or of a cgroup, or "" if it cannot be read.
std::string Contents(const std::string& path) {
  constexpr size_t kBytesMax = size_t{16} << 20;
  return ReadWholeFile(path, kBytesMax).value_or("");
}

// Returns the number at the start of the file. Returns nullopt for "max", for -1, and if the file
// does not exist.
std::optional<int64_t> NumberIn(const std::string& path) {
  int64_t number = -1;
  const std::string text = Contents(path);
  if (!absl::SimpleAtoi(text.substr(0, text.find_first_of(" \n")), &number) || number < 0) {
    return std::nullopt;
  }
  return number;
}

void LowerMemory(std::optional<int64_t> memory_bytes, HostLimits* limits) {
  if (memory_bytes.has_value()) {
    limits->memory_bytes = std::min(limits->memory_bytes, *memory_bytes);
  }
}

// Applies a limit of `quota` microseconds of CPU time in each `period`, which is in microseconds
// too.
void LowerCores(int64_t quota, int64_t period, HostLimits* limits) {
  if (quota <= 0 || period <= 0) return;
  const double cores = std::ceil(static_cast<double>(quota) / static_cast<double>(period));
  if (cores < limits->cores) limits->cores = std::max(static_cast<int>(cores), 1);
}

// Applies the limits in the directory of one cgroup, v1 or v2. The files of controllers that are
// not enabled are missing.
void ApplyCgroup(const std::string& directory, HostLimits* limits) {
  LowerMemory(NumberIn(directory + "/memory.max"), limits);
  // memory.high counts as a limit too: above it the kernel slows the group down.
  LowerMemory(NumberIn(directory + "/memory.high"), limits);
  LowerMemory(NumberIn(directory + "/memory.limit_in_bytes"), limits);
  for (const absl::string_view line : absl::StrSplit(Contents(directory + "/memory.stat"), '\n')) {
    const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t bytes = 0;
    if (words.first == "hierarchical_memory_limit" && absl::SimpleAtoi(words.second, &bytes)) {
      LowerMemory(bytes, limits);
    }
  }
  const std::vector<std::string> cpu_max =
      absl::StrSplit(Contents(directory + "/cpu.max"), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t quota = 0, period = 0;
  if (cpu_max.size() == 2 && absl::SimpleAtoi(cpu_max[0], &quota) &&
      absl::SimpleAtoi(cpu_max[1], &period)) {
    LowerCores(quota, period, limits);
  }
  LowerCores(NumberIn(directory + "/cpu.cfs_quota_us").value_or(0),
             NumberIn(directory + "/cpu.cfs_period_us").value_or(0), limits);
}

// A mounted cgroup hierarchy: the cgroup `root` is mounted at `mount_point`.
struct Hierarchy {
  bool unified = false;                  // whether it is a v2 hierarchy
  std::vector<std::string> controllers;  // v1 controllers, among other mount options
  std::string root, mount_point;
};

// Decodes the octal escapes of mountinfo, for example \040 for a space.
std::string Unescaped(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                      (text[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// Returns the cgroup hierarchies among the mounts. A line of mountinfo has this form:
//   36 35 98:0 ROOT MOUNT_POINT OPTIONS [TAG]... - TYPE SOURCE CONTROLLERS
std::vector<Hierarchy> ParseHierarchies(const std::string& mountinfo) {
  std::vector<Hierarchy> out;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> mount = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> file_system = absl::StrSplit(halves.second, ' ');
    if (mount.size() < 6 || file_system.size() < 3) continue;
    if (file_system[0] != "cgroup" && file_system[0] != "cgroup2") continue;
    out.push_back({file_system[0] == "cgroup2", absl::StrSplit(file_system[2], ','),
                   Unescaped(mount[3]), Unescaped(mount[4])});
  }
  return out;
}

// Returns whether the hierarchy has one of `controllers`, a comma-separated list. An empty list
// stands for the hierarchy of v2.
bool HasControllers(const Hierarchy& hierarchy, absl::string_view controllers) {
  if (controllers.empty()) return hierarchy.unified;
  if (hierarchy.unified) return false;
  const std::vector<std::string> names = absl::StrSplit(controllers, ',');
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::vector<std::string>& known = hierarchy.controllers;
    return std::find(known.begin(), known.end(), name) != known.end();
  });
}

// Returns the path of `group` relative to `root`, which is "" or begins with "/". Returns nullopt
// if the group is not below `root`, which happens if the process was moved out of the root of its
// namespace.
std::optional<std::string> PathBelow(const std::string& group, const std::string& root) {
  if (absl::StrContains(group, "..") || absl::StrContains(root, "..")) return std::nullopt;
  const absl::string_view stem = root == "/" ? "" : absl::string_view(root);
  if (!absl::StartsWith(group, stem)) return std::nullopt;
  std::string rest = group.substr(stem.size());
  if (rest == "/") rest.clear();
  if (!rest.empty() && rest[0] != '/') return std::nullopt;
  return rest;
}

int SchedulableCores() {
  // The fixed size of cpu_set_t is too small for the largest machines, so try larger sizes.
  for (int size = 1024; size <= 1 << 20; size *= 2) {
    cpu_set_t* const set = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

HostLimits ReadCgroupLimits(const std::string& root, HostLimits machine) {
  HostLimits limits = machine;
  const std::vector<Hierarchy> hierarchies =
      ParseHierarchies(Contents(root + "/proc/self/mountinfo"));
  // A line has the form `NUMBER:CONTROLLERS:GROUP`; in v2 it names no controllers.
  for (const absl::string_view line :
       absl::StrSplit(Contents(root + "/proc/self/cgroup"), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    for (const Hierarchy& hierarchy : hierarchies) {
      if (!HasControllers(hierarchy, parts[1])) continue;
      // A group outside the mounted root is not visible; use the limits of the root instead.
      std::string group = PathBelow(parts[2], hierarchy.root).value_or("");
      while (true) {
        ApplyCgroup(absl::StrCat(root, hierarchy.mount_point, group), &limits);
        if (group.empty()) break;
        group.resize(group.rfind('/'));
      }
    }
  }
  limits.memory_bytes = std::max<int64_t>(limits.memory_bytes, 0);
  return limits;
}

HostLimits ProcessLimits() {
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return ReadCgroupLimits("", {memory, SchedulableCores()});
}

void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kFilesMax);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);  // On failure the limit stays unchanged.
}

}  // namespace tessera
