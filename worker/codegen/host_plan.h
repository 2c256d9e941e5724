// Plans how a kernel's loops run on a host: which dim is vectorised, with how many lanes. Depends
// on the kernel and the target alone. Stateless; thread-safe.
#pragma once
#include <utility>
#include <vector>

#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

struct HostPlan {
  int lane_dim = -1;                   // -1: one iteration at a time, no lanes
  bool vectorize_reduction = false;    // the lane dim is the innermost reduced one
  int lanes = 1;                       // of a block, a power of 2
  bool has_masked_memory_ops = false;  // masked loads and stores are used
  bool nontemporal_stores = false;     // whole blocks of outputs bypass the caches
  bool prefetch = false;  // loads are prefetched, as there is much computation between them
  // Another dim than the lane dim, along which some loads are contiguous: for these, tiles of
  // `tile` x `lanes` elements are transposed on the stack, so that every cache line is read once.
  // -1: there are no such loads.
  int tile_dim = -1;
  int tile = 1;
  std::vector<bool> tiled;  // for each node: whether it is such a load
  // Loads whose elements interleave: lanes lie as far apart as a group has loads, and load i of a
  // group begins i elements after its first, so that together they read memory without gaps. They
  // are contiguous loads of vectors, whose lanes are then sorted. By node: its group, or -1.
  std::vector<std::vector<int>> interleaved;
  std::vector<int> group_of;
  // Stores whose elements interleave in pairs: lanes lie two elements apart, and those of the
  // second between those of the first.
  std::vector<std::pair<int, int>> store_pairs;
  // This many rows are computed together, where loads in a reduction are the same for neighbouring
  // rows, as in a product of matrices. It divides the size of the dim before the lane dim.
  int rows = 1;
  // Float sums along this dim are sums of chunks of `chunk` elements each, as the error of a sum
  // grows with the number of terms added one after the other. -1: all sums are short.
  int chunk_dim = -1;
  int64_t chunk = 0;
  std::vector<bool> lane_variant;  // for each node: whether its value differs between lanes
};
HostPlan PlanHost(const Kernel& kernel, const HostTarget& target);

// Whether the plans of two kernels that differ only in their parallel dims reduce in the same order
// on every target, so that float sums have the same bits. Requires normal form (Canonical).
bool ReduceInTheSameOrder(const Kernel& a, const Kernel& b);

}  // namespace tessera::worker::codegen
