// Runs a step program on host memory. Steps run in order: kernels on several threads, matmuls by
// oneDNN, sorts by sort.h, collectives by Collectives, and loops of small kernels as native code.
//
// A HostProgram is immutable, and the devices that run it share it. The device's stream calls
// RunProgram, which blocks until the program has ended. A device has one run at a time.
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
#include "worker/runtime/long_steps.h"

namespace tessera::worker {

struct HostProgram {
  program::StepProgram program;
  // The machine code of kernels and native loops. Null if kernels are interpreted, as in some
  // tests.
  std::shared_ptr<const codegen::HostCode> code;
  // The function of each kernel, or null if only native loops and row tiles run it.
  std::vector<codegen::HostCode::Fn> functions;
  // native_loops[i] is loop i of `code`.
  std::vector<NativeLoop> native_loops;
  // For each loop of the program: its index in `native_loops` if it is the outermost loop there, or
  // -1.
  std::vector<int> native_loop_index;
  // The row tiles by the program's numbers. A tile in a native loop has no parts.
  std::vector<HostTile> tiles;
  bool has_collectives = false, has_host_steps = false;
  int64_t num_steps = 0;  // counts the steps of loop bodies once
  // Memory besides the arena, for matmuls and host steps.
  int64_t scratch_bytes = 0;
};

// The form in which a program's kernels and loops run.
enum class HostCodeKind : uint8_t {
  kInterpreted,  // the interpreter runs the kernels
  kSteps,        // each kernel has code, and every step is run by itself
  kNativeLoops,  // like kSteps, with code for loops and row tiles as well
};
// Compiles the program's code for the tenant. Returns the errors of HostCompiler::Compile.
absl::StatusOr<HostProgram> MakeHostProgram(program::StepProgram program, HostCodeKind kind,
                                            const std::string& tenant,
                                            codegen::HostCompiler& compiler, OneDnnMatmul& matmul);

// The addresses of the program's memory.
struct HostMemory {
  absl::Span<const std::byte* const> arguments;
  // Null for a result that shares the memory of an argument or of an earlier result
  // (program::Result). If an argument was donated to the result, this is the argument's address.
  absl::Span<std::byte* const> results;
  std::byte* arena = nullptr;
};

// The resources that the runs of a backend share.
struct HostResources {
  OneDnnMatmul* matmul = nullptr;
  ThreadPool* threads = nullptr;
  int num_threads = 1;  // number of threads that this device may use
  // Where long host steps are evaluated; null if they are evaluated like the others.
  LongSteps* long_steps = nullptr;
};

// Adds the label of the op that was in flight to the error, unless the message contains the label
// already or the run was cancelled.
absl::Status WithLabel(const absl::Status& error, const RunContext& context,
                       const std::string& label);

// Runs the program to its end. Errors have the label of the op that failed (WithLabel).
absl::Status RunProgram(const HostProgram& program, const RunContext& context,
                        const HostMemory& memory, const HostResources& resources);

}  // namespace tessera::worker
