// The amount of work of ops that handle elements one after the other (Lowering::kScan and
// kScatter). Backends decide by it where such an op runs. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::ir {

struct ScanSize {
  int64_t rows = 0;    // rows that can be handled at the same time
  int64_t length = 0;  // elements of each row, one after the other
  int64_t bytes = 0;   // bytes of the operands and the results
  // Places are known only at run time, so threads may share a row by places.
  bool updates = false;
};
// Requires: the op of `f` has one of the two lowerings and passed its inference.
ScanSize ScanSizeOf(const Function& f, const Op& op);

// Whether backends have code for the op. One thread's work on a row cannot be cancelled, so on
// every backend the host evaluates ops with longer rows.
inline constexpr int64_t kScannedMax = 1 << 24;
inline bool HasCode(const ScanSize& size) { return size.length <= kScannedMax; }

// Returns whether an accelerator should run the op. Each of its threads handles a row, or a row's
// updates at some of the places. It should be done before the operands would have been copied to
// the host and evaluated there, and it should be done soon, since it cannot be cancelled. A few
// long rows are for the host: a device's thread is slow, and a few threads use little of a device.
bool IsForAccelerators(const ScanSize& size);

}  // namespace tessera::ir
