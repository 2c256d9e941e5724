// Forward differentiation: emits the tangent of each op right after the op. An absent tangent is a
// symbolic zero, for which no ops are emitted.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/ops/rules/derived.h"
#include "ir/ops/rules/refused.h"
#include "ir/transform/apply_rule.h"
#include "ir/transform/memo.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace {

struct JvpWalk {
  const Function& f;
  Builder b;
  std::vector<Value> primal, tangent;

  explicit JvpWalk(const Function& fn)
      : f(fn), b(fn.scope, fn.name), primal(fn.types.size()), tangent(fn.types.size()) {}

  void AddParams(const std::vector<bool>& active) {
    for (int i = 0; i < f.num_params; ++i) primal[i] = b.Param(f.types[i]);
    for (int i = 0; i < f.num_params; ++i) {
      if (!active[i]) continue;
      if (!IsInexact(f.types[i].dtype))
        Throw(ErrorKind::kTypeError,
              absl::StrCat("jvp of ", f.name, ": param ", i, " has type ", f.types[i].ToString(),
                           "; only float and complex inputs have tangents"));
      tangent[i] = b.Param(f.types[i]);
    }
  }

  // Emits one op and its tangents. An op without active operands or without inexact results is
  // copied. The rule of an op with regions emits the primal results itself, because one pass over
  // the regions makes results and tangents. Each tangent gets the manual axes type of its primal.
  void Visit(const Op& op, const Site& site) {
    std::vector<Value> in = ElementsAt(primal, op.operands);
    const std::vector<Value> dot = ElementsAt(tangent, op.operands);
    const bool has_tangent =
        std::any_of(dot.begin(), dot.end(), [](const Value& t) { return t.valid(); }) &&
        std::any_of(op.results.begin(), op.results.end(),
                    [&](ValueId r) { return IsInexact(f.types[r].dtype); });
    std::vector<Value> out, out_dot(op.results.size());
    if (!has_tangent) {
      out = walk::EmitPlain(b, op, in);
    } else if (op.def->jvp.refused()) {
      ThrowRefused("Differentiation rule", *op.def, op.def->jvp.reason, site);
    } else if (op.def->jvp_emits_primals) {
      out = op.def->jvp.fn(walk::RuleContextOf(b, f, op, std::move(in), {}), dot);
      TESSERA_CHECK_EQ(out.size(), 2 * op.results.size());
      out_dot.assign(out.begin() + op.results.size(), out.end());
      out.resize(op.results.size());
    } else {
      out = walk::EmitPlain(b, op, in);
      const RuleContext c = walk::RuleContextOf(b, f, op, std::move(in), out);
      out_dot = op.def->jvp.derived() ? derive::LinearJvp(c, dot) : op.def->jvp.fn(c, dot);
      TESSERA_CHECK_EQ(out_dot.size(), op.results.size());
    }
    for (size_t r = 0; r < op.results.size(); ++r) {
      const ValueId id = op.results[r];
      primal[id] = out[r];
      if (IsInexact(f.types[id].dtype)) tangent[id] = walk::MatchTangent(out_dot[r], out[r].type());
    }
  }

  void Run(const std::vector<bool>& active) {
    TESSERA_CHECK_EQ(static_cast<int>(active.size()), f.num_params);
    AddParams(active);
    for (size_t i = 0; i < f.ops.size(); ++i) {
      SiteScope site(b, f.sites[i]);
      Visit(f.ops[i], f.sites[i]);
    }
  }

  JvpResult BuildResult() {
    JvpResult out;
    std::vector<Value> results = ElementsAt(primal, f.results);
    for (ValueId v : f.results) {
      out.out_active.push_back(tangent[v].valid());
      if (tangent[v]) results.push_back(tangent[v]);
    }
    out.fn = b.Build(results);
    return out;
  }
};

}  // namespace

absl::StatusOr<JvpResult> Jvp(const Function& f, const std::vector<bool>& active,
                              bool instantiate) {
  if (instantiate) return JvpWithOutputs(f, active, std::vector<bool>(f.results.size(), true));
  struct Tag {};
  return walk::Memoized<Tag, JvpResult>(f, active, [&] {
    return CatchStatusOr([&] {
      JvpWalk w(f);
      w.Run(active);
      return w.BuildResult();
    });
  });
}

absl::StatusOr<JvpResult> JvpWithOutputs(const Function& f, const std::vector<bool>& active,
                                         const std::vector<bool>& want) {
  return CatchStatusOr([&] {
    TESSERA_CHECK_EQ(want.size(), f.results.size());
    const JvpResult jvp = ValueOrThrow(Jvp(f, active));
    JvpResult out;
    for (size_t r = 0; r < want.size(); ++r)
      out.out_active.push_back(want[r] && IsInexact(f.types[f.results[r]].dtype));
    Builder b(f.scope, f.name);
    std::vector<Value> params;
    for (const Type& t : jvp.fn->param_types()) params.push_back(b.Param(t));
    const std::vector<Value> got = Inline(b, *jvp.fn, params);
    std::vector<Value> results(got.begin(), got.begin() + want.size());
    for (size_t r = 0, next = want.size(); r < want.size(); ++r) {
      const Value tangent = jvp.out_active[r] ? got[next++] : Value();
      if (out.out_active[r]) results.push_back(tangent ? tangent : Zeros(b, got[r].type()));
    }
    out.fn = b.Build(results);
    return out;
  });
}

}  // namespace tessera::ir
