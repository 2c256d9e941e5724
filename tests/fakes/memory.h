// The memory of the fake devices, and pinned memory of the host.
//
// A device address is not a valid host address: some of its bits are never set in a pointer, so
// that the host faults at once if it uses one. Addresses are never reused. Enqueued work holds the
// memory that it uses. Freeing memory while it is held is a violation, and the memory stays until
// the work releases it.
//
// Thread-safe.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/control.h"

namespace tessera::fakes {

class Allocation {
 public:
  // `device` is -1 for pinned memory of the host, whose address is the address of its bytes.
  Allocation(int device, uint64_t address, size_t bytes);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  int device() const { return device_; }
  uint64_t address() const { return address_; }
  size_t size() const { return size_; }
  std::byte* data() const { return data_; }
  // Returns whether the guard bytes before and after the allocation are intact.
  bool Intact() const;

  std::atomic<bool> freed{false};
  std::atomic<int> num_users{0};  // number of pieces of work that are enqueued or run

 private:
  const int device_;
  const size_t size_;
  std::byte* const block_;
  std::byte* const data_;
  const uint64_t address_;
};

// A place in device memory or pinned memory: the allocation, and the host address of a byte in it.
// A place without an allocation is empty.
struct Place {
  std::shared_ptr<Allocation> allocation;
  std::byte* data = nullptr;
};

bool IsDeviceAddress(uint64_t address);

// Returns 0 if the device has too little memory left.
uint64_t AllocateDevice(int device, size_t bytes);
// Returns false if no allocation of the device begins at this address.
bool FreeDevice(int device, uint64_t address);
// Returns the size of the device's memory that is not allocated.
size_t NumFreeBytes(int device);
// Frees everything that is allocated on the device, as the driver does when its context ends.
void FreeAll(int device);

void* AllocatePinned(size_t bytes);
bool FreePinned(void* address);

// Returns the place of the `bytes` bytes from `address` on, on this device. Returns an empty place
// if they are not all inside one live allocation.
TESSERA_FAKE_EXPORT Place FindDevice(int device, uint64_t address, size_t bytes);
Place FindPinned(const void* address, size_t bytes);

}  // namespace tessera::fakes
