// What a thread of the SIMT emulator and the code that it runs know of each other. The layout is
// part of compiled images: kSimtVersion changes with it.
#pragma once
#include <cstdint>

namespace tessera::worker::codegen {

inline constexpr int kSimtVersion = 2;
inline constexpr int kSimtFrameAlign = 64;

struct SimtThread {
  enum Wait : uint32_t { kRuns = 0, kBarrier = 1, kShuffle = 2 };

  uint32_t thread[3];
  uint32_t block[3];
  uint32_t block_size[3];
  uint32_t grid_size[3];
  char* shared;
  // Memory, aligned to kSimtFrameAlign, for what the thread remembers while it waits. The emulator
  // frees it after the block.
  void* (*allocate)(SimtThread* self, uint64_t bytes);
  // Called before each access of global memory; the code then uses the address that it returns.
  void* (*access)(SimtThread* self, void* address, uint64_t bytes, uint64_t align_and_write);
  // Set by the code where it waits. `site` numbers the places in a kernel where it may.
  uint32_t wait;
  uint32_t site;
  // A butterfly shuffle: the word given and, when the thread goes on, the word taken.
  uint32_t word;
  uint32_t lane_mask;
};

// A kernel. Runs the thread to its end, and returns null; or to where it waits, and returns a
// coroutine that goes on when it is resumed, and at its end is done.
using SimtEntry = void* (*)(SimtThread* thread, const uint64_t* args);

}  // namespace tessera::worker::codegen
