// Host memory for arrays and arenas, which is aligned and not zeroed. Memory that is freed is kept
// for the next allocation of its size, so that a program that runs again uses pages that are
// already mapped.
//
// Sizes are rounded up to size classes, eight for each power of two. Each class has a free list.
// All free lists together keep at most `cached_bytes_max`, and memory beyond that is returned to
// the system. Thread-safe. Allocations may outlive the pool.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/host_memory.h"

namespace tessera::worker {

class HostPool {
 public:
  static constexpr int64_t kAlignment = kHostMemoryAlignment;

  explicit HostPool(int64_t cached_bytes_max);

  // Requires: the caller has reserved the bytes from MemoryAccount. A failure to allocate is
  // therefore a bug, and aborts the process.
  std::shared_ptr<std::byte[]> Allocate(int64_t bytes);
  // Returns the bytes in the free lists.
  int64_t cached_bytes() const;

 private:
  struct FreeLists;
  const std::shared_ptr<FreeLists> free_lists_;
};

}  // namespace tessera::worker
