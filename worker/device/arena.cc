// The arena from which the device backend allocates arrays, scratch memory and constants. The
// driver's own functions do not suit: its free waits for the device's work to end, and it does not
// give the same addresses again, for which graphs are captured.
#include "worker/device/arena.h"

#include <algorithm>
#include <iterator>

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
  absl::MutexLock lock(&mu_);
  AddRegion(base, bytes);
  free_bytes_ = bytes;
}

Arena::~Arena() {
  {
    absl::MutexLock lock(&mu_);
    TESSERA_CHECK_EQ(free_bytes_, capacity_bytes_) << "blocks outlive their arena";
  }
  static_cast<void>(device_->api().free(device_->context(), base_));
}

void Arena::AddRegion(uint64_t address, int64_t bytes) {
  free_regions_[address] = bytes;
  regions_by_size_.emplace(bytes, address);
}

int64_t Arena::TakeRegion(uint64_t address) {
  const auto region = free_regions_.find(address);
  const int64_t bytes = region->second;
  regions_by_size_.erase({bytes, address});
  free_regions_.erase(region);
  return bytes;
}

// If several regions of the smallest size are large enough, takes the lowest. The choice depends
// only on the requests so far, so that a loop of launches gets the same addresses each time and can
// use its graphs. The error lists the free memory, to tell fragmentation from a full device.
absl::StatusOr<Allocation> Arena::Allocate(int64_t bytes, const char* what, Place place) {
  const int64_t rounded = AllocationBytes(bytes);
  absl::MutexLock lock(&mu_);
  const auto best = regions_by_size_.lower_bound({rounded, 0});
  if (best == regions_by_size_.end()) {
    const int64_t largest = regions_by_size_.empty() ? 0 : regions_by_size_.rbegin()->first;
    return MakeError(
        ErrorKind::kOutOfMemory,
        absl::StrCat(device_->name(), ": ", what, " wants ", BytesToString(bytes), "; ",
                     BytesToString(free_bytes_), " of ", BytesToString(capacity_bytes_),
                     " are free, the largest piece ", BytesToString(largest)));
  }
  uint64_t region = best->second;
  if (place == Place::kTop) {
    const auto fits = [&](const auto& entry) { return entry.second >= rounded; };
    region = std::find_if(free_regions_.rbegin(), free_regions_.rend(), fits)->first;
  }
  const int64_t rest = TakeRegion(region) - rounded;
  Allocation allocation;
  allocation.arena_ = this;
  allocation.address_ = place == Place::kTop ? region + rest : region;
  allocation.bytes_ = rounded;
  if (rest > 0) AddRegion(place == Place::kTop ? region : region + rounded, rest);
  free_bytes_ -= rounded;
  return allocation;
}

void Arena::Free(uint64_t address, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  free_bytes_ += bytes;
  const auto next = free_regions_.lower_bound(address);
  const bool follows_region =
      next != free_regions_.begin() && std::prev(next)->first + std::prev(next)->second == address;
  const uint64_t previous = follows_region ? std::prev(next)->first : address;
  if (next != free_regions_.end() && next->first == address + bytes)
    bytes += TakeRegion(next->first);
  if (follows_region) bytes += TakeRegion(previous);
  AddRegion(previous, bytes);
}

int64_t Arena::free_bytes() const {
  absl::MutexLock lock(&mu_);
  return free_bytes_;
}

}  // namespace tessera::worker::device
