// Fusion and scheduling: which items share a kernel, and in which order the steps run.
//
// Items are visited from the last to the first. An item that is cheap to compute is fused into each
// kernel that reads its result. Otherwise one kernel writes the result to memory: a kernel that
// reads it anyway, or a kernel of its own. An item that only moves data becomes part of its
// readers' accesses. No expensive op is computed twice. Deterministic; stateless; thread-safe.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "worker/codegen/kernel.h"
#include "worker/program/lower.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// A set of distinct kernels, in normal form.
class KernelTable {
 public:
  // Returns the index of the kernel. Adds the kernel if it is new.
  int Add(codegen::Kernel kernel);
  const std::vector<codegen::Kernel>& kernels() const { return kernels_; }

 private:
  std::map<std::string, int> by_text_;
  std::vector<codegen::Kernel> kernels_;
};

struct Fused {
  KernelTable kernels;
  std::vector<Step> steps;  // their slots are still indices into `lowered.values`
};

// Fuses the items of `lowered`, and may add values to it (packed operands). Afterwards no step
// refers to a value behind a barrier; it refers to the value itself.
Fused Fuse(Lowered* lowered);

}  // namespace tessera::worker::program
