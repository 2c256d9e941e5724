// The interface between a thread of the SIMT emulator and the code that it runs. The layout is part
// of compiled images, so kSimtVersion changes with it.
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
  // Returns memory, aligned to kSimtFrameAlign, for the variables that the thread keeps while it
  // waits. The emulator frees it after the block.
  void* (*allocate)(SimtThread* self, uint64_t bytes);
  // Called before each access of global memory. The code then uses the address that is returned.
  void* (*access)(SimtThread* self, void* address, uint64_t bytes, uint64_t align_and_write);
  // The code sets these two where it waits. `site` numbers the places in a kernel at which it may
  // wait.
  uint32_t wait;
  uint32_t site;
  // For a butterfly shuffle: the word that the thread gives and, when the thread goes on, the word
  // that it takes.
  uint32_t word;
  uint32_t lane_mask;
};

// The function of a kernel. It runs the thread to its end and returns null. Or it runs the thread
// to the place where it waits, and returns a coroutine; resuming the coroutine continues the
// thread, and the coroutine is done at the thread's end.
using SimtEntry = void* (*)(SimtThread* thread, const uint64_t* args);

}  // namespace tessera::worker::codegen
