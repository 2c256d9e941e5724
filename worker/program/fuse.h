// Which items share a kernel, and in which order the steps run.
//
// From the last item to the first, each is written into the kernels that read its result, where
// that costs little; else its result lies in memory, written by one kernel: one that reads it
// anyway, or one of its own. What only moves data becomes part of the reading access. No expensive
// op is computed twice. Deterministic; pure; any thread.
#pragma once
#include <vector>

#include "worker/codegen/kernel.h"
#include "worker/program/device_program.h"
#include "worker/program/lower.h"

namespace tessera::worker::program {

struct Fused {
  std::vector<codegen::Kernel> kernels;  // distinct, in normal form
  std::vector<Step> steps;               // slots are values of `lowered`
};

// May add values to `lowered` (packed operands).
Fused Fuse(Lowered* lowered);

}  // namespace tessera::worker::program
