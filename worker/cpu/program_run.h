// Runs a step program on host memory: steps in order, kernels on several threads, matmuls by
// oneDNN, sorts by sort.h, collectives by Collectives, loops of small kernels as native code.
//
// A HostProgram is immutable and shared by the devices that run it. RunProgram is called by the
// device's stream, one run at a time per device, and blocks until the program has ended.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/codegen/host_code.h"
#include "worker/cpu/host_tile.h"
#include "worker/cpu/native_loop.h"
#include "worker/cpu/onednn_matmul.h"
#include "worker/cpu/thread_pool.h"
#include "worker/program/step_program.h"
#include "worker/runtime/backend.h"

namespace tessera::worker {

struct HostProgram {
  program::StepProgram program;
  // The machine code of kernels and native loops; null: kernels are interpreted, as tests do.
  std::shared_ptr<const codegen::HostCode> code;
  // By kernel: its function, or null if native loops and row tiles alone run it.
  std::vector<codegen::HostCode::Fn> functions;
  std::vector<NativeLoop> native_loops;  // loop i is loop i of the code
  std::vector<int> native_of;   // by the program's number of a loop: its native loop, or -1
  std::vector<HostTile> tiles;  // by the program's number; without parts in native loops
  bool has_collectives = false, has_host_steps = false;
  int64_t num_steps = 0;      // including the steps of loop bodies, counted once
  int64_t scratch_bytes = 0;  // besides the arena: for matmuls and host steps
};

// What runs a program's kernels and loops.
enum class HostCodeKind : uint8_t {
  kInterpreted,  // no code
  kSteps,        // code for each kernel; every step is run by itself
  kNativeLoops,  // and code for loops and row tiles
};
// Compiles the code, for the tenant. Errors are those of HostCompiler::Compile.
absl::StatusOr<HostProgram> MakeHostProgram(program::StepProgram program, HostCodeKind kind,
                                            const std::string& tenant,
                                            codegen::HostCompiler& compiler, OneDnnMatmul& matmul);

// Where the program's memory is.
struct HostMemory {
  absl::Span<const std::byte* const> arguments;
  // Null for a result that shares an argument's memory; the argument's address if it was donated.
  absl::Span<std::byte* const> results;
  std::byte* arena = nullptr;
};

// The shared resources of a run.
struct HostResources {
  OneDnnMatmul* matmul = nullptr;
  ThreadPool* threads = nullptr;
  int num_threads = 1;  // how many this device may use
};

// Returns an error with the label of the op that was in flight, unless its message has it already
// or the run was cancelled.
absl::Status WithLabel(const absl::Status& error, const RunContext& context,
                       const std::string& label);

// Errors are WithLabel.
absl::Status RunProgram(const HostProgram& program, const RunContext& context,
                        const HostMemory& memory, const HostResources& resources);

}  // namespace tessera::worker
