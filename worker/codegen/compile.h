// Kernels to relocatable objects. See host_code.h for the way in; here is the compiler itself,
// which runs in the process that wants the code or in a child of it (compile_child.h).
//
// A HostCodegen is for one thread at a time; several run at the same time. An error of LLVM's ends
// the process, which is what children are for.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Part of every cache key: changes whenever the same kernel would give other code.
inline constexpr int kCodegenVersion = 1;
// The function that every object defines.
inline constexpr char kFunctionName[] = "tessera_kernel";

class HostCodegen {
 public:
  explicit HostCodegen(const HostTarget& target);
  ~HostCodegen();
  HostCodegen(const HostCodegen&) = delete;
  HostCodegen& operator=(const HostCodegen&) = delete;

  // The object's bytes, independent of earlier compilations. Requires Verify(kernel).
  absl::StatusOr<std::string> Compile(const Kernel& kernel);
  // The function as it was emitted, after the passes, and as assembly, for humans.
  struct Listing {
    std::string ir, optimised, assembly;
  };
  Listing List(const Kernel& kernel);

 private:
  class Impl;
  const HostTarget target_;
  std::unique_ptr<Impl> impl_;
  int since_fresh_ = 0;
};

}  // namespace tessera::worker::codegen
