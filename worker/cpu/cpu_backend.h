// A Backend of N CPU devices in one process.
//
// A device program becomes a step program (program/step_program.h) whose kernels are compiled for
// this machine. Matmuls use oneDNN, and collectives use the Collectives of the RunContext. A
// program with little to compute is evaluated op by op instead, because code for it would hardly
// save anything. The cancellation flag is polled between steps and on the back-edges of loops. The
// op in flight is recorded with its source location. A long call of a library, such as LAPACK's, is
// made by another process, which a cancellation kills. Enqueue returns when the program has ended.
#pragma once
#include <cstdint>
#include <memory>

#include "base/dump_folder.h"
#include "worker/codegen/host_code.h"
#include "worker/program/build_options.h"
#include "worker/runtime/backend.h"
#include "worker/runtime/long_steps.h"

namespace tessera::worker {

struct CpuBackendOptions {
  int num_devices = 1;
  // Memory of each device. 0 means an even share of CpuMemoryBytes().
  int64_t memory_bytes = 0;
  codegen::HostCompilerOptions codegen = {};
  // With kAuto, a program with little to compute is evaluated op by op. The other kinds are for
  // tests: kAlways compiles every program, kStepByStep also interprets its loops, and kInterpreted
  // runs the kernels by codegen::Interpret.
  enum class Kernels : uint8_t { kAuto, kAlways, kStepByStep, kInterpreted };
  Kernels kernels = Kernels::kAuto;
  // Host steps that do more operations than this between two polls of the cancellation flag are
  // long (program::HostStep::is_long). Tests make short steps long.
  double uninterrupted_operations_max = program::kUninterruptedOperationsMax;
  // Where long host steps are evaluated. It must outlive the backend. If it is null, the backend
  // evaluates them itself, and a cancellation waits for their end.
  LongSteps* long_steps = nullptr;
  // The folder to which each device program and the stages of its step program are written, or null
  // if there is none. It must outlive the backend.
  DumpFolder* dump = nullptr;
};

// Returns the default memory of all CPU devices of this machine together: four fifths of the memory
// of ProcessLimits().
int64_t CpuMemoryBytes();

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace tessera::worker
