// Host memory for arrays: not cleared, aligned for vector code, and on huge pages where the system
// gives them. A GiB then costs some 500 page faults, not 262,144. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera {

constexpr int64_t kHostMemoryAlignment = 64;  // bytes

// At least `bytes` >= 1 bytes, to be freed with std::free. Null if the system has no memory left.
void* AllocateHostMemory(int64_t bytes);

// The same, owned; `bytes` may be 0. Throws std::bad_alloc.
std::shared_ptr<std::byte[]> NewHostMemory(int64_t bytes);

}  // namespace tessera
