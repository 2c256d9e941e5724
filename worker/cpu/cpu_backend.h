// N CPU devices in one process.
//
// A device program becomes a step program (program/step_program.h) whose kernels are compiled for
// this machine; matmuls go to oneDNN, exchanges to Collectives. A program with little to compute is
// evaluated op by op instead, as compiling it would take longer than running it. The cancel word is
// checked between steps and on the back-edges of loops, and the op in flight is recorded with the
// user's file and line. Enqueue runs to the end before it returns.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "worker/codegen/host_code.h"
#include "worker/runtime/backend.h"

namespace tessera::worker {

struct CpuBackendOptions {
  int num_devices = 1;
  int64_t memory_bytes = 0;  // per device; 0: an even share of four fifths of ProcessLimits()
  codegen::HostCompilerOptions codegen = {};
  // Tests choose one way for programs of any size; kInterpreted runs kernels by their definition.
  enum class Kernels : uint8_t { kWhereWorthIt, kAlways, kInterpreted };
  Kernels kernels = Kernels::kWhereWorthIt;
  // The folder where each step program is written as text when it is compiled; empty: none.
  std::string dump = {};
};

// What CPU devices may take of this machine, all together, when nobody says how much.
int64_t CpuMemoryBytes();

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace tessera::worker
