// Loads relocatable objects into this process, by LLVM's JIT linker. Thread-safe. Loaded code is
// mapped read-only and executable, and unmapped with the last reference to it.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::worker::codegen {

class HostLoader : public std::enable_shared_from_this<HostLoader> {
 public:
  static absl::StatusOr<std::shared_ptr<HostLoader>> Create();
  virtual ~HostLoader() = default;

  // Returns the function `name` of the object, which stays mapped while it is referred to. INTERNAL
  // if the object is malformed, lacks the name, or needs a symbol that host_runtime.h does not
  // have.
  virtual absl::StatusOr<std::shared_ptr<const void>> Load(const std::string& object,
                                                           const std::string& name) = 0;
};

}  // namespace tessera::worker::codegen
