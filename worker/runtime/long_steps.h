// The interface through which a backend has long host steps (program::HostStep::is_long) evaluated
// where they can be stopped: in processes that can be killed alone (cpu/eval_child.h).
#pragma once
#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/program.h"
#include "worker/runtime/backend.h"

namespace tessera::worker {

// Thread-safe.
class LongSteps {
 public:
  virtual ~LongSteps() = default;
  // Evaluates the function of a host step for the run of `context`, and blocks until that has
  // ended. `in` is the memory of the operands, and `out` that of the results, which is written only
  // if the evaluation succeeds. If the launch is cancelled, the evaluation is stopped at once and
  // the launch's status is returned.
  virtual absl::Status Evaluate(const ir::FunctionRef& function, const RunContext& context,
                                absl::Span<const absl::Span<const std::byte>> in,
                                absl::Span<const absl::Span<std::byte>> out) = 0;
};

}  // namespace tessera::worker
