// vmap: replaces each op that depends on a batched param by its batched form. The client's vmap,
// and the rules of ops with regions, call Batch; `memo.h` keeps the cost of nested loops in bounds.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_exception.h"
#include "ir/any_op.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/ops/rules/batch_dim.h"
#include "ir/ops/rules/derived.h"
#include "ir/ops/rules/family.h"
#include "ir/ops/rules/refused.h"
#include "ir/transform/apply_rule.h"
#include "ir/transform/memo.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace {

// ---- The scope of the result. ----

// Returns `scope` without the mapped axis, which must be the innermost one.
Scope WithoutAxis(Scope scope, const MappedAxis& axis) {
  const auto matches = [&](const MappedAxis& a) {
    return a.name == axis.name && a.sharding == axis.sharding && a.spmd == axis.spmd;
  };
  if (!axis.in_scope()) return scope;
  TESSERA_CHECK(!scope.mapped.empty() && matches(scope.mapped.back()))
      << "a body that was not traced under the mapped axis " << axis.ToString();
  scope.mapped.pop_back();
  return scope;
}

// ---- Ops that name the axis. If an inner vmap names its axis the same, its ops are batched
// already. ----

bool NamesAxis(const Op& op, const std::string& name) {
  if (name.empty() || op.def->batch_along == nullptr) return false;
  const AxisList& axes = op.attrs.Strings("axes");
  return std::find(axes.begin(), axes.end(), name) != axes.end();
}
bool RegionsNameAxis(const Op& op, const std::string& name) {
  return !name.empty() &&
         std::any_of(op.regions.begin(), op.regions.end(), [&](const FunctionRef& region) {
           return AnyOp(*region, [&](const Function&, const Op& o) { return NamesAxis(o, name); });
         });
}

struct BatchWalk {
  const Function& f;
  const MappedAxis& axis;
  Builder b;
  std::vector<Value> env;
  std::vector<int> dims;

  BatchWalk(const Function& fn, const MappedAxis& mapped)
      : f(fn),
        axis(mapped),
        b(WithoutAxis(fn.scope, mapped), fn.name),
        env(fn.types.size()),
        dims(fn.types.size(), -1) {}

  // Returns the type of a batched value whose members have type `t`. Inside a shard_map the value
  // varies over the axes that cut the batch (MappedAxis::spmd).
  Type BatchedType(const Type& t, int dim) const {
    Type out = walk::InsertDim(t, dim, axis.size);
    out.set_axes_of(dim, axis.sharding);
    for (const std::string& a : axis.spmd)
      if (b.mesh().IsManual(a)) out.varying.insert(a);
    return out;
  }

  void AddParams(const std::vector<int>& param_dims) {
    TESSERA_CHECK_EQ(static_cast<int>(param_dims.size()), f.num_params);
    for (int i = 0; i < f.num_params; ++i) {
      dims[i] = param_dims[i];
      if (dims[i] > f.types[i].rank())
        Throw(ErrorKind::kValueError,
              absl::StrCat("vmap of ", f.name, ": in_axes ", dims[i], " is out of range for param ",
                           i, " of rank ", f.types[i].rank() + 1));
      env[i] = b.Param(dims[i] < 0 ? f.types[i] : BatchedType(f.types[i], dims[i]));
    }
  }

