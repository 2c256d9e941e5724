// How much the ops go through that do one thing after the other (Lowering::kScan and kScatter), for
// whoever decides where they run. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::ir {

struct ScanSize {
  int64_t rows = 0;      // which may be gone through at the same time
  int64_t length = 0;    // of each, one element after the other
  int64_t bytes = 0;     // of the operands and the results
  bool updates = false;  // places known at run time, so that threads may share a row by places
};
// Requires: the op of `f` has one of the two lowerings, and passed its inference.
ScanSize ScanSizeOf(const Function& f, const Op& op);

// Whether backends have code for it: what one thread does in a row no cancel ends, so that more
// than this is the host's evaluator's on every backend.
inline constexpr int64_t kScannedMax = 1 << 24;
inline bool HasCode(const ScanSize& size) { return size.length <= kScannedMax; }

// Whether an accelerator, of which each thread goes through a row, or through a row's updates of
// some places, is at an end before the op's operands have been copied to the host and evaluated
// there, and soon, as no cancel ends it. A long row of few is the host's: a device's thread is
// slow, and a device has no use for one.
bool IsForAccelerators(const ScanSize& size);

}  // namespace tessera::ir
