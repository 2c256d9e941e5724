// vmap: replaces each op that depends on a batched param by its batched form.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/ops/dims.h"
#include "ir/transform/memo.h"
#include "ir/transform/transform.h"
#include "ir/transform/walk.h"

namespace tessera::ir {
namespace {

struct BatchWalk {
  const Function& f;
  int64_t size;
  Builder b;
  const AxisList& axes;
  std::vector<Value> env;
  std::vector<int> dims;

  BatchWalk(const Function& fn, int64_t batch_size, const AxisList& batch_axes)
      : f(fn),
        size(batch_size),
        b(fn.scope, fn.name),
        axes(batch_axes),
        env(fn.types.size()),
        dims(fn.types.size(), -1) {}

  void AddParams(const std::vector<int>& param_dims) {
    TESSERA_CHECK_EQ(static_cast<int>(param_dims.size()), f.num_params);
    for (int i = 0; i < f.num_params; ++i) {
      dims[i] = param_dims[i];
      if (dims[i] > f.types[i].rank())
        Throw(ErrorKind::kValueError,
              absl::StrCat("vmap of ", f.name, ": in_axes ", dims[i], " is out of range for param ",
                           i, " of rank ", f.types[i].rank() + 1));
      Type type = f.types[i];
      if (dims[i] >= 0) {
        type = walk::InsertDim(type, dims[i], size);
        if (!axes.empty()) type.set_axes_of(dims[i], axes);
      }
      env[i] = b.Param(std::move(type));
    }
  }

  void Visit(const Op& op, const Site& site) {
    std::vector<Value> in = ElementsAt(env, op.operands);
    const std::vector<int> in_dims = ElementsAt(dims, op.operands);
    Batched out;
    if (std::all_of(in_dims.begin(), in_dims.end(), [](int d) { return d < 0; })) {
      out = {walk::EmitPlain(b, op, in), std::vector<int>(op.results.size(), -1)};
    } else if (op.def->batch.refused()) {
      ThrowRefused("Batching rule", *op.def, op.def->batch.reason, site);
    } else {
      const RuleContext c =
          walk::Context(b, f, op, std::move(in), std::vector<Value>(op.results.size()));
      out = op.def->batch.derived() ? derive::ElementwiseBatch(c, in_dims, size)
                                    : op.def->batch.fn(c, in_dims, size);
    }
    TESSERA_CHECK_EQ(out.values.size(), op.results.size());
    for (size_t r = 0; r < op.results.size(); ++r) {
      env[op.results[r]] = out.values[r];
      dims[op.results[r]] = out.dims[r];
    }
  }

  // A result that is the same for all.
  Value Repeated(Value v, int dim) {
    v = BroadcastNewDim(v, dim, size);
    Type like = v.type();
    if (!axes.empty()) like.set_axes_of(dim, axes);
    return ops::ShardedLike(v, like);
  }

  BatchResult Finish(const std::vector<int>& force_out) {
    BatchResult out;
    std::vector<Value> results;
    for (size_t r = 0; r < f.results.size(); ++r) {
      Value v = env[f.results[r]];
      int dim = dims[f.results[r]];
      const int want = force_out.empty() ? -2 : force_out[r];
      if (want == -1 && dim >= 0)
        Throw(ErrorKind::kValueError,
              absl::StrCat("vmap of ", f.name, " has mapped output ", r,
                           " but out_axes is None; give the axis where the batch is to go"));
      if (want >= 0 && want > f.types[f.results[r]].rank())
        Throw(ErrorKind::kValueError,
              absl::StrCat("vmap of ", f.name, ": out_axes ", want, " is out of range for output ",
                           r, " of rank ", f.types[f.results[r]].rank() + 1));
      if (want >= 0) {
        v = dim < 0 ? Repeated(v, want) : dim == want ? v : MoveDim(v, dim, want);
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

absl::StatusOr<BatchResult> Batch(const Function& f, const std::vector<int>& dims, int64_t size,
                                  const std::vector<int>& force_out, const AxisList& axes) {
  struct Tag {};
  return walk::Memoized<Tag, BatchResult>(f, std::tuple(dims, size, force_out, axes), [&] {
    return CatchStatusOr([&] {
      BatchWalk w(f, size, axes);
      w.AddParams(dims);
      for (size_t i = 0; i < f.ops.size(); ++i) {
        SiteScope site(w.b, f.sites[i]);
        w.Visit(f.ops[i], f.sites[i]);
      }
      return w.Finish(force_out);
    });
  });
}

}  // namespace tessera::ir
