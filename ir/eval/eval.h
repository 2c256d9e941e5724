// The reference evaluator: the meaning of every op, in plain loops.
//
// A function is evaluated on all lanes at once.  Outside manual_computation there is one lane;
// inside there is one per coordinate of the manual axes' mesh (row-major over the whole mesh), so
// that a collective sees every block.  An executor runs one lane of a device program and hands
// collectives and fast kernels to a hook.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/op_def.h"
#include "ir/program.h"

namespace tessera::ir {

// Called before the evaluator runs an op on one lane; nullopt leaves the op to the evaluator.  With
// a hook, collectives must be answered by it.
using OpHook = std::function<std::optional<absl::StatusOr<std::vector<Array>>>(
    const Function& f, const Op& op, const Site& site, absl::Span<const Array> in)>;

struct EvalOptions {
  OpHook hook;
  // The mesh coordinate of the single lane, for axis_index (device program); -1: logical
  // evaluation.
  int64_t device = -1;
  // Asked between ops; an error stops the run.
  std::function<absl::Status()> check_cancel;
};

class Evaluator {
 public:
  explicit Evaluator(EvalOptions options = {}) : options_(std::move(options)) {}

  // One lane.  Requires: args match f's params in shape and dtype (checked, VALUE_ERROR).
  absl::StatusOr<std::vector<Array>> Run(const Function& f, absl::Span<const Array> args);
  // args[param][lane] -> [result][lane].  `devices`: mesh coordinate of each lane.
  absl::StatusOr<std::vector<Lanes>> RunLanes(const Function& f, std::vector<Lanes> args);

  const EvalOptions& options() const { return options_; }
  // Mesh device (row-major index) of each current lane; {options.device} or {0} outside manual
  // code.
  const std::vector<int64_t>& lane_devices() const { return lane_devices_; }
  // Runs `body` with other lanes; manual_computation's eval uses it.
  absl::StatusOr<std::vector<Lanes>> WithLanes(std::vector<int64_t> devices, const Function& body,
                                               std::vector<Lanes> args);

 private:
  EvalOptions options_;
  std::vector<int64_t> lane_devices_ = {0};
};

// Evaluates an entry function logically, one lane.
absl::StatusOr<std::vector<Array>> Evaluate(const Function& f, absl::Span<const Array> args);
// One op on given arrays (rank-checked by inference).
absl::StatusOr<std::vector<Array>> EvaluateOp(const OpDef& def, const Scope& scope,
                                              absl::Span<const Array> in, const Attrs& attrs,
                                              absl::Span<const FunctionRef> regions = {});

}  // namespace tessera::ir
