// Host memory for arrays and arenas: aligned, not zeroed, and kept for the next allocation of its
// size, so that a program that runs again uses pages that are already mapped.
//
// Sizes are rounded up to classes an eighth apart; what is freed is kept by class up to a bound,
// and given back to the system beyond it. Thread-safe. Blocks may outlive the pool.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/host_memory.h"

namespace tessera::worker {

class HostPool {
 public:
  static constexpr int64_t kAlignment = kHostMemoryAlignment;

  explicit HostPool(int64_t kept_bytes_max);

  // At least one byte. Ends the process if the system has no memory: MemoryAccount was asked
  // before.
  std::shared_ptr<std::byte[]> Allocate(int64_t bytes);
  // What is kept for reuse.
  int64_t kept_bytes() const;

 private:
  struct Shelf;
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace tessera::worker
