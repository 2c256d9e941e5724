// The allocator of page runs for code_memory.cc: best fit, with neighbouring free runs joined at
// once. Joining keeps the free runs few and large while code is loaded and unloaded.
#include "worker/codegen/page_runs.h"

#include <iterator>

namespace tessera::worker::codegen {

PageRuns::PageRuns(PageRun span) { Insert(span); }

std::optional<PageRun> PageRuns::Take(uintptr_t bytes) {
  const auto at = begin_by_size_.lower_bound({bytes, 0});
  if (at == begin_by_size_.end()) return std::nullopt;
  const PageRun run{at->second, at->second + at->first};
  const PageRun taken{run.begin, run.begin + bytes};
  Erase(run);
  if (taken.end < run.end) Insert({taken.end, run.end});
  return taken;
}

PageRun PageRuns::Give(PageRun taken) {
  PageRun run = taken;
  const auto after = end_of_.lower_bound(taken.begin);
  if (after != end_of_.end() && after->first == taken.end) run.end = after->second;
  if (after != end_of_.begin()) {
    const auto before = std::prev(after);
    if (before->second == taken.begin) run.begin = before->first;
  }
  if (run.begin < taken.begin) Erase({run.begin, taken.begin});
  if (run.end > taken.end) Erase({taken.end, run.end});
  Insert(run);
  return run;
}

void PageRuns::Insert(PageRun run) {
  end_of_[run.begin] = run.end;
  begin_by_size_.insert({run.bytes(), run.begin});
}

void PageRuns::Erase(PageRun run) {
  end_of_.erase(run.begin);
  begin_by_size_.erase({run.bytes(), run.begin});
}

}  // namespace tessera::worker::codegen
