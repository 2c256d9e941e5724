// Keeps the allocations of every fake device and of pinned memory in maps by address. The driver
// calls this to allocate, to free, and to translate device addresses to host memory. Allocations
// have guard bytes on both sides, which are checked after each kernel and when memory is freed.
#include "tests/fakes/memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace tessera::fakes {
namespace {

// These bits make an address non-canonical on x86-64 and arm64, so the host faults if it uses one.
constexpr uint64_t kTag = 0x7e00'0000'0000'0000;
constexpr uint64_t kTagMask = 0xff00'0000'0000'0000;
constexpr int kDeviceShift = 44;
constexpr size_t kAlignment = 256;

// The number of guard bytes on each side of an allocation.
constexpr size_t kFenceBytes = 256;
constexpr auto kFenceByte = std::byte{0xfe};
// New memory is filled with a pattern, so that reading it before writing is noticed. Larger arenas
// stay as the system gives them.
constexpr size_t kFilledMax = size_t{16} << 20;
constexpr auto kFreshByte = std::byte{0xa5};

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

using Map = std::map<uint64_t, std::shared_ptr<Allocation>>;

// The heap is never destroyed, because threads of streams outlive main.
struct Heap {
  std::mutex mutex;
  std::map<int, Map> devices;
  std::map<int, uint64_t> next;  // offset of the next allocation, by device
  std::map<int, size_t> used_bytes;
  Map pinned;
};
Heap& TheHeap() {
  static auto* const heap = new Heap;
  return *heap;
}

Place FindIn(const Map& map, uint64_t address, size_t bytes) {
  auto it = map.upper_bound(address);
  if (it == map.begin()) return {};
  const std::shared_ptr<Allocation>& allocation = (--it)->second;
  const uint64_t offset = address - allocation->address();
  if (offset > allocation->size() || bytes > allocation->size() - offset) return {};
  return {allocation, allocation->data() + offset};
}

// Removes the allocation that starts at `address` from `map`.
std::shared_ptr<Allocation> RemoveAllocation(Map& map, uint64_t address) {
  const auto it = map.find(address);
  if (it == map.end()) return nullptr;
  std::shared_ptr<Allocation> taken = std::move(it->second);
  map.erase(it);
  taken->freed = true;
  return taken;
}

void CheckFreed(const Allocation& allocation) {
  if (const int users = allocation.num_users) {
    ReportViolation("memory at %#" PRIx64
                    " (%zu bytes) is freed while %d piece%s of enqueued work "
                    "use%s it",
                    allocation.address(), allocation.size(), users, users == 1 ? "" : "s",
                    users == 1 ? "s" : "");
  }
  if (!allocation.Intact()) {
    ReportViolation("something was written outside the memory at %#" PRIx64 " (%zu bytes)",
                    allocation.address(), allocation.size());
  }
}

}  // namespace

Allocation::Allocation(int device, uint64_t address, size_t bytes)
    : device_(device),
      size_(bytes),
      block_(static_cast<std::byte*>(aligned_alloc(kAlignment, RoundUp(bytes) + 2 * kFenceBytes))),
      data_(block_ + kFenceBytes),
      address_(device < 0 ? reinterpret_cast<uint64_t>(data_) : address) {
  if (block_ == nullptr) abort();
  std::fill_n(block_, kFenceBytes, kFenceByte);
  std::fill_n(data_ + size_, kFenceBytes, kFenceByte);
  if (size_ <= kFilledMax) std::fill_n(data_, size_, kFreshByte);
}

Allocation::~Allocation() { free(block_); }

bool Allocation::Intact() const {
  const auto is_fence = [](std::byte byte) { return byte == kFenceByte; };
  return std::all_of(block_, block_ + kFenceBytes, is_fence) &&
         std::all_of(data_ + size_, data_ + size_ + kFenceBytes, is_fence);
}

bool IsDeviceAddress(uint64_t address) { return (address & kTagMask) == kTag; }

uint64_t AllocateDevice(int device, size_t bytes) {
  Heap& heap = TheHeap();
  const std::lock_guard<std::mutex> lock(heap.mutex);
  const size_t limit = static_cast<size_t>(Get(Knob::memory_bytes));
  size_t& used = heap.used_bytes[device];
  const size_t size = RoundUp(bytes);
  if (size < bytes || size > limit - std::min(limit, used)) return 0;
  uint64_t& next = heap.next[device];
  const uint64_t address = kTag | (static_cast<uint64_t>(device) << kDeviceShift) | next;
  // Leaves a gap, so that neighbouring allocations do not touch.
  next += size + kAlignment;
  used += size;
  heap.devices[device][address] = std::make_shared<Allocation>(device, address, bytes);
  return address;
}

bool FreeDevice(int device, uint64_t address) {
  Heap& heap = TheHeap();
  std::shared_ptr<Allocation> taken;
  {
    const std::lock_guard<std::mutex> lock(heap.mutex);
    taken = RemoveAllocation(heap.devices[device], address);
    if (taken != nullptr) heap.used_bytes[device] -= RoundUp(taken->size());
  }
  if (taken == nullptr) return false;
  CheckFreed(*taken);
  return true;
}

size_t NumFreeBytes(int device) {
  Heap& heap = TheHeap();
  const std::lock_guard<std::mutex> lock(heap.mutex);
  const size_t limit = static_cast<size_t>(Get(Knob::memory_bytes));
  return limit - std::min(limit, heap.used_bytes[device]);
}

void FreeAll(int device) {
  Heap& heap = TheHeap();
  Map freed;
  const std::lock_guard<std::mutex> lock(heap.mutex);
  freed.swap(heap.devices[device]);
  for (const auto& [address, allocation] : freed) allocation->freed = true;
  heap.used_bytes[device] = 0;
}

void* AllocatePinned(size_t bytes) {
  Heap& heap = TheHeap();
  auto allocation = std::make_shared<Allocation>(/*device=*/-1, 0, bytes);
  const std::lock_guard<std::mutex> lock(heap.mutex);
  void* const data = allocation->data();
  const uint64_t address = allocation->address();
  heap.pinned[address] = std::move(allocation);
  return data;
}

bool FreePinned(void* address) {
  Heap& heap = TheHeap();
  std::shared_ptr<Allocation> taken;
  {
    const std::lock_guard<std::mutex> lock(heap.mutex);
    taken = RemoveAllocation(heap.pinned, reinterpret_cast<uint64_t>(address));
  }
  if (taken == nullptr) return false;
  CheckFreed(*taken);
  return true;
}

Place FindDevice(int device, uint64_t address, size_t bytes) {
  Heap& heap = TheHeap();
  const std::lock_guard<std::mutex> lock(heap.mutex);
  return FindIn(heap.devices[device], address, bytes);
}

Place FindPinned(const void* address, size_t bytes) {
  Heap& heap = TheHeap();
  const std::lock_guard<std::mutex> lock(heap.mutex);
  return FindIn(heap.pinned, reinterpret_cast<uint64_t>(address), bytes);
}

}  // namespace tessera::fakes
