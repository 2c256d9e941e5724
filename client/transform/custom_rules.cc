// The part of derivative rules that is no template: traces the function and its rules, checks that
// their types fit, and emits one op with the function and the rules as its regions
// (docs/decisions/0015). grad, jvp and vmap find the rules in these regions.
#include "client/transform/custom_rules.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// Counts the rules that are being traced within one another. A rule that calls the function to
// which it belongs would be traced without end, so tracing fails when the rules are nested too
// deeply.
class RuleDepthGuard {
 public:
  RuleDepthGuard(const char* name, const Site& site) {
    if (depth_ >= kMaxDepth) {
      ThrowError(ErrorKind::kValueError, site, "the rules of ", name,
                 " functions nest deeper than ", kMaxDepth,
                 ": a rule calls the function that it belongs to. Call the function ",
                 "that was given to ", name, " instead");
    }
    ++depth_;
  }
  ~RuleDepthGuard() { --depth_; }
  RuleDepthGuard(const RuleDepthGuard&) = delete;
  RuleDepthGuard& operator=(const RuleDepthGuard&) = delete;

 private:
  static constexpr int kMaxDepth = 8;
  static thread_local int depth_;
};
thread_local int RuleDepthGuard::depth_ = 0;

// Returns the types that have tangents: those of inexact dtypes.
std::vector<Type> TypesWithTangents(const std::vector<Type>& types) {
  std::vector<Type> out;
  std::copy_if(types.begin(), types.end(), std::back_inserter(out),
               [](const Type& t) { return ir::IsInexact(t.dtype); });
  return out;
}
std::vector<Type> CotangentTypes(std::vector<Type> types) {
  for (Type& t : types) t = ir::CotangentType(t);
  return types;
}

// Throws unless the first results of a rule have the types of the function's results. `rule` is a
// name such as "Custom JVP rule". `second_element` describes the second element of the rule's pair,
// or is "".
void CheckRulePrimals(const char* rule, const char* second_element, const std::vector<Type>& want,
                      const std::vector<Array>& got, const Site& site) {
  for (size_t r = 0; r < want.size(); ++r) {
    ThrowIfNoValue(got[r], site);
    if (ir::EqualButWeak(want[r], got[r].type())) continue;
    const std::string hint = PcastHint(got[r].type(), want[r]);
    ThrowError(
        ErrorKind::kTypeError, site, rule, " must produce a pair where the first element ",
        "represents the primal output (equal in value to the output of the function, and in ",
        "particular with leaves of the same shape/dtype)", second_element,
        ", but instead its primal output ", r, " has type ", got[r].type().ToString(),
        " while the output of the function has type ", want[r].ToString(),
        hint.empty() ? "" : ". This might be fixed by applying " + hint);
  }
}

// Applies an op whose regions all take the captures of all regions first.
std::vector<Array> ApplyWithCaptures(
    const char* name, const std::vector<Array>& args, const std::vector<TracedFunction>& nested,
    const Site& site,
    absl::FunctionRef<std::vector<ir::Value>(ir::Builder&, const std::vector<ir::FunctionRef>&,
                                             const std::vector<ir::Value>&, int num_captures)>
        emit) {
  std::vector<Array> captures;
  for (const TracedFunction& n : nested) captures = Concat(std::move(captures), n.captures);
  const auto declared = [](const TracedFunction& n) {
    return n.fn->num_params - static_cast<int>(n.captures.size());
  };
  std::vector<ir::FunctionRef> fns;
  for (const TracedFunction& n : nested)
    fns.push_back(ConvertExceptions(site, [&] {
      ir::Builder b(n.fn->scope, n.fn->name);
      std::vector<ir::Value> own, in;
      for (const TracedFunction& other : nested)
        for (int i = declared(other); i < other.fn->num_params; ++i) {
          const ir::Value capture = b.Param(other.fn->types[i]);
          if (&other == &n) own.push_back(capture);
        }
      for (int i = 0; i < declared(n); ++i) in.push_back(b.Param(n.fn->types[i]));
      in.insert(in.end(), own.begin(), own.end());
      return b.Build(ir::Inline(b, *n.fn, in));
    }));
  return Apply(name, site, Concat(captures, args), [&](ir::Builder& b, std::vector<ir::Value> in) {
    return emit(b, fns, in, static_cast<int>(captures.size()));
  });
}

}  // namespace

