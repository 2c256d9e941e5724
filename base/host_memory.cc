// Allocates memory on the host for the arrays of CPU devices, and for the buffers in which workers
// read, write and transfer arrays.
#include "base/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tessera {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

}  // namespace

void* AllocateHostMemory(int64_t bytes) {
  // From two huge pages on, rounding up to whole pages adds at most half of the wanted size.
  const bool huge = bytes >= 2 * kHugePageBytes;
  const int64_t alignment = huge ? kHugePageBytes : kHostMemoryAlignment;
  void* const p =
      std::aligned_alloc(static_cast<size_t>(alignment),
                         static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
  if (huge && p != nullptr) madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // only a hint
  return p;
}

std::shared_ptr<std::byte[]> NewHostMemory(int64_t bytes) {
  void* const p = AllocateHostMemory(std::max<int64_t>(bytes, 1));
  if (p == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(p), [](std::byte* q) { std::free(q); }};
}

}  // namespace tessera
