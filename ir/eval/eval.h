// The reference evaluator: it defines the meaning of every op, in plain loops.
//
// A function is evaluated on all shards at once. Outside manual_computation there is one shard, the
// whole array. Inside there is one shard for each position along the Manual axes, in the row-major
// order of the mesh's devices, so that a collective sees every shard. An executor runs a device
// program on one shard and hands collectives and fast kernels to a hook. Thread-compatible.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/program.h"

namespace tessera::ir {

struct EvalContext;  // op_def.h

// Called before the evaluator runs an op on one shard. If the hook returns nullopt, the evaluator
// runs the op. A hook must run every collective itself.
using OpHook = std::function<std::optional<absl::StatusOr<std::vector<Array>>>(
    const Function& f, const Op& op, const Site& site, absl::Span<const Array> in)>;

struct EvalOptions {
  OpHook hook;
  // The mesh coordinate of the single shard, for axis_index in a device program; -1 for a logical
  // evaluation.
  int64_t device = -1;
  // Called between ops. An error stops the run.
  std::function<absl::Status()> check_cancel;
  // Calls work(begin, end) for parts of [0, n), possibly on several threads. Returns when all parts
  // have ended, or with an error if the run is to stop. `each` is the cost of one of the n
  // elements, counted in multiplications. If null, the thread that runs the op does everything.
  std::function<absl::Status(int64_t n, int64_t each,
                             absl::FunctionRef<void(int64_t begin, int64_t end)> work)>
      parallel_for;
  // Called after each op with its operands and results on all shards, and with the mesh's `devices`
  // that the shards belong to. The ops in a region come before the op that owns the region. May be
  // null.
  std::function<void(const Op& op, const Site& site, absl::Span<const int64_t> devices,
                     const std::vector<Shards>& in, const std::vector<Shards>& out)>
      observe;
  // Called by debug_print with its format and operands, once for each member of a batch. If null,
  // debug_print does nothing.
  std::function<void(const std::string& format, absl::Span<const Array> values)> print;
  // Returns the memory into which result i may be written. Only for a function of one op whose
  // results are the function's results. If null, the evaluator allocates memory.
  std::function<std::byte*(size_t i)> result_memory;
};

class Evaluator {
 public:
  explicit Evaluator(EvalOptions options = {}) : options_(std::move(options)) {}

  // Runs f on one shard. Requires: args match f's params in shape and dtype (checked, VALUE_ERROR).
  absl::StatusOr<std::vector<Array>> Run(const Function& f, std::vector<Array> args);
  // Runs f on all shards: maps args[param][shard] to [result][shard].
  absl::StatusOr<std::vector<Shards>> RunShards(const Function& f, std::vector<Shards> args);

  const EvalOptions& options() const { return options_; }
  // Returns the mesh device (row-major index) of each current shard; {options.device} or {0}
  // outside manual code.
  const std::vector<int64_t>& shard_devices() const { return shard_devices_; }
  // Runs `body` on the shards of these mesh devices. manual_computation's eval calls it.
  absl::StatusOr<std::vector<Shards>> RunOnDevices(std::vector<int64_t> devices,
                                                   const Function& body, std::vector<Shards> args);

 private:
  // Does the work of Run if every op is evaluated shard by shard and there is no observer.
  absl::StatusOr<std::vector<Array>> RunOneShard(const Function& f, std::vector<Array> args);

  EvalOptions options_;
  std::vector<int64_t> shard_devices_ = {0};
};

// Returns an array that the evaluation of an op may use for result i: one in the memory that
// EvalOptions::result_memory gives, or a new one. The contents of the array are unspecified.
Array ResultBuffer(const EvalContext& c, size_t i);

// Evaluates an entry function logically, on whole arrays.
absl::StatusOr<std::vector<Array>> Evaluate(const Function& f, absl::Span<const Array> args);
// Evaluates one op on the given arrays, whose ranks the op's inference checks.
absl::StatusOr<std::vector<Array>> EvaluateOp(const OpDef& def, const Scope& scope,
                                              absl::Span<const Array> in, const Attrs& attrs,
                                              absl::Span<const FunctionRef> regions = {});

}  // namespace tessera::ir
