// The abilities of a backend on which its step programs depend: the products, sorts, reductions and
// scans that the backend runs by itself. Build (build.h) and Lower (lower.h) take the options. A
// value type; the functions in it must be pure and thread-safe.
#pragma once
#include <cstdint>
#include <functional>

#include "ir/collective.h"
#include "ir/derive/scan_size.h"
#include "ir/dtype.h"
#include "ir/eval/uninterrupted.h"
#include "worker/program/sort.h"

namespace tessera::worker::program {

// A host step within this bound takes a quarter of a second at most (ir::kOperationsPerSecond), and
// under a second on a slow machine. A cancelled run has two seconds to end. A step beyond the bound
// takes several times as long as copying its operands and results to another process and back
// (docs/decisions/0038).
inline constexpr double kUninterruptedOperationsMax = ir::kOperationsPerSecond / 4;

struct BuildOptions {
  // Returns whether the backend's library multiplies matrices of dtype `in` to a product of dtype
  // `out`. If null, the library multiplies none. Other contractions become kernels.
  std::function<bool(ir::DType in, ir::DType out)> has_matmul;
  // Products of f32 with at most this many multiplications become kernels in any case, if the rows
  // of the second operand are contiguous. A library does such a product in about a microsecond, so
  // the cost of calling it would matter.
  int64_t small_matmul_multiplications_max = 0;
  // Returns how many bytes of scratch memory the backend's sort routine needs for this shape. If
  // null, the backend has no such routine, and the host evaluates sorts.
  std::function<int64_t(const SortShape& shape)> sort_scratch_bytes;
  // Returns whether the backend's collectives reduce `dtype` by `reduce`. If null, they reduce
  // every dtype by every kind. If they do not reduce a dtype, the blocks are exchanged unreduced,
  // and a kernel reduces them.
  std::function<bool(ir::ReduceKind reduce, ir::DType dtype)> has_reduction;
  // Returns whether the backend runs a scan of this size as a kernel. If null, the backend has no
  // code for kernels that scan. All other scans are left to the host.
  std::function<bool(const ir::ScanSize& size)> has_scan;
  // Host steps that do more operations than this between two polls of the cancellation flag are
  // long (HostStep::is_long).
  double uninterrupted_operations_max = kUninterruptedOperationsMax;
};

}  // namespace tessera::worker::program
