// The functions of the host, such as JAX's callbacks and prints, that programs call by name. The
// process that loads the plugin, for example through the Python package tessera_jax, sets one C
// function that makes every call, and one that keeps functions alive. Thread-safe.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/pjrt/abi.h"
#include "ir/array.h"

namespace tessera::pjrt {

void SetHostCallbacks(HostCallback callback, HoldCallback hold);

// Calls the host function `id` with the operands `arrays`, and waits until it has written
// `results`, whose memory the caller has made. If the call fails, the error is INTERNAL, as in JAX
// on CPUs, with the text that the call wrote.
absl::Status CallHost(const std::string& id, absl::Span<const ir::Array> arrays,
                      absl::Span<ir::Array> results);

// Keeps the host functions alive that a program calls, for as long as this object lives.
class HeldCallbacks {
 public:
  explicit HeldCallbacks(std::vector<std::string> names);
  HeldCallbacks(const HeldCallbacks&) = delete;
  HeldCallbacks& operator=(const HeldCallbacks&) = delete;
  ~HeldCallbacks();

 private:
  const std::vector<std::string> names_;
};

}  // namespace tessera::pjrt
