// Shares the work of a step among threads, and checks between two pieces whether to stop. The work
// runs on the calling thread and on helpers of the pool. The call returns when every piece has
// ended or has been left out.
#pragma once
#include <algorithm>
#include <cstdint>

#include "worker/cpu/grain.h"
#include "worker/cpu/thread_pool.h"

namespace tessera::worker {

// Calls `work(begin, end)` for parts of [0, n), on at most `num_threads` threads. `cost_each` is
// the cost of one index, in the unit of `grain`. Once `is_stopped()` is true, the parts that have
// not begun are left out.
template <class IsStopped, class Work>
void ParallelFor(ThreadPool& threads, int num_threads, int64_t n, int64_t cost_each, Grain grain,
                 const IsStopped& is_stopped, const Work& work) {
  const int64_t total_cost = n * cost_each;
  if (total_cost < 2 * grain.min || num_threads == 1 || n == 1) {
    const int64_t at_once = std::max<int64_t>(grain.max / std::max<int64_t>(cost_each, 1), 1);
    for (int64_t i = 0; i < n && !is_stopped(); i += at_once) work(i, std::min(n, i + at_once));
    return;
  }
  // Each thread gets the same number of pieces. It gets more than one if the cancellation flag must
  // be polled during its work.
  int64_t pieces = std::min<int64_t>({n, total_cost / grain.min, num_threads});
  pieces *= std::max<int64_t>(total_cost / pieces / grain.max, 1);
  pieces = std::min(pieces, n);
  threads.Run(pieces, [&](int64_t i) {
    if (!is_stopped()) work(n * i / pieces, n * (i + 1) / pieces);
  });
}

}  // namespace tessera::worker
