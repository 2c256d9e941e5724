#include "base/host_limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera {
namespace {

constexpr rlim_t kFilesMax = 65'536;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number that the file begins with; none for "max", for -1 and where there is no such file.
std::optional<int64_t> NumberIn(const std::string& path) {
  int64_t number = -1;
  const std::string text = Contents(path);
  if (!absl::SimpleAtoi(text.substr(0, text.find_first_of(" \n")), &number) || number < 0) {
    return std::nullopt;
  }
  return number;
}

void Lessen(std::optional<int64_t> memory_bytes, HostLimits* limits) {
  if (memory_bytes.has_value()) {
    limits->memory_bytes = std::min(limits->memory_bytes, *memory_bytes);
  }
}

// `used` microseconds of processors in each `period`.
void LessenByQuota(int64_t used, int64_t period, HostLimits* limits) {
  if (used <= 0 || period <= 0) return;
  const double cores = std::ceil(static_cast<double>(used) / static_cast<double>(period));
  if (cores < limits->cores) limits->cores = std::max(static_cast<int>(cores), 1);
}

// One control group's folder, of either version: what a hierarchy does not control is not there.
void LessenByGroup(const std::string& folder, HostLimits* limits) {
  Lessen(NumberIn(folder + "/memory.max"), limits);
  Lessen(NumberIn(folder + "/memory.high"), limits);  // Beyond it the kernel slows the group down.
  Lessen(NumberIn(folder + "/memory.limit_in_bytes"), limits);
  for (const absl::string_view line : absl::StrSplit(Contents(folder + "/memory.stat"), '\n')) {
    const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t bytes = 0;
    if (words.first == "hierarchical_memory_limit" && absl::SimpleAtoi(words.second, &bytes)) {
      Lessen(bytes, limits);
    }
  }
  const std::vector<std::string> max =
      absl::StrSplit(Contents(folder + "/cpu.max"), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t used = 0, period = 0;
  if (max.size() == 2 && absl::SimpleAtoi(max[0], &used) && absl::SimpleAtoi(max[1], &period)) {
    LessenByQuota(used, period, limits);
  }
  LessenByQuota(NumberIn(folder + "/cpu.cfs_quota_us").value_or(0),
                NumberIn(folder + "/cpu.cfs_period_us").value_or(0), limits);
}

// A mounted hierarchy: the group `shown` is at `point`, the groups in it below.
struct Hierarchy {
  bool unified = false;                  // version 2
  std::vector<std::string> controllers;  // of version 1, among other options
  std::string shown, point;
};

// As the kernel writes spaces and its like in mountinfo: \040.
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

// A line is `36 35 98:0 SHOWN POINT OPTIONS [TAG]... - TYPE SOURCE CONTROLLERS`.
std::vector<Hierarchy> Hierarchies(const std::string& mountinfo) {
  std::vector<Hierarchy> out;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> mount = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> system = absl::StrSplit(halves.second, ' ');
    if (mount.size() < 6 || system.size() < 3) continue;
    if (system[0] != "cgroup" && system[0] != "cgroup2") continue;
    out.push_back({system[0] == "cgroup2", absl::StrSplit(system[2], ','), Unescaped(mount[3]),
                   Unescaped(mount[4])});
  }
  return out;
}

bool IsOf(const Hierarchy& hierarchy, absl::string_view controllers) {
  if (controllers.empty()) return hierarchy.unified;
  if (hierarchy.unified) return false;
  const std::vector<std::string> names = absl::StrSplit(controllers, ',');
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::vector<std::string>& known = hierarchy.controllers;
    return std::find(known.begin(), known.end(), name) != known.end();
  });
}

// Where `group` lies below the group that is shown: "" or "/...". None: outside, as a process that
// was moved out of its namespace's root is.
std::optional<std::string> Below(const std::string& group, const std::string& shown) {
  if (absl::StrContains(group, "..") || absl::StrContains(shown, "..")) return std::nullopt;
  const absl::string_view stem = shown == "/" ? "" : absl::string_view(shown);
  if (!absl::StartsWith(group, stem)) return std::nullopt;
  std::string rest = group.substr(stem.size());
  if (rest == "/") rest.clear();
  if (!rest.empty() && rest[0] != '/') return std::nullopt;
  return rest;
}

}  // namespace

HostLimits LimitsUnder(const std::string& root, HostLimits machine) {
  HostLimits limits = machine;
  const std::vector<Hierarchy> hierarchies = Hierarchies(Contents(root + "/proc/self/mountinfo"));
  // A line is `NUMBER:CONTROLLERS:GROUP`, without controllers in version 2.
  for (const absl::string_view line :
       absl::StrSplit(Contents(root + "/proc/self/cgroup"), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    for (const Hierarchy& hierarchy : hierarchies) {
      if (!IsOf(hierarchy, parts[1])) continue;
      // Of a group that is not shown, the one that is shown instead is the nearest that is known.
      std::string group = Below(parts[2], hierarchy.shown).value_or("");
      while (true) {
        LessenByGroup(absl::StrCat(root, hierarchy.point, group), &limits);
        if (group.empty()) break;
        group.resize(group.rfind('/'));
      }
    }
  }
  limits.memory_bytes = std::max<int64_t>(limits.memory_bytes, 0);
  return limits;
}

namespace {

int SchedulableCores() {
  // A set of a fixed size does not do on the largest machines.
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

HostLimits OwnLimits() {
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return LimitsUnder("", {memory, SchedulableCores()});
}

void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kFilesMax);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);  // What is refused leaves things as they were.
}

}  // namespace tessera
