// Plans how a kernel's loops run on a host: which dim is vectorised, and with how many lanes. The
// plan depends only on the kernel and the target. Stateless; thread-safe.
#pragma once
#include <utility>
#include <vector>

#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

struct HostPlan {
  // The dim along which lanes run; -1 if the kernel has no lanes and runs one iteration at a time.
  int lane_dim = -1;
  bool vectorize_reduction = false;    // whether the lane dim is the innermost reduced dim
  int lanes = 1;                       // number of lanes of a block, a power of 2
  bool has_masked_memory_ops = false;  // whether masked loads and stores are used
  bool nontemporal_stores = false;     // whether whole blocks of outputs bypass the caches
  // Whether loads are prefetched. This helps if there is much computation between the loads of one
  // block and those of the next.
  bool prefetch = false;
  // A dim other than the lane dim, along which some loads are contiguous; -1 if there are no such
  // loads. For these loads, blocks of `transpose_size` x `lanes` elements are transposed on the
  // stack, so that every cache line is read once.
  int transpose_dim = -1;
  int transpose_size = 1;
  std::vector<bool> transposed;  // for each node: whether it is a load that is transposed
  // Groups of loads whose elements interleave. In a group of n loads, neighbouring lanes lie n
  // elements apart, and load i begins i elements after the first load, so that the loads together
  // read memory without gaps. They are emitted as contiguous loads of vectors, whose lanes are then
  // sorted. `group_of` has the group of each node, or -1.
  std::vector<std::vector<int>> interleaved_groups;
  std::vector<int> group_of;
  // Pairs of stores whose elements interleave: the lanes of each store lie two elements apart, and
  // the lanes of the second store lie between those of the first.
  std::vector<std::pair<int, int>> store_pairs;
  // The number of rows that are computed together. It is more than one if a reduction loads the
  // same elements for neighbouring rows, as in a product of matrices. It divides the size of the
  // dim before the lane dim.
  int rows = 1;
  // Float sums along this dim are computed in chunks of `chunk_elements` elements, because the
  // error of a sum grows with the number of terms that are added one after the other. -1 if all
  // sums are short.
  int chunk_dim = -1;
  int64_t chunk_elements = 0;
  // For each node: whether its value differs between lanes.
  std::vector<bool> lane_variant;
};
HostPlan PlanHost(const Kernel& kernel, const HostTarget& target);

// Returns whether the plans of two kernels that differ only in their parallel dims reduce in the
// same order on every target, so that float sums have the same bits. Requires normal form
// (Canonical).
bool ReduceInTheSameOrder(const Kernel& a, const Kernel& b);

}  // namespace tessera::worker::codegen
