// Finds the loops of a step program that run as native code: a function that goes from one
// iteration to the next by itself, so that an iteration costs as little as its kernels. Stateless;
// thread-safe.
#pragma once
#include <string>
#include <vector>

#include "worker/codegen/kernel_loop.h"
#include "worker/program/step_program.h"

namespace tessera::worker {

// A loop of a step program with the loops inside it. The code contains the small kernels and copies
// of these loops. For every other step (a kernel or copy for several threads, a matmul, a sort, an
// exchange or a host step) the code calls back.
struct NativeLoop {
  codegen::KernelLoop code;
  // The slot of each base of the code. A base is the address of its slot in the first iteration.
  std::vector<int> base_slots;
  // Loop i of the code is loop loop_numbers[i] of the step program.
  std::vector<int> loop_numbers;
  // Call i of the code runs called_steps[i].
  std::vector<program::Step> called_steps;
  // Names the op in flight: the loop, and the op that does most of the work of its code. For
  // example "scan (model.cc:41), most work in tanh (model.cc:43)".
  std::string label;
};

// Returns the loops that are worth running as native code, in order. Loops inside such a loop
// belong to its code.
std::vector<NativeLoop> FindNativeLoops(const program::StepProgram& program);

}  // namespace tessera::worker
