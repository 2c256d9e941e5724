// Checks and evaluates computations, the regions of scalars in reduce, sort_by, scatter_by and
// reduce_window. Inference calls the checks, and the reference evaluator calls TupleEvaluator.
#include "ir/ops/regions/computation.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/regions/region.h"
#include "ir/ops/rules/family.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace ops {
namespace {

// The maximum number of tuples that are evaluated together. It is so large that the evaluator's own
// work for each op is small compared with the arithmetic on the tuples.
constexpr int64_t kTuplesMax = 4096;

// Checks the values and ops of `f` and of the functions in it. A function that occurs more than
// once is checked once.
absl::Status CheckInside(const InferContext& c, const Function& f,
                         std::unordered_set<const Function*>& seen) {
  if (!seen.insert(&f).second) return absl::OkStatus();
  for (const Type& t : f.types)
    if (t.rank() != 0)
      return TypeError(c, "a value of the computation is ", t.ToString(),
                       "; expected scalars only");
  for (const Op& op : f.ops) {
    if (op.def->lowering == Lowering::kCollective)
      return TypeError(c, "the computation exchanges data by ", ToAbsl(op.def->lax_name),
                       "; expected no collective in it");
    for (const FunctionRef& region : op.regions)
      TESSERA_RETURN_IF_ERROR(CheckInside(c, *region, seen));
  }
  return absl::OkStatus();
}

absl::Status CheckScalars(const InferContext& c, const char* what, const std::vector<Type>& have,
                          absl::Span<const DType> want) {
  if (have.size() != want.size())
    return TypeError(c, "the computation has ", have.size(), " ", what, "s; expected ",
                     want.size());
  for (size_t i = 0; i < have.size(); ++i)
    if (have[i].rank() != 0 || have[i].dtype != want[i])
      return TypeError(c, what, " ", i, " of the computation is ", have[i].ToString(),
                       "; expected ", MakeType(want[i], {}).ToString());
  return absl::OkStatus();
}

// Returns `f` with a new dim 0 of `size` in every param and result.
FunctionRef WithNewDim0(const Function& f, int64_t size) {
  return ValueOrThrow(Batch(f, std::vector<int>(f.num_params, 0), size,
                            std::vector<int>(f.results.size(), 0)))
      .fn;
}

}  // namespace

absl::Status CheckComputation(const InferContext& c, absl::Span<const DType> params,
                              absl::Span<const DType> results) {
  const Function& f = *c.regions[0];
  if (!(f.scope == Scope{}))
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat(ToAbsl(c.def.lax_name), ": the computation stands in mesh ",
                                  f.scope.mesh.ToString(), ", check_vma=", f.scope.check_vma,
                                  "; expected no mesh"));
  TESSERA_RETURN_IF_ERROR(CheckScalars(c, "param", f.param_types(), params));
  TESSERA_RETURN_IF_ERROR(CheckScalars(c, "result", f.result_types(), results));
  std::unordered_set<const Function*> seen;
  return CheckInside(c, f, seen);
}

std::vector<DType> DTypesOf(absl::Span<const Type> types) {
  std::vector<DType> out;
  for (const Type& t : types) out.push_back(t.dtype);
  return out;
}

const OpDef* SoleOp(const Function& f) {
  if (f.num_params != 2 || f.ops.size() != 1 || f.results != f.ops[0].results) return nullptr;
  std::vector<ValueId> operands = f.ops[0].operands;
  std::sort(operands.begin(), operands.end());
  return operands == std::vector<ValueId>{0, 1} ? f.ops[0].def : nullptr;
}

double FlopsOf(const InferContext& c, int64_t applications) {
  return TotalCost(*c.regions[0]).flops * static_cast<double>(applications);
}

// Batches the computation over a dim and runs it on blocks of tuples: evaluating it tuple by tuple
// would cost a walk over its ops for each tuple. Batched functions are kept, so that many calls
// with few tuples each pay for the batching once.
absl::StatusOr<std::vector<Array>> TupleEvaluator::Run(const std::vector<Array>& args) {
  const Function& f = *c_.regions[0];
  const int64_t n = args[0].num_elements();
  std::vector<Array> out;
  for (const Type& t : f.result_types()) out.emplace_back(t.dtype, Dims{n});
  int64_t tuples = 1;  // a power of two, so that there are few functions
  while (tuples < std::min(n, kTuplesMax)) tuples *= 2;
  FunctionRef& batched = batched_[tuples];
  if (batched == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(batched, CatchStatusOr([&] { return WithNewDim0(f, tuples); }));
  }
  // Run without the caller's per-op hook, which knows only the ops of the program. The evaluator
  // has one shard, whatever the scope of the op.
  EvalOptions options;
  options.check_cancel = c_.evaluator.options().check_cancel;
  Evaluator evaluator(std::move(options));
  for (int64_t begin = 0; begin < n; begin += tuples) {
    const int64_t count = std::min(tuples, n - begin);
    std::vector<Array> in;
    for (const Array& arg : args) {
      const int64_t width = ByteWidth(arg.dtype());
      Array& part = in.emplace_back(arg.dtype(), Dims{tuples});
      std::byte* const to = part.MutableData();
      std::copy_n(arg.data() + begin * width, count * width, to);
      // Fill up the block with copies of the last tuple. With other values, a loop in the
      // computation might never end.
      for (int64_t i = count; i < tuples; ++i)
        std::copy_n(to + (count - 1) * width, width, to + i * width);
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Array> got, evaluator.Run(*batched, std::move(in)));
    for (size_t r = 0; r < out.size(); ++r) {
      const int64_t width = ByteWidth(out[r].dtype());
      std::copy_n(got[r].data(), count * width, out[r].MutableData() + begin * width);
    }
  }
  return out;
}

}  // namespace ops

// There is no op for `map`: the batched computation, inlined, does the same.
std::vector<Value> MapComputation(FunctionRef computation, std::vector<Value> xs) {
  if (xs.empty() || static_cast<int>(xs.size()) != computation->num_params)
    Throw(ErrorKind::kTypeError, absl::StrCat("map: the computation has ", computation->num_params,
                                              " params; got ", xs.size(), " operands"));
  const Dims shape = xs[0].shape();
  for (size_t i = 0; i < xs.size(); ++i)
    if (xs[i].shape() != shape || xs[i].dtype() != computation->types[i].dtype)
      Throw(ErrorKind::kTypeError,
            absl::StrCat("map: operand ", i, " is ", xs[i].type().ToString(), "; expected ",
                         MakeType(computation->types[i].dtype, shape).ToString()));
  Builder& b = xs[0].builder();
  xs = MatchVarying(std::move(xs));
  for (auto size = shape.rbegin(); size != shape.rend(); ++size)
    computation = ops::WithNewDim0(*computation, *size);
  return Inline(b, *ValueOrThrow(Rescope(*computation, b.scope(), TypesOf(xs))), xs);
}

}  // namespace tessera::ir
