// The reference evaluator. Tests compare every backend with it. Executors run small programs on it,
// and all ops that have no code of their own (docs/decisions/0004, 0014).
#include "ir/eval/eval.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/strided.h"

namespace tessera::ir {
namespace {

// Returns the types of the op's results. Uses `*storage` only if the results are not consecutive
// values.
absl::Span<const Type> ResultTypes(const Function& f, const Op& op, std::vector<Type>* storage) {
  for (size_t r = 1; r < op.results.size(); ++r)
    if (op.results[r] != op.results[r - 1] + 1) return *storage = ElementsAt(f.types, op.results);
  if (op.results.empty()) return {};
  return absl::MakeConstSpan(f.types).subspan(op.results[0], op.results.size());
}

std::vector<Array> EvalScalar(const OpDef& def, const Attrs& attrs,
                              absl::Span<const Type> out_types, absl::Span<const Array> in) {
  const Dims& shape = out_types[0].shape;
  // `expanded` holds the scalar operands of an op on arrays, repeated to the shape of the result.
  std::vector<Array> expanded, out;
  absl::InlinedVector<const void*, 4> in_ptrs;
  absl::InlinedVector<void*, 2> out_ptrs;
  for (const Array& a : in) {
    const bool as_it_is = a.rank() == static_cast<int>(shape.size());
    if (!as_it_is) expanded.push_back(ReadStrided(a, 0, Dims(shape.size(), 0), shape));
    in_ptrs.push_back(as_it_is ? a.data() : expanded.back().data());
  }
  out.reserve(out_types.size());
  for (const Type& t : out_types)
    out_ptrs.push_back(out.emplace_back(t.dtype, t.shape).MutableData());
  def.scalar.eval(attrs, in.back().dtype(), out_types[0].dtype, in_ptrs.data(), out_ptrs.data(),
                  out[0].num_elements());
  return out;
}

absl::Status CheckNumArgs(const Function& f, size_t given) {
  if (static_cast<int>(given) == f.num_params) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat(f.name, " takes ", f.num_params, " arguments, got ", given));
}

absl::Status CheckArg(const Function& f, int i, const Array& a) {
  const Type& t = f.types[i];
  if (a.dtype() == t.dtype && a.shape() == t.shape) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError, absl::StrCat("argument ", i, " of ", f.name, " is ",
                                                        MakeType(a.dtype(), a.shape()).ToString(),
                                                        "; expected ", t.ToString()));
}

// Returns, for each value, the index of the last op that uses or makes it; -1 for results of the
// function.
absl::InlinedVector<int, 32> LastUses(const Function& f) {
  absl::InlinedVector<int, 32> last(f.types.size(), -1);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    for (ValueId v : f.ops[i].operands) last[v] = static_cast<int>(i);
    for (ValueId v : f.ops[i].results) last[v] = static_cast<int>(i);
  }
  for (ValueId v : f.results) last[v] = -1;
  return last;
}

// Runs op `index` of `f` on the operands of one shard.
absl::StatusOr<std::vector<Array>> EvalOnShard(const EvalContext& c, const Function& f,
                                               size_t index, absl::Span<const Array> in) {
  if (const OpHook& hook = c.evaluator.options().hook)
    if (auto out = hook(f, f.ops[index], f.sites[index], in)) return *std::move(out);
  if (c.def.scalar.eval) return EvalScalar(c.def, c.attrs, c.out_types, in);
  if (c.def.index_map) return derive::EvalIndexMap(c, in);
  if (c.def.contraction_map) return derive::EvalContraction(c, in);
  if (c.def.eval) return c.def.eval(c, in);
  return MakeError(ErrorKind::kInternal, absl::StrCat(ToAbsl(c.def.name), ": no hook ran the op"));
}

// Returns whether the op is evaluated shard by shard, and not on all shards at once.
bool IsPerShard(const Evaluator& ev, const Op& op) {
  return op.def->scalar.eval || op.def->index_map || op.def->contraction_map || op.def->eval ||
         (ev.options().hook && op.def->lowering == Lowering::kCollective);
}

