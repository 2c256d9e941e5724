// A loop of kernels: a machine-independent function that runs kernels and copies in nested loops
// and branches, without returning between them.
//
// worker/cpu makes such a loop from a loop of a step program. The host emitter (emit_loop.h)
// compiles it to one function with its kernels inlined. The types are plain values, which are
// cached by their text: ParseKernelLoop(l.ToString()) == l.
//
// An address is a base plus a number of bytes. The bases are passed when the function is called. In
// iteration i of loop l an address moves by i times its stride along l. Each loop has a number,
// which no other loop has. An address that is used inside a loop may move with that loop and with
// the loops around it. Work that has no code here is done by a callback, which gets the number of
// the call.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

struct LoopAddress {
  int base = 0;
  // The stride in bytes along each loop: (loop, bytes).
  std::vector<std::pair<int, int64_t>> strides;
  bool operator==(const LoopAddress&) const = default;
};

// One operation of the function. `addresses` are indices into KernelLoop::addresses.
struct LoopOp {
  enum class Kind : uint8_t {
    kKernel,  // runs all iterations of kernel `number`, with one address per param
    kCopy,    // copies `count` bytes to the first address from the second, without overlap
    kCall,    // calls back with `number`
    kFor,     // runs the list `count` times, as loop `number`
    // Runs the list as loop `number`. Before each iteration it reads the bool at the address, and
    // ends the loop if that is false.
    kWhile,
    // Runs the list whose number is the s32 at the address, clamped to the lists there are.
    kBranch,
  };
  Kind kind = Kind::kKernel;
  int number = 0;
  int64_t count = 0;
  std::vector<int> addresses;
  std::vector<std::vector<LoopOp>> lists;
  bool operator==(const LoopOp&) const = default;
};

struct KernelLoop {
  int num_bases = 0, num_loops = 0;
  std::vector<LoopAddress> addresses;
  std::vector<Kernel> kernels;
  std::vector<LoopOp> ops;
  bool operator==(const KernelLoop&) const = default;

  // Returns one line per address and op, then the text of the kernels.
  std::string ToString() const;
};

// The inverse of ToString. Returns VALUE_ERROR, which names the line, if a line does not parse.
// Refuses texts that are too long or nested too deep, and loops that do not pass Verify.
absl::StatusOr<KernelLoop> ParseKernelLoop(absl::string_view text);

// Checks every rule above, and each kernel by its own Verify. Returns VALUE_ERROR, which says which
// rule is broken. The caller has to make sure that addresses stay within their memory.
absl::Status Verify(const KernelLoop& loop);

}  // namespace tessera::worker::codegen
