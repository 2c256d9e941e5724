// The arena from which the device backend allocates arrays, scratch memory and constants. The
// driver's own functions do not suit: its free waits for the device's work to end, and it does not
// give the same addresses again, for which graphs are captured.
#include "worker/device/arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/memory/memory_account.h"

namespace tessera::worker::device {

Allocation::~Allocation() {
  if (arena_ != nullptr) arena_->Free(address_, bytes_);
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Make(const Device* device, int64_t bytes) {
  bytes -= bytes % kAlignment;
  uint64_t base = 0;
  TESSERA_RETURN_IF_ERROR(
      device->Check(device->api().allocate(device->context(), bytes, &base), "the memory arena"));
  return std::unique_ptr<Arena>(new Arena(device, base, bytes));
}

Arena::Arena(const Device* device, uint64_t base, int64_t bytes)
    : device_(device), base_(base), capacity_bytes_(bytes) {
  free_regions_[base] = bytes;
  regions_by_size_.emplace(bytes, base);
  free_bytes_ = bytes;
}

Arena::~Arena() {
  {
    absl::MutexLock lock(&mu_);
    TESSERA_CHECK_EQ(free_bytes_, capacity_bytes_) << "blocks outlive their arena";
  }
  static_cast<void>(device_->api().free(device_->context(), base_));
}

// Takes the smallest free region that is large enough, and the lowest of equal ones. The choice
// depends only on the requests so far, so that a loop of launches gets the same addresses each time
// and can use its graphs. The error lists the free memory, to tell fragmentation from a full
// device.
absl::StatusOr<Allocation> Arena::Allocate(int64_t bytes, const char* what) {
  const int64_t rounded = RoundUp(std::max<int64_t>(bytes, 1));
  absl::MutexLock lock(&mu_);
  const auto it = regions_by_size_.lower_bound({rounded, 0});
  if (it == regions_by_size_.end()) {
    const int64_t largest = regions_by_size_.empty() ? 0 : regions_by_size_.rbegin()->first;
    return MakeError(
        ErrorKind::kOutOfMemory,
        absl::StrCat(device_->name(), ": ", what, " wants ", BytesToString(bytes), "; ",
                     BytesToString(free_bytes_), " of ", BytesToString(capacity_bytes_),
                     " are free, the largest piece ", BytesToString(largest)));
  }
  const auto [size, address] = *it;
  regions_by_size_.erase(it);
  free_regions_.erase(address);
  if (size > rounded) {
    free_regions_[address + rounded] = size - rounded;
    regions_by_size_.emplace(size - rounded, address + rounded);
  }
  free_bytes_ -= rounded;
  Allocation allocation;
  allocation.arena_ = this;
  allocation.address_ = address;
  allocation.bytes_ = rounded;
  return allocation;
}

void Arena::Free(uint64_t address, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  free_bytes_ += bytes;
  auto next = free_regions_.lower_bound(address);
  if (next != free_regions_.end() && next->first == address + bytes) {
    bytes += next->second;
    regions_by_size_.erase({next->second, next->first});
    next = free_regions_.erase(next);
  }
  if (next != free_regions_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      address = previous->first;
      bytes += previous->second;
      regions_by_size_.erase({previous->second, previous->first});
      free_regions_.erase(previous);
    }
  }
  free_regions_[address] = bytes;
  regions_by_size_.emplace(bytes, address);
}

int64_t Arena::free_bytes() const {
  absl::MutexLock lock(&mu_);
  return free_bytes_;
}

}  // namespace tessera::worker::device
