// Compiles kernels and loops of kernels for the host's CPU, caches them on disk, and loads them
// into this process.
//
//   HostCompiler compiler(options);
//   TESSERA_ASSIGN_OR_RETURN(auto code, compiler.Compile(kernels, labels));
//   code->function(0)(buffers, 0, kernels[0].num_iterations());
//
// A process makes one HostCompiler. Thread-safe: calls of Compile run concurrently, each with its
// own compile children, but a kernel that several calls of one tenant need is compiled once.
// Tenants share neither children nor code, so that no tenant runs code from a compiler that another
// tenant's input may have subverted. HostCode is immutable, and keeps its machine code mapped even
// after the compiler is destroyed.
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
  // "baseline", "avx2", "avx512", or "host" for the best of them that this CPU runs.
  std::string target = "host";
  std::string cache_dir;  // empty if nothing is kept on disk
  int64_t cache_bytes_max = int64_t{1} << 30;
  // The binary that compiles in a child process (compile_child.h). If it is empty, this process
  // compiles.
  std::string compile_binary;
  std::vector<std::string> compile_args;
  // The memory limit of each child.
  int64_t compile_memory_bytes_max = int64_t{4} << 30;
  // The time limit for all kernels of one program.
  absl::Duration compile_deadline = absl::Seconds(120);
  // The number of kernels that all calls of Compile together compile at once, where each call
  // compiles at least one. 0 means as many as there are cores.
  int compiled_at_once_max = 0;
};
// Returns the compiler options that follow from the options of the process (base/options.h). It
// leaves compile_binary empty.
HostCompilerOptions HostCompilerOptionsFrom(const Options& options,
                                            const EnvLookup& env = ProcessEnv());

class HostCode {
 public:
  // Runs the iterations begin <= i < end (row-major over the parallel dims) on `buffers`, one per
  // param, each aligned to its element. Any ranges may run concurrently. They give the same bits as
  // one range.
  using Fn = void (*)(void* const* buffers, int64_t begin, int64_t end);

  // `mapped` has the entry points of the kernels, then the entry points of the loops.
  HostCode(std::vector<std::shared_ptr<const void>> mapped, int num_kernels)
      : mapped_(std::move(mapped)), num_kernels_(num_kernels) {}

  // Return the function of the kernel or the loop with this number in the call of Compile. The
  // function is valid as long as this object lives.
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

  // Compiles kernels and loops, or finds them in memory or on disk. Requires that all of them pass
  // Verify. `labels` (one for each kernel, or none) name the kernels in errors: INTERNAL for an
  // error of the compiler, or COMPILE_TIMEOUT.
  absl::StatusOr<std::shared_ptr<const HostCode>> Compile(absl::Span<const Kernel> kernels,
                                                          absl::Span<const std::string> labels = {},
                                                          absl::Span<const KernelLoop> loops = {},
                                                          const std::string& tenant = "");

  // Counts of kernels and loops since the start.
  struct Counters {
    // The number that went through code generation.
    int64_t compiled = 0;
    // The number that were read from the cache on disk.
    int64_t from_disk = 0;
    // The number that were already loaded in this process.
    int64_t shared = 0;
  };
  Counters counters() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::worker::codegen
