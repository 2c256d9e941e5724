// Adds the metrics of the process itself, read from /proc/self. They have the names and meanings
// that the process collectors of Prometheus client libraries use. The collectors of the coordinator
// and of a worker's daemon call CollectProcess.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"

namespace tessera {
namespace {

// Returns the contents of a file of /proc, or "" if it cannot be read.
std::string Contents(const char* path) {
  constexpr size_t kBytesMax = size_t{16} << 20;  // /proc/stat grows with the number of interrupts
  return ReadWholeFile(path, kBytesMax).value_or("");
}

int CountFds() {
  DIR* const dir = opendir("/proc/self/fd");
  if (dir == nullptr) return 0;
  int count = -3;  // ".", ".." and the descriptor of opendir do not count
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

// Returns the boot time of the machine, in seconds since 1970.
double BootTime() {
  for (const absl::string_view line : absl::StrSplit(Contents("/proc/stat"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    double seconds = 0;
    if (words.size() == 2 && words[0] == "btime" && absl::SimpleAtod(words[1], &seconds)) {
      return seconds;
    }
  }
  return 0;
}

}  // namespace

// Leaves out the values that cannot be read, because a metric that is missing is better than one
// that is wrong. Start times in /proc count from the boot of the machine, so its boot time is
// added.
void CollectProcess(SampleSink& sink, std::string_view grpc_version) {
  // Parsing starts after field 2 of proc(5), the name in parentheses, which may contain spaces.
  const std::string stat = Contents("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end != std::string::npos) {
    const std::vector<std::string> words =
        absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
    const auto field = [&](size_t number) {  // `number` counts as in proc(5)
      double value = 0;
      if (number - 3 >= words.size() || !absl::SimpleAtod(words[number - 3], &value)) return 0.0;
      return value;
    };
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    sink.Add(Metric::kProcessCpu, {}, (field(14) + field(15)) / ticks);
    sink.Add(Metric::kThreads, {}, field(20));
    sink.Add(Metric::kProcessStart, {}, BootTime() + field(22) / ticks);
    sink.Add(Metric::kProcessVirtual, {}, field(23));
    sink.Add(Metric::kProcessResident, {}, field(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  sink.Add(Metric::kProcessFds, {}, CountFds());
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    sink.Add(Metric::kProcessFdsMax, {}, static_cast<double>(limit.rlim_cur));
  }
  sink.Add(Metric::kLogDropped, {}, static_cast<double>(LogLinesDropped()));
  sink.Add(Metric::kBuildInfo, {TESSERA_VERSION, TESSERA_REVISION, __VERSION__, grpc_version}, 1);
}

}  // namespace tessera
