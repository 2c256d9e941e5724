// Host memory for arrays and arenas, which is aligned and not zeroed. After use it is kept for the
// next allocation of its size, so that a program that runs again uses pages that are already
// mapped.
//
// Sizes are rounded up to size classes, eight for each power of two. Freed memory is kept in a free
// list per class up to a bound. Beyond the bound it is returned to the system. Thread-safe.
// Allocations may outlive the pool.
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

  // Aborts the process if there is no memory, because the caller has reserved the bytes from
  // MemoryAccount.
  std::shared_ptr<std::byte[]> Allocate(int64_t bytes);
  // Returns the bytes in the free lists.
  int64_t cached_bytes() const;

 private:
  struct FreeLists;
  const std::shared_ptr<FreeLists> free_lists_;
};

}  // namespace tessera::worker
