// The memory into which HostLoader's JIT linker puts code. It consists of a few regions of the
// address space, each with an area of code, an area of constants and an area of variables.
// Neighbouring pages of an area have the same protection, so the operating system counts them as
// one mapping, however many objects are loaded. If every object had pages with a mapping of its
// own, some 30,000 objects would reach vm.max_map_count. Then nothing could be mapped any more, and
// even fork would fail.
//
// Thread-safe. Outlives its allocations. No page is ever writable and executable at once. An area
// is inaccessible beyond its last page in use. A free page before that point keeps the area's
// protection, but holds no memory and reads as zero.
#pragma once
#include <cstdint>
#include <memory>

namespace llvm::jitlink {
class JITLinkMemoryManager;
}  // namespace llvm::jitlink

namespace tessera::worker::codegen {

// The size of a region. All parts of an object lie in one region, so that they are well within
// reach of each other's 32-bit displacements.
inline constexpr int64_t kCodeRegionBytes = int64_t{256} << 20;

// `region_bytes` is a multiple of 8 pages. Regions are reserved when they are needed, and kept from
// then on.
std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> NewCodeMemory(
    int64_t region_bytes = kCodeRegionBytes);

}  // namespace tessera::worker::codegen
