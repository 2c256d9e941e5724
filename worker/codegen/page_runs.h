// The free pages of a span of memory, kept as runs that do not touch each other. Thread-compatible.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tessera::worker::codegen {

// The memory at the addresses begin <= a < end.
struct PageRun {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uintptr_t bytes() const { return end - begin; }
  bool operator==(const PageRun&) const = default;
};

class PageRuns {
 public:
  // All of `span` is free at first.
  explicit PageRuns(PageRun span);

  // Takes `bytes` from the front of the smallest run that is large enough, and of equal runs from
  // the lowest one. Returns nullopt if no run is large enough. Requires: bytes > 0.
  std::optional<PageRun> Take(uintptr_t bytes);
  // Gives back a run that was taken. Returns the free run that it is now part of.
  PageRun Give(PageRun taken);

 private:
  void Insert(PageRun run);
  void Erase(PageRun run);

  // The end of each free run, by its begin.
  std::map<uintptr_t, uintptr_t> end_of_;
  // The free runs as (bytes, begin).
  std::set<std::pair<uintptr_t, uintptr_t>> begin_by_size_;
};

}  // namespace tessera::worker::codegen
