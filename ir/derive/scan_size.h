// The amount of work of ops that handle elements one after the other (Lowering::kScan and
// kScatter). Backends decide by it whether an accelerator or the host runs such an op. Stateless;
// thread-safe.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::ir {

struct ScanSize {
  int64_t rows = 0;    // rows that can be handled at the same time
  int64_t length = 0;  // elements of each row, one after the other
  int64_t bytes = 0;   // bytes of the operands and the results
  // The updates of a scatter go to positions that are known only at run time, so several threads
  // may share a row: each makes the updates of some of the positions.
  bool is_scatter = false;
};
// Requires: the op of `f` has one of the two lowerings and passed its inference.
ScanSize ScanSizeOf(const Function& f, const Op& op);

// The largest ScanSize::length for which backends have code. One thread's work on a row cannot be
// cancelled, so on every backend the host evaluates ops with longer rows.
inline constexpr int64_t kScannedMax = 1 << 24;
inline bool HasCode(const ScanSize& size) { return size.length <= kScannedMax; }

// Returns whether an accelerator should run the op. Each of its threads handles a row, or a row's
// updates at some of the positions. It should run the op if that takes less time than to copy the
// operands to the host and evaluate there, and if the op ends soon, because it cannot be cancelled.
// A few long rows are for the host: one thread of an accelerator is slow, and a few threads use
// little of the accelerator.
bool IsForAccelerators(const ScanSize& size);

}  // namespace tessera::ir
