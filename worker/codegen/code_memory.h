// Where HostLoader's JIT linker puts code: in a few regions of the address space, each with an area
// of code, one of constants and one of variables. Neighbouring pages of an area have one protection
// and so are one mapping to the kernel, however many objects are loaded; with pages of its own
// mapping for every object, some 30,000 of them reach vm.max_map_count, and then nothing can be
// mapped any more and even fork fails.
//
// Thread-safe. Outlives what it allocates. No page is ever writable and executable at once. An
// area is inaccessible beyond its last page in use; a free page before that keeps the area's
// protection, but holds no memory and reads as zero.
#pragma once
#include <cstdint>
#include <memory>

namespace llvm::jitlink {
class JITLinkMemoryManager;
}  // namespace llvm::jitlink

namespace tessera::worker::codegen {

// Well within what a 32-bit displacement reaches, as the parts of an object lie in one region.
inline constexpr int64_t kCodeRegionBytes = int64_t{256} << 20;

// `region_bytes` is a multiple of 8 pages. Regions are reserved when they are needed, and kept.
std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> NewCodeMemory(
    int64_t region_bytes = kCodeRegionBytes);

}  // namespace tessera::worker::codegen
