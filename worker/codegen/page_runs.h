// The free pages of a span of memory, as runs that do not touch each other. Thread-compatible.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tessera::worker::codegen {

// The addresses begin <= a < end.
struct PageRun {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uintptr_t bytes() const { return end - begin; }
  bool operator==(const PageRun&) const = default;
};

class PageRuns {
 public:
  // All of `span` is free.
  explicit PageRuns(PageRun span);

  // Takes `bytes` from the front of the smallest run that has as many, the lowest of equals; none
  // if no run has. Requires: bytes > 0.
  std::optional<PageRun> Take(uintptr_t bytes);
  // Returns the free run that `taken` now is part of.
  PageRun Give(PageRun taken);

 private:
  void Insert(PageRun run);
  void Erase(PageRun run);

  std::map<uintptr_t, uintptr_t> end_of_;                    // by begin
  std::set<std::pair<uintptr_t, uintptr_t>> begin_by_size_;  // (bytes, begin)
};

}  // namespace tessera::worker::codegen
