#include "ir/eval/eval.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/strided.h"

namespace tessera::ir {
namespace {

// `a`, broadcast to `shape` if it is a scalar operand of an op on arrays.
Array Expanded(const Array& a, const Dims& shape) {
  if (a.rank() == static_cast<int>(shape.size())) return a;
  return ReadStrided(a, 0, Dims(shape.size(), 0), shape);
}

std::vector<Array> EvalScalar(const OpDef& def, const Attrs& attrs,
                              absl::Span<const Type> out_types, absl::Span<const Array> in) {
  std::vector<Array> operands, out;
  std::vector<const void*> in_ptrs;
  std::vector<void*> out_ptrs;
  for (const Array& a : in) operands.push_back(Expanded(a, out_types[0].shape));
  for (const Array& a : operands) in_ptrs.push_back(a.data());
  for (const Type& t : out_types) out.emplace_back(t.dtype, t.shape);
  for (Array& a : out) out_ptrs.push_back(a.MutableData());
  def.scalar.eval(attrs, in.back().dtype(), out_types[0].dtype, in_ptrs.data(), out_ptrs.data(),
                  out[0].num_elements());
  return out;
}

absl::Status CheckArg(const Function& f, int i, const Array& a) {
  const Type& t = f.types[i];
  if (a.dtype() == t.dtype && a.shape() == t.shape) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError, absl::StrCat("argument ", i, " of ", f.name, " is ",
                                                        MakeType(a.dtype(), a.shape()).ToString(),
                                                        "; expected ", t.ToString()));
}

// For each op, the values that it is the last to use.
std::vector<std::vector<ValueId>> LastUses(const Function& f) {
  std::vector<int> last(f.types.size(), -1);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    for (ValueId v : f.ops[i].operands) last[v] = static_cast<int>(i);
    for (ValueId v : f.ops[i].results) last[v] = static_cast<int>(i);
  }
  for (ValueId v : f.results) last[v] = -1;
  std::vector<std::vector<ValueId>> dead(f.ops.size());
  for (size_t v = 0; v < last.size(); ++v)
    if (last[v] >= 0) dead[last[v]].push_back(static_cast<ValueId>(v));
  return dead;
}

// Runs op `index` of `f` on the operands of one shard.
absl::StatusOr<std::vector<Array>> EvalOnShard(const EvalContext& c, const Function& f,
                                               size_t index, absl::Span<const Array> in) {
  if (const OpHook& hook = c.evaluator.options().hook)
    if (auto out = hook(f, f.ops[index], f.sites[index], in)) return *std::move(out);
  if (c.def.scalar.eval) return EvalScalar(c.def, c.attrs, c.out_types, in);
  if (c.def.index_map) return derive::EvalIndexMap(c, in);
  if (c.def.eval) return c.def.eval(c, in);
  return MakeError(ErrorKind::kInternal, absl::StrCat(ToAbsl(c.def.name), ": no hook ran it"));
}

absl::StatusOr<std::vector<Shards>> EvalOp(Evaluator& ev, const Function& f, size_t index,
                                           const std::vector<Shards>& env) {
  const Op& op = f.ops[index];
  const std::vector<Type> out_types = ElementsAt(f.types, op.results);
  const EvalContext c{*op.def, f.scope, op.attrs, op.regions, out_types, ev};
  const std::vector<Shards> operands = ElementsAt(env, op.operands);
  const bool per_shard = op.def->scalar.eval || op.def->index_map || op.def->eval ||
                         (ev.options().hook && op.def->lowering == Lowering::kCollective);
  if (!per_shard) return op.def->eval_shards(c, operands);

  std::vector<Shards> out(op.results.size());
  for (size_t shard = 0; shard < ev.shard_devices().size(); ++shard) {
    std::vector<Array> in;
    for (const Shards& operand : operands) in.push_back(operand[shard]);
    TESSERA_ASSIGN_OR_RETURN(std::vector<Array> got, EvalOnShard(c, f, index, in));
    for (size_t r = 0; r < out.size(); ++r) out[r].push_back(std::move(got[r]));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<Shards>> Evaluator::RunShards(const Function& f,
                                                         std::vector<Shards> args) {
  if (static_cast<int>(args.size()) != f.num_params)
    return MakeError(ErrorKind::kValueError, absl::StrCat(f.name, " takes ", f.num_params,
                                                          " arguments, got ", args.size()));
  for (int i = 0; i < f.num_params; ++i) TESSERA_RETURN_IF_ERROR(CheckArg(f, i, args[i].at(0)));
  std::vector<Shards> env(f.types.size());
  std::move(args.begin(), args.end(), env.begin());
  const std::vector<std::vector<ValueId>> dead = LastUses(f);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    if (options_.check_cancel) TESSERA_RETURN_IF_ERROR(options_.check_cancel());
    TESSERA_ASSIGN_OR_RETURN(std::vector<Shards> out,
                             CatchStatusOr([&] { return ValueOrThrow(EvalOp(*this, f, i, env)); }));
    for (size_t r = 0; r < out.size(); ++r) env[f.ops[i].results[r]] = std::move(out[r]);
    for (ValueId v : dead[i]) env[v].clear();
  }
  return ElementsAt(env, f.results);
}

absl::StatusOr<std::vector<Array>> Evaluator::Run(const Function& f, absl::Span<const Array> args) {
  shard_devices_ = {options_.device < 0 ? 0 : options_.device};
  std::vector<Shards> shards;
  for (const Array& a : args) shards.push_back({a});
  TESSERA_ASSIGN_OR_RETURN(std::vector<Shards> out, RunShards(f, std::move(shards)));
  std::vector<Array> results;
  for (Shards& result : out) results.push_back(std::move(result[0]));
  return results;
}

absl::StatusOr<std::vector<Shards>> Evaluator::RunOnDevices(std::vector<int64_t> devices,
                                                            const Function& body,
                                                            std::vector<Shards> args) {
  std::swap(shard_devices_, devices);
  absl::StatusOr<std::vector<Shards>> out = RunShards(body, std::move(args));
  std::swap(shard_devices_, devices);
  return out;
}

absl::StatusOr<std::vector<Array>> Evaluate(const Function& f, absl::Span<const Array> args) {
  return Evaluator().Run(f, args);
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
