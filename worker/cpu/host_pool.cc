// Free lists of host memory by size class. cpu_backend.cc allocates results, arenas and uploaded
// arrays here, so that later runs find pages that are already mapped.
#include "worker/cpu/host_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/host_memory.h"
#include "base/log.h"

namespace tessera::worker {
namespace {

// The pool keeps no blocks smaller than this, since malloc has free lists for them itself.
constexpr int64_t kCachedBlockBytesMin = 4096;

int64_t SizeClassOf(int64_t bytes) {
  const int64_t step = std::max<int64_t>(
      HostPool::kAlignment, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8);
  return (bytes + step - 1) / step * step;
}

void* AllocateOrAbort(int64_t bytes) {
  void* const p = AllocateHostMemory(bytes);
  TESSERA_CHECK(p != nullptr) << "no memory for " << bytes << " bytes";
  return p;
}

}  // namespace

// The free lists. Each allocation holds a reference to them, so that allocations may outlive the
// pool.
struct HostPool::FreeLists {
  explicit FreeLists(int64_t max) : cached_bytes_max(max) {}
  ~FreeLists() {
    for (auto& [size, blocks] : blocks_by_size)
      for (void* p : blocks) std::free(p);
  }

  void* Take(int64_t size) {
    {
      absl::MutexLock lock(&mu);
      const auto found = blocks_by_size.find(size);
      if (found != blocks_by_size.end() && !found->second.empty()) {
        void* p = found->second.back();
        found->second.pop_back();
        cached_bytes -= size;
        return p;
      }
    }
    return AllocateOrAbort(size);
  }
  void Put(void* p, int64_t size) {
    {
      absl::MutexLock lock(&mu);
      if (cached_bytes + size <= cached_bytes_max) {
        blocks_by_size[size].push_back(p);
        cached_bytes += size;
        return;
      }
    }
    std::free(p);
  }

  const int64_t cached_bytes_max;
  absl::Mutex mu;
  int64_t cached_bytes ABSL_GUARDED_BY(mu) = 0;
  std::map<int64_t, std::vector<void*>> blocks_by_size ABSL_GUARDED_BY(mu);
};

HostPool::HostPool(int64_t cached_bytes_max)
    : free_lists_(std::make_shared<FreeLists>(cached_bytes_max)) {}

std::shared_ptr<std::byte[]> HostPool::Allocate(int64_t bytes) {
  const int64_t size = SizeClassOf(std::max<int64_t>(bytes, 1));
  if (size < kCachedBlockBytesMin) {
    return {static_cast<std::byte*>(AllocateOrAbort(size)), [](std::byte* p) { std::free(p); }};
  }
  return {static_cast<std::byte*>(free_lists_->Take(size)),
          [lists = free_lists_, size](std::byte* p) { lists->Put(p, size); }};
}

int64_t HostPool::cached_bytes() const {
  absl::MutexLock lock(&free_lists_->mu);
  return free_lists_->cached_bytes;
}

}  // namespace tessera::worker
