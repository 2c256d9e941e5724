// LLVM code generation: compiles kernels and loops of kernels to relocatable objects. Other code
// uses host_code.h, whose HostCompiler adds the cache and the processes in which this runs
// (compile_child.h).
//
// Thread-compatible: different HostCodegens may be used concurrently. LLVM's fatal errors end the
// process, which is why it normally runs in a child process.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"
#include "worker/codegen/kernel_loop.h"

namespace tessera::worker::codegen {

// Part of every cache key. Increase it with each change after which the same kernel gives other
// code.
inline constexpr int kCodegenVersion = 6;
// The name of the function that every object defines.
inline constexpr char kFunctionName[] = "tessera_kernel";

class HostCodegen {
 public:
  explicit HostCodegen(const HostTarget& target);
  ~HostCodegen();
  HostCodegen(const HostCodegen&) = delete;
  HostCodegen& operator=(const HostCodegen&) = delete;

  // Returns an object. The bytes of the object do not depend on earlier compilations. Requires that
  // `kernel` or `loop` passes Verify.
  absl::StatusOr<std::string> Compile(const Kernel& kernel);
  absl::StatusOr<std::string> Compile(const KernelLoop& loop);
  // Returns the compiled function as text for people to read: assembly or optimised LLVM IR.
  absl::StatusOr<std::string> Listing(const Kernel& kernel, bool llvm_ir);
  absl::StatusOr<std::string> Listing(const KernelLoop& loop, bool llvm_ir);

 private:
  class Impl;
  template <class Unit>
  absl::StatusOr<std::string> CompileUnit(const Unit& unit);
  template <class Unit>
  absl::StatusOr<std::string> ListingOf(const Unit& unit, bool llvm_ir);

  const HostTarget target_;
  std::unique_ptr<Impl> impl_;
  int units_in_context_ = 0;
};

}  // namespace tessera::worker::codegen