  // Emits the op once if it is the same for the whole batch: no operand is batched, and neither the
  // op nor its regions name the axis. Otherwise its rule emits the batched form; a collective along
  // the axis has a rule of its own, since the axis becomes a dim. The operands are cast first so
  // that all of them vary over the same mesh axes.
  void Visit(const Op& op, const Site& site) {
    std::vector<Value> in = ElementsAt(env, op.operands);
    const std::vector<int> in_dims = ElementsAt(dims, op.operands);
    const bool along = NamesAxis(op, axis.name);
    const bool same_for_batch =
        !along && !RegionsNameAxis(op, axis.name) &&
        std::all_of(in_dims.begin(), in_dims.end(), [](int d) { return d < 0; });
    Batched out;
    if (same_for_batch) {
      out = {
          b.Emit(*op.def, in, op.attrs, walk::RegionsUnder(*op.def, op.regions, b.scope().mapped)),
          std::vector<int>(op.results.size(), -1)};
    } else if (!along && op.def->batch.refused()) {
      ThrowRefused("Batching rule", *op.def, op.def->batch.reason, site);
    } else {
      // Ops that infer their varying axes themselves accept operands that vary differently.
      if (op.def->varying.fn != ops::KeepInferredTypes) in = CastUnbatched(std::move(in), in_dims);
      RuleContext c =
          walk::RuleContextOf(b, f, op, std::move(in), std::vector<Value>(op.results.size()));
      c.batch = axis;
      out = along                     ? op.def->batch_along(c, in_dims, axis.size)
            : op.def->batch.derived() ? derive::ElementwiseBatch(c, in_dims, axis.size)
                                      : op.def->batch.fn(c, in_dims, axis.size);
    }
    TESSERA_CHECK_EQ(out.values.size(), op.results.size());
    for (size_t r = 0; r < op.results.size(); ++r) {
      env[op.results[r]] = out.values[r];
      dims[op.results[r]] = out.dims[r];
    }
  }

  // Casts the operands that are the same for the whole batch. The results vary over the mesh axes
  // that cut the batch, as the batched operands do.
  std::vector<Value> CastUnbatched(std::vector<Value> in, const std::vector<int>& in_dims) {
    if (axis.spmd.empty()) return in;
    for (size_t i = 0; i < in.size(); ++i)
      if (in_dims[i] < 0) in[i] = Pvary(in[i], walk::MissingSpmdAxes(axis, in[i]));
    return in;
  }

  // Moves the batch dim of each result to where `force_out` wants it, or adds one to a result that
  // is the same for all members. The checks of out_axes are here because only now is it known which
  // results are batched.
  BatchResult BuildResult(const std::vector<int>& force_out) {
    BatchResult out;
    std::vector<Value> results;
    for (size_t r = 0; r < f.results.size(); ++r) {
      Value v = env[f.results[r]];
      int dim = dims[f.results[r]];
      const int want = force_out.empty() ? -2 : force_out[r];
      if (want == -1 && dim >= 0)
        Throw(ErrorKind::kValueError,
              absl::StrCat("vmap of ", f.name, " has mapped output ", r,
                           axis.name.empty() ? "" : absl::StrCat(" (axis_name=", axis.name, ")"),
                           " but out_axes is None; give the axis where the batch is to go"));
      if (want >= 0 && want > f.types[f.results[r]].rank())
        Throw(ErrorKind::kValueError,
              absl::StrCat("vmap of ", f.name, ": out_axes ", want, " is out of range for output ",
                           r, " of rank ", f.types[f.results[r]].rank() + 1));
      if (want >= 0) {
        v = dim < 0 ? walk::WithBatchDim(axis, v, want) : dim == want ? v : MoveDim(v, dim, want);
        dim = want;
      }
      results.push_back(v);
      out.out_dims.push_back(dim);
    }
    out.fn = b.Build(results);
    return out;
  }
};

}  // namespace

absl::StatusOr<BatchResult> Batch(const Function& f, const std::vector<int>& dims,
                                  const MappedAxis& axis, const std::vector<int>& force_out) {
  struct Tag {};
  return walk::Memoized<Tag, BatchResult>(f, std::tuple(dims, axis, force_out), [&] {
    return CatchStatusOr([&] {
      BatchWalk w(f, axis);
      w.AddParams(dims);
      for (size_t i = 0; i < f.ops.size(); ++i) {
        SiteScope site(w.b, f.sites[i]);
        w.Visit(f.ops[i], f.sites[i]);
      }
      return w.BuildResult(force_out);
    });
  });
}

}  // namespace tessera::ir
