// Which loops of a step program run as native code: a function that goes from one iteration to the
// next by itself, so that an iteration costs what its kernels cost. Stateless; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "worker/codegen/kernel_loop.h"
#include "worker/program/step_program.h"

namespace tessera::worker {

// A loop of a step program with the loops inside of it. Its small kernels and copies are in the
// code; the steps that run on several threads, that multiply, exchange or need the host are called.
struct NativeLoop {
  codegen::KernelLoop code;
  // The slot of each base of the code; the base lies where the slot does before the first
  // iteration.
  std::vector<int> base_slots;
  std::vector<int> loops;            // the step program's number of each loop of the code
  std::vector<program::Step> calls;  // by the number with which the code calls
  // Names the op in flight: the loop, and what most of its code does.
  // "scan (model.cc:41), in it tanh (model.cc:43)"
  std::string label;
};

// The outermost loops that have something to run as code, in order.
std::vector<NativeLoop> FindNativeLoops(const program::StepProgram& program);

}  // namespace tessera::worker
