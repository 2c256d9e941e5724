// The memory of the fake devices, and pinned memory of the host.
//
// A device address is not a valid host address: it has bits set that no pointer has, so that the
// host faults at once if it uses one. Addresses are never reused. Work that uses memory holds it;
// to free memory while it is held is a violation, and the memory stays until it is released.
//
// Any thread.
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
  // `device` is -1 for pinned memory of the host, whose address is that of the bytes.
  Allocation(int device, uint64_t address, size_t bytes);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  int device() const { return device_; }
  uint64_t address() const { return address_; }
  size_t size() const { return size_; }
  std::byte* data() const { return data_; }
  // Whether the guard bytes before and after it are intact.
  bool Intact() const;

  std::atomic<bool> freed{false};
  std::atomic<int> users{0};  // Work that is enqueued or runs.

 private:
  const int device_;
  const size_t size_;
  std::byte* const block_;
  std::byte* const data_;
  const uint64_t address_;
};

// A place in memory of either kind.
struct Place {
  std::shared_ptr<Allocation> allocation;
  std::byte* data = nullptr;
};

bool IsDeviceAddress(uint64_t address);

// 0 if the device has too little left.
uint64_t AllocateDevice(int device, size_t bytes);
// False if there is no such allocation on the device.
bool FreeDevice(int device, uint64_t address);
size_t FreeBytes(int device);
// Frees everything that is allocated on the device, as the driver does when its context ends.
void FreeAll(int device);

void* AllocatePinned(size_t bytes);
bool FreePinned(void* address);

// The bytes from `address` on, on device `device`; an empty place where they are not all inside one
// live allocation.
TESSERA_FAKE_EXPORT Place FindDevice(int device, uint64_t address, size_t bytes);
Place FindPinned(const void* address, size_t bytes);

}  // namespace tessera::fakes