// Traces f first: the rule is checked against the types of its results. Only floats and complex
// numbers have tangents in the op. The rule gets zeros as the tangents of other arguments, and the
// tangents that it returns for other results are dropped.
std::vector<Array> CustomJvpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody rule) {
  return InProgram("custom_jvp", site, args.leaves, [&] {
    const std::vector<Type> types = TypesOf(args.leaves);
    const auto n = static_cast<int64_t>(types.size());
    const TracedFunction fn = TraceFlat(CurrentScope(), types, "custom_jvp", site, body);
    const std::vector<Type> out_types = fn.fn->result_types();
    std::vector<Type> rule_types = types;
    for (const Type& t : TypesWithTangents(types)) rule_types.push_back(t);
    const RuleDepthGuard depth_guard("custom_jvp", site);
    const TracedFunction jvp = TraceFlat(
        CurrentScope(), rule_types, "custom_jvp_rule", site, [&](const std::vector<Array>& in) {
          const std::vector<Array> primals(in.begin(), in.begin() + n);
          const std::vector<Array> tangents =
              FillWithZeros(types, TangentMask(types), absl::MakeConstSpan(in).subspan(n), site);
          const std::vector<Array> got = rule(Concat(primals, tangents));
          CheckRulePrimals("Custom JVP rule", "", out_types, got, site);
          std::vector<Array> out(got.begin(), got.begin() + out_types.size());
          for (size_t r = 0; r < out_types.size(); ++r) {
            if (!ir::IsInexact(out_types[r].dtype)) continue;
            const Array& tangent = got[out_types.size() + r];
            ThrowIfNoValue(tangent, site);
            if (!ir::EqualButWeak(out_types[r], tangent.type())) {
              const std::string hint = PcastHint(tangent.type(), out_types[r]);
              ThrowError(ErrorKind::kTypeError, site,
                         "Custom JVP rule must produce primal and tangent outputs with "
                         "corresponding shapes and dtypes. Expected ",
                         out_types[r].ToString(), " (tangent type of output ", r, ") but got ",
                         tangent.type().ToString(),
                         hint.empty() ? "" : ". This might be fixed by applying " + hint);
            }
            out.push_back(tangent);
          }
          return out;
        });
    return ApplyWithCaptures("custom_jvp", args.leaves, {fn, jvp}, site,
                             [](ir::Builder& b, const std::vector<ir::FunctionRef>& fns,
                                const std::vector<ir::Value>& in, int num_captures) {
                               return ir::CustomJvpCall(b, fns[0], fns[1], in, num_captures);
                             });
  });
}

namespace {

// Returns the cotangents that a bwd rule gave for the arguments that have cotangents. A cotangent
// without a value becomes zeros.
std::vector<Array> CheckedCotangents(const FlatArgs& args, const std::vector<Array>& got,
                                     const Site& site) {
  std::vector<Array> out;
  for (size_t i = 0; i < got.size(); ++i) {
    const Type& arg = args.leaves[i].type();
    if (!ir::IsInexact(arg.dtype)) continue;
    const Type want = ir::CotangentType(arg);
    out.push_back(got[i].valid() ? got[i] : FullArray(want, 0, site));
    if (ir::EqualButWeak(want, out.back().type())) continue;
    const std::string hint = PcastHint(out.back().type(), want);
    ThrowError(ErrorKind::kValueError, site,
               "Custom VJP bwd rule must produce an output with the same type as the args tuple of "
               "the primal function, but at ",
               LeafPaths(args.tree, "output")[i], " the bwd rule produced an output of type ",
               out.back().type().ToString(), " corresponding to an input of type ", arg.ToString(),
               hint.empty() ? "" : ". This might be fixed by applying " + hint);
  }
  return out;
}

}  // namespace

