// Compiles kernels and loops of kernels for the host's CPU, caches them on disk, and loads them
// into this process.
//
//   HostCompiler compiler(options);
//   TESSERA_ASSIGN_OR_RETURN(auto code, compiler.Compile(kernels, labels));
//   code->function(0)(buffers, 0, kernels[0].num_iterations());
//
// A HostCompiler is made once per process. Thread-safe: calls of Compile run concurrently, each
// with compile children of its own, but a kernel that several of them need is compiled once.
// Tenants share neither children nor code, so that none can have another run what its bytes made of
// a compiler. HostCode is immutable, and keeps its machine code mapped even after the compiler is
// destroyed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/options.h"
#include "worker/codegen/kernel.h"
#include "worker/codegen/kernel_loop.h"
#include "worker/codegen/loop_frame.h"

namespace tessera::worker::codegen {

struct HostCompilerOptions {
  // "host" is the best of the others that this CPU runs: "baseline", "avx2", "avx512".
  std::string target = "host";
  std::string cache_dir;  // empty: nothing is kept on disk
  int64_t cache_bytes_max = int64_t{1} << 30;
  // The binary that compiles in a child process (compile_child.h); empty: in this process.
  std::string compile_binary;
  std::vector<std::string> compile_args;
  int64_t compile_memory_bytes_max = int64_t{4} << 30;   // of each child
  absl::Duration compile_deadline = absl::Seconds(120);  // of one program's kernels
  // Kernels, of all calls of Compile together; but each call compiles at least one at a time. 0: as
  // many as there are cores.
  int compiled_at_once_max = 0;
};
// The options of the process's options table. Sets no compile_binary.
HostCompilerOptions HostCompilerOptionsFrom(const Options& options,
                                            const EnvLookup& env = ProcessEnv());

class HostCode {
 public:
  // Runs the iterations begin <= i < end (row-major over the parallel dims) on `buffers`, one per
  // param, each aligned to its element. Any ranges may run concurrently, and give the same bits.
  using Fn = void (*)(void* const* buffers, int64_t begin, int64_t end);

  // The entries of the kernels' functions, then those of the loops'.
  HostCode(std::vector<std::shared_ptr<const void>> mapped, int num_kernels)
      : mapped_(std::move(mapped)), num_kernels_(num_kernels) {}

  // The functions of kernel number `kernel` and of loop number `loop` of the call of Compile. Valid
  // while this object lives.
  Fn function(int kernel) const { return reinterpret_cast<Fn>(EntryOf(kernel)); }
  LoopFn loop(int loop) const { return reinterpret_cast<LoopFn>(EntryOf(num_kernels_ + loop)); }
  int size() const { return static_cast<int>(mapped_.size()); }

 private:
  uintptr_t EntryOf(int i) const { return reinterpret_cast<uintptr_t>(mapped_[i].get()); }

  const std::vector<std::shared_ptr<const void>> mapped_;
  const int num_kernels_;
};

class HostCompiler {
 public:
  explicit HostCompiler(HostCompilerOptions options);
  ~HostCompiler();
  HostCompiler(const HostCompiler&) = delete;
  HostCompiler& operator=(const HostCompiler&) = delete;

  // Requires: Verify of every kernel and loop. `labels` (one for each kernel, or none) name them in
  // errors: INTERNAL for an error of the compiler, or COMPILE_TIMEOUT.
  absl::StatusOr<std::shared_ptr<const HostCode>> Compile(absl::Span<const Kernel> kernels,
                                                          absl::Span<const std::string> labels = {},
                                                          absl::Span<const KernelLoop> loops = {},
                                                          const std::string& tenant = "");

  // Totals since the start, of kernels and loops.
  struct Counters {
    int64_t compiled = 0;   // those that went through code generation
    int64_t from_disk = 0;  // those read from the cache
    int64_t shared = 0;     // those already loaded in this process
  };
  Counters counters() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::worker::codegen
