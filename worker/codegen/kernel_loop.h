// A loop of kernels: a machine-independent function that runs kernels and copies in nested loops
// and branches, without returning between them.
//
// worker/cpu makes it from a loop of a step program, the host emitter (emit_loop.h) compiles it to
// one function with its kernels inlined. Plain values; cached by their text:
// ParseKernelLoop(l.ToString()) == l.
//
// Memory is at addresses: bytes beyond bases that are known when the function is called. In
// iteration i of loop l an address moves by i times its stride along l. Loops are numbered, each
// number is used once, and an address that is used inside of a loop may move with that one and
// with those around it. What has no code here is called: the function that calls gets the number.
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
  std::vector<std::pair<int, int64_t>> strides;  // loop, bytes
  bool operator==(const LoopAddress&) const = default;
};

// What the function does at one place. `addresses` are indices into KernelLoop::addresses.
struct LoopOp {
  enum class Kind : uint8_t {
    kKernel,  // runs all iterations of kernel `number` on an address for each param
    kCopy,    // copies `count` bytes to the first address from the second, which do not overlap
    kCall,    // calls back with `number`
    kFor,     // runs the list `count` times, as loop `number`
    kWhile,   // runs the list as loop `number`, while the bool at the address is true before it
    kBranch,  // runs the list that the s32 at the address names, clamped to those there are
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

  // One line per address and op, then the kernels.
  std::string ToString() const;
};

// The inverse of ToString. VALUE_ERROR names the line that does not parse. Bounds the size and the
// depth; the result passes Verify.
absl::StatusOr<KernelLoop> ParseKernelLoop(absl::string_view text);

// Every rule above, and Verify of each kernel. VALUE_ERROR says which is broken. That addresses
// stay within their memory is for the caller to know.
absl::Status Verify(const KernelLoop& loop);

}  // namespace tessera::worker::codegen