// Traces f, then fwd, then bwd, because each needs the types that the one before it returned: the
// residuals of fwd are the first params of bwd.
std::vector<Array> CustomVjpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody fwd, FlatBody bwd) {
  return InProgram("custom_vjp", site, args.leaves, [&] {
    const std::vector<Type> types = TypesOf(args.leaves);
    const TracedFunction fn = TraceFlat(CurrentScope(), types, "custom_vjp", site, body);
    const std::vector<Type> out_types = fn.fn->result_types();
    const RuleDepthGuard depth_guard("custom_vjp", site);
    const TracedFunction forward =
        TraceFlat(CurrentScope(), types, "custom_vjp_fwd", site, [&](const std::vector<Array>& in) {
          std::vector<Array> out = fwd(in);
          CheckRulePrimals("Custom VJP fwd rule",
                           " and the second element represents residuals (i.e. values stored from "
                           "the forward pass for use on the backward pass)",
                           out_types, out, site);
          return out;
        });
    const std::vector<Type> forward_types = forward.fn->result_types();
    std::vector<Type> rule_types(forward_types.begin() + out_types.size(), forward_types.end());
    const size_t num_residuals = rule_types.size();
    for (const Type& t : CotangentTypes(TypesWithTangents(out_types))) rule_types.push_back(t);
    const TracedFunction backward = TraceFlat(
        CurrentScope(), rule_types, "custom_vjp_bwd", site, [&](const std::vector<Array>& in) {
          const std::vector<Array> residuals(in.begin(), in.begin() + num_residuals);
          const std::vector<Array> cotangents =
              FillWithZeros(CotangentTypes(out_types), TangentMask(out_types),
                            absl::MakeConstSpan(in).subspan(num_residuals), site);
          return CheckedCotangents(args, bwd(Concat(residuals, cotangents)), site);
        });
    return ApplyWithCaptures("custom_vjp", args.leaves, {fn, forward, backward}, site,
                             [](ir::Builder& b, const std::vector<ir::FunctionRef>& fns,
                                const std::vector<ir::Value>& in, int num_captures) {
                               return ir::CustomVjpCall(b, fns[0], fns[1], fns[2], in,
                                                        num_captures);
                             });
  });
}

// Checks and traces the functions that the caller gave, and emits one op. The derivative rules of
// this op use matvec and call the solvers; they do not differentiate solve.
std::vector<Array> RunLinearSolve(const LinearSolveFlat& call, const Site& site) {
  return InProgram("custom_linear_solve", site, call.b.leaves, [&] {
    const std::vector<Type> types = TypesOf(call.b.leaves);
    for (size_t i = 0; i < types.size(); ++i) {
      if (!ir::IsInexact(types[i].dtype)) {
        ThrowError(ErrorKind::kTypeError, site, "custom_linear_solve: ", call.b.path(i),
                   " has type ", types[i].ToString(), "; a float or complex array is expected");
      }
    }
    const auto traced = [&](const char* name, FlatBody body) {
      return TraceFlat(CurrentScope(), types, name, site, [&](const std::vector<Array>& in) {
        std::vector<Array> out = body(in);
        for (size_t i = 0; i < types.size(); ++i) {
          ThrowIfNoValue(out[i], site);
          if (ir::EqualButWeak(types[i], out[i].type())) continue;
          const std::string hint = PcastHint(types[i], out[i].type());
          ThrowError(ErrorKind::kValueError, site, name, "() output shapes must match b, got ",
                     out[i].type().ToString(), " and ", types[i].ToString(), " for ",
                     call.b.path(i),
                     hint.empty() ? "" : ". This might be fixed by applying " + hint + " to it");
        }
        return out;
      });
    };
    std::vector<TracedFunction> nested = {traced("solve", call.solve),
                                          traced("matvec", call.matvec)};
    if (call.transpose_solve) {
      nested.push_back(traced("transpose_solve", *call.transpose_solve));
      nested.push_back(traced("transpose_matvec", *call.transpose_matvec));
    }
    return ApplyWithCaptures(
        "custom_linear_solve", call.b.leaves, nested, site,
        [](ir::Builder& b, std::vector<ir::FunctionRef> fns, const std::vector<ir::Value>& in,
           int num_captures) {
          fns.resize(4);
          return ir::CustomLinearSolve(b, {fns[0], fns[1], fns[2], fns[3]}, in, num_captures);
        });
  });
}

namespace {

using Arrays = std::vector<Array>;

// f and its solver as traced functions. `f` takes x, then f's captures. `solve` takes f's captures,
// then the captures of solve.
struct TracedRoot {
  const RootFlat& call;
  ir::FunctionRef f, solve;
  Site site;

