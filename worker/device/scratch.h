// The scratch memory of a device. Launches run one after the other, so all of them use the same
// memory, which is as large as the largest need so far.
//
// It is replaced by a larger one only when no launch uses it: the old memory is freed first, so
// that the two need not fit at the same time. It is given back when memory is short. Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/device/arena.h"

namespace tessera::worker::device {

using AllocationRef = std::shared_ptr<const Allocation>;

class Scratch {
 public:
  // `allocate` returns memory of at least this size, or OUT_OF_MEMORY.
  explicit Scratch(std::function<absl::StatusOr<AllocationRef>(int64_t bytes)> allocate)
      : allocate_(std::move(allocate)) {}

  // Returns memory of at least this size, which is in use until all copies of the result are gone.
  // Returns null for 0 bytes. Returns OUT_OF_MEMORY if a larger one does not fit, or if the present
  // one is too small and in use.
  absl::StatusOr<AllocationRef> Reserve(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Frees the memory if it is not in use. Returns whether any was freed.
  bool GiveBack() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // References are made only under mu_, so an unused memory stays unused while mu_ is held.
  bool IsInUse() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return memory_.use_count() > 1; }

  const std::function<absl::StatusOr<AllocationRef>(int64_t bytes)> allocate_;
  absl::Mutex mu_;
  AllocationRef memory_ ABSL_GUARDED_BY(mu_);  // null if there is none
};

}  // namespace tessera::worker::device
