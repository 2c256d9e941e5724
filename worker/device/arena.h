// An allocator over one large region of a device's memory. Allocating and freeing need no call of
// the driver. The same sequence of requests gives the same addresses, so that the launches of a
// training loop use the same few sets of addresses again, and can reuse their graphs
// (executable.h).
//
// It allocates by best fit, and coalesces free neighbours. An allocation that may be replaced by a
// larger one goes to the top, where the free memory below it is free for the larger one as well.
// The owner of an allocation frees it once the device has finished with it. Thread-safe; the arena
// outlives its allocations.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/device/device.h"

namespace tessera::worker::device {

class Arena;

// Memory from the arena, which the destructor gives back. Move-only.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Allocation&& other) noexcept { *this = std::move(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Allocation();

  uint64_t address() const { return address_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  uint64_t address_ = 0;
  int64_t bytes_ = 0;
};

class Arena {
 public:
  static constexpr int64_t kAlignment = 256;
  static int64_t RoundUp(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Returns how many bytes an allocation of this size takes.
  static int64_t AllocationBytes(int64_t bytes) { return RoundUp(std::max<int64_t>(bytes, 1)); }

  // Allocates `bytes` of the device's memory. Returns OUT_OF_MEMORY if the device has less.
  static absl::StatusOr<std::unique_ptr<Arena>> Make(const Device* device, int64_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Where an allocation goes: into the smallest free region that is large enough, or to the end of
  // the highest one.
  enum class Place : uint8_t { kBestFit, kTop };
  // Allocates at least `bytes`, which may be 0. Returns OUT_OF_MEMORY, which names `what`, the free
  // bytes and the largest free region.
  absl::StatusOr<Allocation> Allocate(int64_t bytes, const char* what,
                                      Place place = Place::kBestFit) ABSL_LOCKS_EXCLUDED(mu_);

  int64_t capacity_bytes() const { return capacity_bytes_; }
  int64_t free_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class Allocation;
  Arena(const Device* device, uint64_t base, int64_t bytes);
  void Free(uint64_t address, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void AddRegion(uint64_t address, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the region that begins at this address, and returns its bytes.
  int64_t TakeRegion(uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Device* const device_;
  const uint64_t base_;
  const int64_t capacity_bytes_;
  mutable absl::Mutex mu_;
  // The bytes of each free region, by its address.
  std::map<uint64_t, int64_t> free_regions_ ABSL_GUARDED_BY(mu_);
  // The entries of free_regions_, as (bytes, address).
  std::set<std::pair<int64_t, uint64_t>> regions_by_size_ ABSL_GUARDED_BY(mu_);
  int64_t free_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::worker::device