  Arrays FAt(const Arrays& x, const Arrays& params) const {
    return CallFunction(f, Concat(x, params), "custom_root", site);
  }
  // Throws unless the results of the function `name` have the types of the guess.
  void CheckTypes(const char* name, const Arrays& got) const {
    for (size_t i = 0; i < got.size(); ++i) {
      ThrowIfNoValue(got[i], site);
      const Type &have = got[i].type(), &want = call.guess.leaves[i].type();
      if (ir::EqualButWeak(have, want)) continue;
      ThrowError(ErrorKind::kValueError, site, name,
                 "() output shapes must match initial_guess, got ", have.ToString(), " and ",
                 want.ToString(), " for ", call.guess.path(i));
    }
  }
};

FlatArgs AsFlatArgs(const Arrays& arrays, std::string_view name) {
  Flat list = flatten(arrays);
  return {std::move(list), name};
}

// Returns the root as a function of f's captures, `params`; `solve_captures` has the captures of
// solve. The derivative rule finds the root again by RootOf with `depth` - 1, so that derivatives
// up to order `depth` are implicit. At depth 0 the solver itself is differentiated.
Arrays RootOf(const TracedRoot& root, const Arrays& params, const Arrays& solve_captures,
              int depth) {
  const auto n = static_cast<int64_t>(params.size()),
             m = static_cast<int64_t>(solve_captures.size());
  const auto solve = [&](const Arrays& in) {
    return CallFunction(root.solve, in, "custom_root", root.site);
  };
  if (depth == 0) return solve(Concat(params, solve_captures));
  // Since f(x(p), p) = 0, dx solves df/dx dx = -df/dp dp.
  const auto rule = [&](const Arrays& in) {
    const Arrays p(in.begin(), in.begin() + n), h(in.begin() + n, in.begin() + n + m),
        dp(in.begin() + n + m, in.begin() + n + m + n);
    Arrays x = RootOf(root, p, h, depth - 1);
    const Arrays both = JvpFlat(AsFlatArgs(p, "params"), dp, root.site,
                                [&](const Arrays& q) { return root.FAt(x, q); });
    const Arrays df(both.begin() + static_cast<int64_t>(x.size()), both.end());
    const LinearizedFlat at_x = LinearizeFlat("custom_root", AsFlatArgs(x, "x"), root.site,
                                              [&](const Arrays& y) { return root.FAt(y, p); });
    const auto g = [&](const Arrays& dx) { return PushForward(*at_x.linear, dx); };
    const Arrays minus_dx = root.call.tangent_solve(g, df);
    root.CheckTypes("tangent_solve", minus_dx);
    for (const Array& dx : minus_dx) {
      x.push_back(Apply1("neg", root.site, {dx}, [](ir::Builder&, const std::vector<ir::Value>& v) {
        return ir::Neg(v[0]);
      }));
    }
    return x;
  };
  return CustomJvpFlat(AsFlatArgs(Concat(params, solve_captures), "params"), root.site, solve,
                       rule);
}

}  // namespace

// Traces f apart from solve, so that the rule can evaluate f at the root. Captures of solve alone
// pass through stop_gradient: they have no derivative.
std::vector<Array> RunRoot(const RootFlat& call, const Site& site) {
  return InProgram("custom_root", site, call.guess.leaves, [&] {
    const std::vector<Type> types = TypesOf(call.guess.leaves);
    for (size_t i = 0; i < types.size(); ++i) {
      if (ir::IsInexact(types[i].dtype)) continue;
      ThrowError(ErrorKind::kTypeError, site, "custom_root: ", call.guess.path(i), " has type ",
                 types[i].ToString(), "; a float or complex array is expected");
    }
    TracedRoot root{call, nullptr, nullptr, site};
    const TracedFunction f =
        TraceFlat(CurrentScope(), types, "custom_root", site, [&](const Arrays& x) {
          Arrays out = call.f(x);
          root.CheckTypes("f", out);
          return out;
        });
    root.f = f.fn;
    const TracedFunction solve =
        TraceFlat(CurrentScope(), TypesOf(f.captures), "custom_root", site, [&](const Arrays& p) {
          Arrays out =
              call.solve([&](const Arrays& x) { return root.FAt(x, p); }, call.guess.leaves);
          root.CheckTypes("solve", out);
          return out;
        });
    root.solve = solve.fn;
    Arrays solve_captures;
    for (const Array& x : solve.captures) {
      solve_captures.push_back(Apply1(
          "stop_gradient", site, {x},
          [](ir::Builder&, const std::vector<ir::Value>& v) { return ir::StopGradient(v[0]); }));
    }
    constexpr int kImplicitOrders = 2;
    return RootOf(root, f.captures, solve_captures, kImplicitOrders);
  });
}

}  // namespace tessera::internal
