// The pool of pinned buffers into which launches copy small results. device_backend.cc takes a slot
// per result; a result that gets none is copied when it is read.
#include "worker/device/pinned_slots.h"

#include "base/status.h"

namespace tessera::worker::device {

absl::StatusOr<std::unique_ptr<PinnedSlots>> PinnedSlots::Make(const Device* device, int slots,
                                                               int64_t slot_bytes) {
  void* base = nullptr;
  TESSERA_RETURN_IF_ERROR(
      device->Check(device->api().allocate_host(device->context(), slots * slot_bytes, &base),
                    "pinned memory for results"));
  std::unique_ptr<PinnedSlots> pool(new PinnedSlots(device, base));
  absl::MutexLock lock(&pool->mu_);
  for (int i = 0; i < slots; ++i) {
    pool->free_slots_.push_back(static_cast<std::byte*>(base) + i * slot_bytes);
  }
  return pool;
}

PinnedSlots::~PinnedSlots() {
  static_cast<void>(device_->api().free_host(device_->context(), base_));
}

PinnedSlotRef PinnedSlots::Take() {
  absl::MutexLock lock(&mu_);
  if (free_slots_.empty()) return nullptr;
  std::byte* const address = free_slots_.back();
  free_slots_.pop_back();
  return {address, [this](std::byte* slot) {
            absl::MutexLock lock(&mu_);
            free_slots_.push_back(slot);
          }};
}

}  // namespace tessera::worker::device
