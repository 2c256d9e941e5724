// Measures the speed of matmuls and of copies on all cores. The CPU backend reports it to the
// coordinator (Backend::speed), whose plans predict run times with it.
#include "worker/cpu/host_speed.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/host_limits.h"
#include "base/host_memory.h"
#include "worker/cpu/onednn_matmul.h"
#include "worker/cpu/thread_pool.h"

namespace tessera::worker {
namespace {

constexpr int kRounds = 3;
constexpr int64_t kMatmulSize = 256, kMatmulsPerPiece = 4;
constexpr int64_t kCopiedBytes = 32 << 20;  // most caches are smaller

// Returns the shortest time of several rounds, in each of which `work` runs for every piece. One
// round before them warms up.
double ShortestSeconds(ThreadPool& pool, int64_t pieces, absl::FunctionRef<void(int64_t)> work) {
  pool.Run(pieces, work);
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < kRounds; ++i) {
    const absl::Time start = SteadyNow();
    pool.Run(pieces, work);
    best = std::min(best, SteadyNow() - start);
  }
  return std::max(absl::ToDoubleSeconds(best), 1e-9);
}

double MeasureFlops(ThreadPool& pool, int64_t cores) {
  OneDnnMatmul matmul;
  const int64_t elements = kMatmulSize * kMatmulSize;
  const std::vector<float> a(elements, 1.0F), b(elements, 0.5F);
  std::vector<float> c(elements * cores);
  const MatmulShape shape{.m = kMatmulSize,
                          .n = kMatmulSize,
                          .k = kMatmulSize,
                          .a_strides = {elements, kMatmulSize, 1},
                          .b_strides = {elements, kMatmulSize, 1}};
  if (!matmul.Run(shape, a.data(), b.data(), c.data())) return 0;
  const double seconds = ShortestSeconds(pool, cores, [&](int64_t piece) {
    for (int64_t i = 0; i < kMatmulsPerPiece; ++i)
      matmul.Run(shape, a.data(), b.data(), c.data() + piece * elements);
  });
  return 2.0 * static_cast<double>(elements * kMatmulSize * kMatmulsPerPiece * cores) / seconds;
}

double MeasureMemoryBandwidth(ThreadPool& pool, int64_t cores) {
  const int64_t block = kCopiedBytes / cores;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  const std::unique_ptr<char, Free> from(static_cast<char*>(AllocateHostMemory(block * cores))),
      to(static_cast<char*>(AllocateHostMemory(block * cores)));
  if (from == nullptr || to == nullptr) return 0;
  std::memset(from.get(), 1, block * cores);
  const double seconds = ShortestSeconds(pool, cores, [&](int64_t piece) {
    std::memcpy(to.get() + piece * block, from.get() + piece * block, block);
  });
  return 2.0 * static_cast<double>(block * cores) / seconds;
}

}  // namespace

const HostSpeed& MeasuredHostSpeed() {
  static const HostSpeed speed = [] {
    const int64_t cores = std::max(ProcessLimits().cores, 1);
    ThreadPool pool(static_cast<int>(cores) - 1);
    return HostSpeed{MeasureFlops(pool, cores), MeasureMemoryBandwidth(pool, cores)};
  }();
  return speed;
}

}  // namespace tessera::worker