absl::StatusOr<std::vector<Shards>> EvalOp(Evaluator& ev, const Function& f, size_t index,
                                           const std::vector<Shards>& env) {
  const Op& op = f.ops[index];
  std::vector<Type> storage;
  const EvalContext c{*op.def, f.scope, op.attrs, op.regions, ResultTypes(f, op, &storage), ev};
  if (!IsPerShard(ev, op)) return op.def->eval_shards(c, ElementsAt(env, op.operands));

  std::vector<Shards> out(op.results.size());
  for (size_t shard = 0; shard < ev.shard_devices().size(); ++shard) {
    std::vector<Array> in;
    in.reserve(op.operands.size());
    for (ValueId v : op.operands) in.push_back(env[v][shard]);
    TESSERA_ASSIGN_OR_RETURN(std::vector<Array> got, EvalOnShard(c, f, index, in));
    for (size_t r = 0; r < out.size(); ++r) out[r].push_back(std::move(got[r]));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<Shards>> Evaluator::RunShards(const Function& f,
                                                         std::vector<Shards> args) {
  TESSERA_RETURN_IF_ERROR(CheckNumArgs(f, args.size()));
  for (int i = 0; i < f.num_params; ++i) TESSERA_RETURN_IF_ERROR(CheckArg(f, i, args[i].at(0)));
  std::vector<Shards> env = std::move(args);
  env.resize(f.types.size());
  const auto last_use = LastUses(f);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    if (options_.check_cancel) TESSERA_RETURN_IF_ERROR(options_.check_cancel());
    TESSERA_ASSIGN_OR_RETURN(std::vector<Shards> out,
                             CatchStatusOr([&] { return ValueOrThrow(EvalOp(*this, f, i, env)); }));
    if (options_.observe)
      options_.observe(f.ops[i], f.sites[i], shard_devices_, ElementsAt(env, f.ops[i].operands),
                       out);
    for (size_t r = 0; r < out.size(); ++r) env[f.ops[i].results[r]] = std::move(out[r]);
    const auto drop = [&](absl::Span<const ValueId> values) {
      for (ValueId v : values)
        if (last_use[v] == static_cast<int>(i)) env[v].clear();
    };
    drop(f.ops[i].operands);
    drop(f.ops[i].results);
  }
  return ElementsAt(env, f.results);
}

// Runs a function whose ops are all evaluated shard by shard, which is the common case. It keeps
// plain arrays instead of lists of shards. A value moves out of `env` at its last use, so that its
// memory is freed early.
absl::StatusOr<std::vector<Array>> Evaluator::RunOneShard(const Function& f,
                                                          std::vector<Array> args) {
  TESSERA_RETURN_IF_ERROR(CheckNumArgs(f, args.size()));
  for (int i = 0; i < f.num_params; ++i) TESSERA_RETURN_IF_ERROR(CheckArg(f, i, args[i]));
  const auto last_use = LastUses(f);
  absl::InlinedVector<std::optional<Array>, 8> env(f.types.size());
  for (int i = 0; i < f.num_params; ++i) env[i] = std::move(args[i]);
  // Returns the value at `k` of the list. If `is_last_use` is set, nothing after this list uses the
  // value.
  const auto take = [&env](absl::Span<const ValueId> list, size_t k, bool is_last_use) {
    std::optional<Array>& value = env[list[k]];
    const auto later = list.subspan(k + 1);
    if (!is_last_use || std::find(later.begin(), later.end(), list[k]) != later.end())
      return *value;
    Array taken = *std::move(value);
    value.reset();
    return taken;
  };
  for (size_t i = 0; i < f.ops.size(); ++i) {
    if (options_.check_cancel) TESSERA_RETURN_IF_ERROR(options_.check_cancel());
    const Op& op = f.ops[i];
    absl::InlinedVector<Array, 4> in;
    for (size_t k = 0; k < op.operands.size(); ++k)
      in.push_back(take(op.operands, k, last_use[op.operands[k]] == static_cast<int>(i)));
    std::vector<Type> storage;
    const EvalContext c{*op.def, f.scope, op.attrs, op.regions, ResultTypes(f, op, &storage),
                        *this};
    TESSERA_ASSIGN_OR_RETURN(std::vector<Array> out, EvalOnShard(c, f, i, in));
    for (size_t r = 0; r < op.results.size(); ++r)
      if (last_use[op.results[r]] != static_cast<int>(i)) env[op.results[r]] = std::move(out[r]);
  }
  args.clear();
  for (size_t r = 0; r < f.results.size(); ++r)
    args.push_back(take(f.results, r, /*is_last_use=*/true));
  return args;
}

absl::StatusOr<std::vector<Array>> Evaluator::Run(const Function& f, std::vector<Array> args) {
  shard_devices_ = {options_.device < 0 ? 0 : options_.device};
  if (!options_.observe &&
      std::all_of(f.ops.begin(), f.ops.end(), [&](const Op& op) { return IsPerShard(*this, op); }))
    return CatchStatusOr([&] { return ValueOrThrow(RunOneShard(f, std::move(args))); });
  std::vector<Shards> shards;
  shards.reserve(f.types.size());
  for (Array& a : args) shards.emplace_back().push_back(std::move(a));
  TESSERA_ASSIGN_OR_RETURN(std::vector<Shards> out, RunShards(f, std::move(shards)));
  args.clear();
  for (Shards& result : out) args.push_back(std::move(result[0]));
  return args;
}

absl::StatusOr<std::vector<Shards>> Evaluator::RunOnDevices(std::vector<int64_t> devices,
                                                            const Function& body,
                                                            std::vector<Shards> args) {
  std::swap(shard_devices_, devices);
  absl::StatusOr<std::vector<Shards>> out = RunShards(body, std::move(args));
  std::swap(shard_devices_, devices);
  return out;
}

Array ResultBuffer(const EvalContext& c, size_t i) {
  const Type& t = c.out_types[i];
  const auto& memory = c.evaluator.options().result_memory;
  if (!memory || t.num_elements() == 0) return Array(t.dtype, t.shape);
  return Array(t.dtype, t.shape, std::shared_ptr<std::byte[]>(memory(i), [](std::byte*) {}));
}

absl::StatusOr<std::vector<Array>> Evaluate(const Function& f, absl::Span<const Array> args) {
  return Evaluator().Run(f, {args.begin(), args.end()});
}

absl::StatusOr<std::vector<Array>> EvaluateOp(const OpDef& def, const Scope& scope,
                                              absl::Span<const Array> in, const Attrs& attrs,
                                              absl::Span<const FunctionRef> regions) {
  Builder b(scope);
  FunctionRef f;
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] {
    std::vector<Value> params;
    for (const Array& a : in) params.push_back(b.Param(MakeType(a.dtype(), a.shape())));
    f = b.Build(b.Emit(def, params, attrs, {regions.begin(), regions.end()}));
  }));
  return Evaluate(*f, in);
}

}  // namespace tessera::ir
