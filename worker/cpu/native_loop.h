// Finds the loops of a step program that run as native code: a function that goes from one
// iteration to the next by itself, so that an iteration costs as little as its kernels. Stateless;
// thread-safe.
#pragma once
#include <string>
#include <vector>

#include "worker/codegen/kernel_loop.h"
#include "worker/program/step_program.h"

namespace tessera::worker {

// A loop of a step program with the loops inside it. The code contains its small kernels and
// copies. It calls back for steps that run on several threads, that multiply or exchange, or that
// need the host.
struct NativeLoop {
  codegen::KernelLoop code;
  // The slot of each base of the code. A base is the address of its slot in the first iteration.
  std::vector<int> base_slots;
  // The step program's number of each loop of the code.
  std::vector<int> loops;
  // The steps for which the code calls back, by the number of the call.
  std::vector<program::Step> calls;
  // Names the op in flight: the loop, and the op that does most of the work of its code. For
  // example "scan (model.cc:41), in it tanh (model.cc:43)".
  std::string label;
};

// Returns the outermost loops that have work to run as code, in order.
std::vector<NativeLoop> FindNativeLoops(const program::StepProgram& program);

}  // namespace tessera::worker
