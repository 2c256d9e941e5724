// Reads about processes from /proc, for tests that kill processes or wait for their end.
#include "base/testing/processes.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace tessera::testing {
namespace {

std::string ProcPath(int pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

}  // namespace

std::vector<int> ChildrenOf(int pid) {
  std::vector<int> children;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(ProcPath(pid, "task"), gone)) {
    std::ifstream in(task.path() / "children");
    for (int child = 0; in >> child;) children.push_back(child);
  }
  return children;
}

std::vector<int> DescendantsOf(int pid) {
  std::vector<int> all = ChildrenOf(pid);
  for (size_t i = 0; i < all.size(); ++i) {
    for (const int child : ChildrenOf(all[i])) all.push_back(child);
  }
  return all;
}

bool HasEnded(int pid) {
  std::ifstream stat(ProcPath(pid, "stat"));
  std::string line;
  return !std::getline(stat, line) || line.find(") Z ") != std::string::npos;
}

int64_t CpuTicks(int pid) {
  std::ifstream stat(ProcPath(pid, "stat"));
  std::string field;
  int64_t user = 0, system = 0;
  for (int i = 0; i < 13; ++i) stat >> field;
  stat >> user >> system;
  return user + system;
}

}  // namespace tessera::testing
