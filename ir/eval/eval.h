// The reference evaluator: the semantics of every op, in plain loops.
//
// A function is evaluated on all shards at once.  Outside manual_computation there is one shard,
// the whole array; inside there is one per coordinate of the manual axes' mesh (row-major over the
// whole mesh), so that a collective sees every shard.  An executor runs a device program on one
// shard and hands collectives and fast kernels to a hook.
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

// Called before the evaluator runs an op on one shard; nullopt leaves the op to the evaluator. A
// hook must run every collective itself.
using OpHook = std::function<std::optional<absl::StatusOr<std::vector<Array>>>(
    const Function& f, const Op& op, const Site& site, absl::Span<const Array> in)>;

struct EvalOptions {
  OpHook hook;
  // The mesh coordinate of the single shard, for axis_index (device program); -1: logical
  // evaluation.
  int64_t device = -1;
  // Called between ops; an error stops the run.
  std::function<absl::Status()> check_cancel;
  // Calls work(begin, end) for parts of [0, n), perhaps by several threads, until all have ended or
  // the run is to stop, which is an error. `each` is the cost of one in multiplications. Null: the
  // thread that runs the op does everything.
  std::function<absl::Status(int64_t n, int64_t each,
                             absl::FunctionRef<void(int64_t begin, int64_t end)> work)>
      parallel_for;
  // Called after each op, those of regions before the op that runs them, with its operands and
  // results on all shards, which are those of the mesh's `devices`. Null: nobody looks.
  std::function<void(const Op& op, const Site& site, absl::Span<const int64_t> devices,
                     const std::vector<Shards>& in, const std::vector<Shards>& out)>
      observe;
  // What debug_print calls with its format and operands, once for each member of a batch. Null: it
  // does nothing.
  std::function<void(const std::string& format, absl::Span<const Array> values)> print;
  // Of a function of one op, whose results are the function's: where result i may be written. Null:
  // wherever there is memory.
  std::function<std::byte*(size_t i)> result_memory;
};

class Evaluator {
 public:
  explicit Evaluator(EvalOptions options = {}) : options_(std::move(options)) {}

  // Runs one shard.  Requires: args match f's params in shape and dtype (checked, VALUE_ERROR).
  absl::StatusOr<std::vector<Array>> Run(const Function& f, std::vector<Array> args);
  // args[param][shard] -> [result][shard].
  absl::StatusOr<std::vector<Shards>> RunShards(const Function& f, std::vector<Shards> args);

  const EvalOptions& options() const { return options_; }
  // Mesh device (row-major index) of each current shard; {options.device} or {0} outside manual
  // code.
  const std::vector<int64_t>& shard_devices() const { return shard_devices_; }
  // Runs `body` on the shards of these mesh devices; manual_computation's eval uses it.
  absl::StatusOr<std::vector<Shards>> RunOnDevices(std::vector<int64_t> devices,
                                                   const Function& body, std::vector<Shards> args);

 private:
  // What Run does where every op is evaluated shard by shard, and nobody observes.
  absl::StatusOr<std::vector<Array>> RunOne(const Function& f, std::vector<Array> args);

  EvalOptions options_;
  std::vector<int64_t> shard_devices_ = {0};
};

// What an op's evaluation may write result i into, whatever is in it.
Array ResultOf(const EvalContext& c, size_t i);

// Evaluates an entry function logically, on whole arrays.
absl::StatusOr<std::vector<Array>> Evaluate(const Function& f, absl::Span<const Array> args);
// Evaluates one op on given arrays (rank-checked by inference).
absl::StatusOr<std::vector<Array>> EvaluateOp(const OpDef& def, const Scope& scope,
                                              absl::Span<const Array> in, const Attrs& attrs,
                                              absl::Span<const FunctionRef> regions = {});

}  // namespace tessera::ir
