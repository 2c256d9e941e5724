// Allocates host memory for arrays. The memory is uninitialised, aligned for SIMD, and on huge
// pages if they are available: a GiB then costs some 500 page faults instead of 262,144.
// Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera {

constexpr int64_t kHostMemoryAlignment = 64;  // bytes

// Returns memory of at least `bytes` bytes, which the caller frees with std::free. `bytes` must be
// at least 1. Returns null if there is not enough memory.
void* AllocateHostMemory(int64_t bytes);

// Returns owned memory of at least `bytes` bytes, which may be 0. Throws std::bad_alloc if there is
// not enough memory.
std::shared_ptr<std::byte[]> NewHostMemory(int64_t bytes);

}  // namespace tessera
