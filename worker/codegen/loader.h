// Loads relocatable objects into this process, by LLVM's JIT linker. Thread-safe. Loaded code is
// read-only and executable. The memory of the code is freed with the last reference to it
// (code_memory.h).
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::worker::codegen {

class HostLoader : public std::enable_shared_from_this<HostLoader> {
 public:
  static absl::StatusOr<std::shared_ptr<HostLoader>> Create();
  virtual ~HostLoader() = default;

  // Returns the function `name` of the object, which stays mapped as long as the function is
  // referred to. Returns INTERNAL if the object is malformed, does not define `name`, or needs a
  // symbol that host_runtime.h does not have, or if there is no memory for it. The message gives
  // the cause.
  virtual absl::StatusOr<std::shared_ptr<const void>> Load(const std::string& object,
                                                           const std::string& name) = 0;
};

}  // namespace tessera::worker::codegen
