// The argument of the function of a loop of kernels. Compiled code (emit_loop.h) reads it and knows
// the offsets of its members.
#pragma once
#include <cstdint>

namespace tessera::worker::codegen {

struct LoopFrame {
  // The base addresses of memory, KernelLoop::num_bases of them.
  void* const* bases = nullptr;
  // An atomic word, like that of a CancelToken. The function returns 1 once the word is not 0.
  const void* cancel = nullptr;
  // Runs the work for which the loop has no code. `iterations` then has the numbers of the
  // iterations that are under way, by loop. If `call` returns a number other than 0, the function
  // returns that number at once. `call` and `iterations` may be null in a loop without calls.
  int32_t (*call)(void* context, int32_t number) = nullptr;
  void* context = nullptr;
  int64_t* iterations = nullptr;
};

using LoopFn = int32_t (*)(const LoopFrame* frame);

}  // namespace tessera::worker::codegen
