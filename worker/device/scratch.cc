// The memory that the launches of a device share. DeviceBackend::ReserveMemory takes it for each
// launch, and the executor waits for earlier launches if it must be replaced.
#include "worker/device/scratch.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/memory/memory_account.h"

namespace tessera::worker::device {

absl::StatusOr<AllocationRef> Scratch::Reserve(int64_t bytes) {
  if (bytes == 0) return AllocationRef();
  absl::MutexLock lock(&mu_);
  if (memory_ != nullptr && memory_->bytes() >= bytes) return memory_;
  if (memory_ != nullptr && IsInUse()) {
    return MakeError(ErrorKind::kOutOfMemory,
                     absl::StrCat("scratch memory of ", BytesToString(bytes),
                                  " is needed, and launches still use the present ",
                                  BytesToString(memory_->bytes())));
  }
  memory_ = nullptr;
  TESSERA_ASSIGN_OR_RETURN(memory_, allocate_(bytes));
  return memory_;
}

bool Scratch::GiveBack() {
  absl::MutexLock lock(&mu_);
  if (memory_ == nullptr || IsInUse()) return false;
  memory_ = nullptr;
  return true;
}

}  // namespace tessera::worker::device
