// How a kernel's loops run on a host: along which dim the lanes lie, and how many.
//
// A pure function of kernel and target.
#pragma once
#include <vector>

#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

struct HostPlan {
  int lane_dim = -1;           // -1: one iteration at a time, no lanes
  bool lanes_reduced = false;  // the lane dim is the innermost reduced one
  int lanes = 1;               // of a block, a power of 2
  bool masks = false;          // loads and stores of some lanes are instructions
  bool bypass_cache = false;   // whole blocks of outputs are stored past the caches
  bool prefetch = false;       // so much is computed that loads must be asked for early
  // Loads that lie along another dim than the lanes: tiles of both dims go through the stack, so
  // that every cache line is read once. -1: there are none.
  int tile_dim = -1;
  int tile = 1;             // of that dim
  std::vector<bool> tiled;  // of each node: a load that lies along the tile dim
  // Float sums along this dim are of sums of so many steps each: the error of a sum grows with the
  // number of terms added one after the other. -1: all are short.
  int chunk_dim = -1;
  int64_t chunk = 0;
  std::vector<bool> varies;  // of each node: along the lane dim
};
HostPlan PlanHost(const Kernel& kernel, const HostTarget& target);

}  // namespace tessera::worker::codegen
