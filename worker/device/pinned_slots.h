// A pool of small pinned host buffers, for results that are copied as part of a launch.
// Thread-safe; it outlives its slots.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/device/device.h"

namespace tessera::worker::device {

// The address of a slot. When the last reference goes, the slot returns to the pool.
using PinnedSlotRef = std::shared_ptr<std::byte>;

class PinnedSlots {
 public:
  static absl::StatusOr<std::unique_ptr<PinnedSlots>> Make(const Device* device, int slots,
                                                           int64_t slot_bytes);
  ~PinnedSlots();

  // Returns null if all slots are in use.
  PinnedSlotRef Take() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  PinnedSlots(const Device* device, void* base) : device_(device), base_(base) {}

  const Device* const device_;
  void* const base_;
  absl::Mutex mu_;
  std::vector<std::byte*> free_slots_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::device
