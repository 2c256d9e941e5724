// What the kernel says of this process.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"

namespace tessera {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

int CountFds() {
  DIR* const dir = opendir("/proc/self/fd");
  if (dir == nullptr) return 0;
  int count = -3;  // ".", ".." and this one
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

// When the machine started, in seconds since 1970.
double BootTime() {
  for (const absl::string_view line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    double seconds = 0;
    if (words.size() == 2 && words[0] == "btime" && absl::SimpleAtod(words[1], &seconds)) {
      return seconds;
    }
  }
  return 0;
}

}  // namespace

void CollectProcess(Scrape& scrape, std::string_view grpc) {
  // Numbers of /proc/self/stat, counted from the one after the name in brackets, which may hold
  // anything.
  const std::string stat = ReadAll("/proc/self/stat");
  const size_t bracket = stat.rfind(')');
  if (bracket != std::string::npos) {
    const std::vector<std::string> words =
        absl::StrSplit(stat.substr(bracket + 1), ' ', absl::SkipEmpty());
    const auto number = [&](size_t field) {  // as proc(5) counts
      double value = 0;
      if (field - 3 >= words.size() || !absl::SimpleAtod(words[field - 3], &value)) return 0.0;
      return value;
    };
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    scrape.Add(Metric::kProcessCpu, {}, (number(14) + number(15)) / ticks);
    scrape.Add(Metric::kThreads, {}, number(20));
    scrape.Add(Metric::kProcessStart, {}, BootTime() + number(22) / ticks);
    scrape.Add(Metric::kProcessVirtual, {}, number(23));
    scrape.Add(Metric::kProcessResident, {},
               number(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  scrape.Add(Metric::kProcessFds, {}, CountFds());
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    scrape.Add(Metric::kProcessFdsMax, {}, static_cast<double>(limit.rlim_cur));
  }
  scrape.Add(Metric::kLogDropped, {}, static_cast<double>(LogLinesDropped()));
  scrape.Add(Metric::kBuildInfo, {TESSERA_VERSION, TESSERA_REVISION, __VERSION__, grpc}, 1);
}

}  // namespace tessera
