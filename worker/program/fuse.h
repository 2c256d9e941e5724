// Fusion and scheduling of the items of a lowered function (items.h): which items share a kernel,
// and in which order the steps run.
//
// Items are visited from the last to the first. An item is fused into the only kernel that reads
// its result or, if it is cheap to compute, into each kernel that does. If that is not possible,
// for example because a step needs the result in memory, one kernel writes the result to memory: a
// kernel that reads it anyway, or a kernel of its own. An item that only moves data becomes part of
// its readers' accesses. No expensive op is computed twice. Deterministic; stateless; thread-safe.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "worker/codegen/kernel.h"
#include "worker/program/items.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// A list of distinct kernels in normal form (codegen::Canonical).
class KernelTable {
 public:
  // Returns the index of the kernel. Adds the kernel if it is new.
  int Add(codegen::Kernel kernel);
  const std::vector<codegen::Kernel>& kernels() const { return kernels_; }

 private:
  std::map<std::string, int> by_text_;
  std::vector<codegen::Kernel> kernels_;
};

struct FusedFunction {
  KernelTable kernels;
  std::vector<Step> steps;  // their slots are indices into LoweredFunction::values
};

// Fuses the items of `lowered`, and may add values to `lowered` (packed operands). In the result,
// each value that has a `same_as` is replaced by the value that `same_as` names.
FusedFunction Fuse(LoweredFunction* lowered);

}  // namespace tessera::worker::program
