// What the function of a loop of kernels is called with. Read by compiled code (emit_loop.h), which
// knows the offsets of its members.
#pragma once
#include <cstdint>

namespace tessera::worker::codegen {

struct LoopFrame {
  void* const* bases = nullptr;  // of memory: KernelLoop::num_bases addresses
  // An atomic word, as of a CancelToken: once it is not 0 the function returns 1.
  const void* cancel = nullptr;
  // Runs what the loop has no code for. `iterations` then has the numbers of the iterations that
  // are under way, by loop. Not 0: the function returns it at once. Both may be null in a loop
  // without calls.
  int32_t (*call)(void* context, int32_t number) = nullptr;
  void* context = nullptr;
  int64_t* iterations = nullptr;
};

using LoopFn = int32_t (*)(const LoopFrame* frame);

}  // namespace tessera::worker::codegen
