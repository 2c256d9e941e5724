// The part of differentiation that is no template (autodiff.h). Each function traces the body,
// transforms the traced function with ir/transform, and runs the result in the current frame or as
// a program.
#include "client/transform/autodiff.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// Returns `mask` with `value` appended `more` times.
std::vector<bool> Extended(std::vector<bool> mask, size_t more, bool value) {
  mask.insert(mask.end(), more, value);
  return mask;
}

// Returns `x`, cast to vary over the axes that `like` varies over.
Array PvaryLike(const Array& x, const Type& like, const Site& site) {
  ir::AxisSet missing;
  for (const std::string& axis : like.varying) {
    if (!x.type().NonInvaryingAxes().contains(axis)) missing.insert(axis);
  }
  if (missing.empty()) return x;
  return Apply1("pcast", site, {x}, [&](ir::Builder&, const std::vector<ir::Value>& in) {
    return ir::Pvary(in[0], missing);
  });
}

// Makes the cotangents of weakly typed arrays weakly typed. `like` has the types of the arrays.
std::vector<Array> WeakLike(std::vector<Array> cotangents, const std::vector<Type>& like,
                            const Site& site) {
  for (size_t i = 0; i < cotangents.size(); ++i) {
    Array& c = cotangents[i];
    if (!like[i].weak || c.type().weak || c.dtype() != like[i].dtype) continue;
    c = Apply1("convert", site, {c}, [&](ir::Builder&, const std::vector<ir::Value>& in) {
      return ConvertTo(in[0], {like[i].dtype, true});
    });
  }
  return cotangents;
}

// While the object lives, the mesh on which the point of a linear map was computed is the context
// mesh. Does nothing in a trace, or if there is a context mesh already.
class ScopedContextMesh {
 public:
  explicit ScopedContextMesh(const Linear& linear) {
    if (!CurrentFrame() && context_mesh().empty() && !linear.mesh.empty())
      context_.emplace(linear.mesh);
  }

 private:
  std::optional<set_mesh> context_;
};

void CheckTangentTypes(const Linear& linear, const std::vector<Array>& tangents) {
  for (size_t i = 0; i < tangents.size(); ++i) {
    const Type &want = linear.in_types[i], &got = tangents[i].type();
    if (!ir::IsInexact(want.dtype) || ir::EqualButWeak(want, got)) continue;
    std::string hint;
    if (std::string to_primal = PcastHint(want, got); !to_primal.empty()) {
      hint = absl::StrCat(". This might be fixed by applying ", to_primal,
                          " to the primal value passed to linearize");
    } else if (std::string to_tangent = PcastHint(got, want); !to_tangent.empty()) {
      hint = absl::StrCat(". This might be fixed by applying ", to_tangent,
                          " to the tangent value passed to the linearized function");
    }
    ThrowError(ErrorKind::kValueError, linear.site,
               "linearized function called on tangent values inconsistent with the "
               "original primal values: the tangent for ",
               linear.in_paths[i], " has type ", got.ToString(), " but the primal value has type ",
               want.ToString(), hint);
  }
}

void CheckCotangentTypes(std::string_view what, ErrorKind kind, const std::vector<Type>& out_types,
                         const std::vector<Array>& cotangents, const Site& site) {
  if (cotangents.size() != out_types.size()) {
    ThrowError(kind, site, ToAbsl(what), ": ", out_types.size(), " cotangents are expected, not ",
               cotangents.size());
  }
  for (size_t i = 0; i < out_types.size(); ++i) {
    if (!ir::IsInexact(out_types[i].dtype)) continue;
    const Type want = ir::CotangentType(out_types[i]);
    if (ir::EqualButWeak(want, cotangents[i].type())) continue;
    const std::string hint = PcastHint(cotangents[i].type(), want);
    ThrowError(kind, site, ToAbsl(what), ": the cotangent of result ", i, " has type ",
               cotangents[i].type().ToString(), " but the function's result has type ",
               out_types[i].ToString(), ", so ", want.ToString(), " is expected",
               hint.empty() ? "" : ". This might be fixed by applying ", hint);
  }
}

std::vector<Array> ZerosLike(const std::vector<Array>& like, const Site& site) {
  std::vector<Array> out;
  for (const Array& a : like) out.push_back(FullArray(ir::CotangentType(a.type()), 0, site));
  return out;
}

void CheckLoss(const char* name, const TracedFunction& n, bool holomorphic, const Site& site) {
  const Type loss = n.fn->type(n.fn->results[0]);
  if (loss.rank() != 0) {
    ThrowError(ErrorKind::kTypeError, site, name,
               ": Gradient only defined for scalar-output functions. Output had "
               "shape: (",
               ir::DimsToString(loss.shape), "). Reduce it, e.g. by sum");
  }
  if (holomorphic && !ir::IsComplex(loss.dtype)) {
    ThrowError(ErrorKind::kTypeError, site, name,
               " with holomorphic=True requires outputs with complex dtype, but got ",
               std::string(ir::DTypeName(loss.dtype)));
  }
  if (!holomorphic && !ir::IsFloat(loss.dtype)) {
    ThrowError(ErrorKind::kTypeError, site, name,
               " requires real-valued outputs (output dtype that is a float), "
               "but got ",
               std::string(ir::DTypeName(loss.dtype)),
               ir::IsComplex(loss.dtype)
                   ? ". For holomorphic differentiation, pass holomorphic=True"
                   : "");
  }
}

void CheckDifferentiable(const char* name, const Type& type, const std::string& path,
                         const GradOptions& options, const Site& site) {
  if (options.holomorphic && !ir::IsComplex(type.dtype)) {
    ThrowError(ErrorKind::kTypeError, site, name,
               " with holomorphic=True requires inputs with complex dtype, but ", path, " is ",
               type.ToString());
  }
  const bool is_integral = ir::IsInteger(type.dtype) || type.dtype == DType::kBool;
  if (ir::IsInexact(type.dtype) || (options.allow_int && is_integral)) return;
  ThrowError(ErrorKind::kTypeError, site, name,
             " requires real- or complex-valued inputs (input dtype that is a float or complex), "
             "but ",
             path, " is ", type.ToString(),
             ". Convert it, differentiate by another argument, or pass allow_int=True, which gives "
             "it a gradient without a value");
}

}  // namespace

std::vector<bool> ArgumentLeafMask(const TreeNode& args, std::initializer_list<size_t> arguments) {
  std::vector<bool> out;
  for (size_t a = 0; a < args.children.size(); ++a) {
    const bool named = std::find(arguments.begin(), arguments.end(), a) != arguments.end();
    out.insert(out.end(), args.children[a].num_leaves(), named);
  }
  return out;
}

// Linearizes the loss and transposes the linear part, so that one program runs the forward pass
// once and computes all gradients. The gradient by an integer has no value: it is left out of the
// program, and an Array without a value is put in its place at the end.
std::vector<Array> ValueAndGradFlat(const char* name, const FlatArgs& args,
                                    const std::vector<bool>& requested, const GradOptions& options,
                                    const Site& site, FlatBody body) {
  std::vector<bool> active = requested;
  std::vector<Array> active_leaves;
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    if (!requested[i]) continue;
    const Type& type = args.leaves[i].type();
    if (options.holomorphic || !ir::IsInexact(type.dtype))
      CheckDifferentiable(name, type, args.path(i), options, site);
    active[i] = ir::IsInexact(type.dtype);
    if (active[i]) active_leaves.push_back(args.leaves[i]);
  }
  std::vector<Array> all = InProgram(name, site, args.leaves, [&] {
    const TracedFunction n = TraceFlat(CurrentScope(), TypesOf(args.leaves), name, site, body);
    CheckLoss(name, n, options.holomorphic, site);
    const ir::Linearized lin =
        OrThrow(ir::Linearize(*n.fn, Extended(active, n.captures.size(), false)), site);
    std::vector<Array> out = CallFunction(lin.forward, Concat(args.leaves, n.captures), name, site);
    const std::vector<Array> residuals(out.end() - lin.num_residuals, out.end());
    out.resize(out.size() - lin.num_residuals);
    if (!lin.out_active[0])
      return Concat(out, WeakLike(ZerosLike(active_leaves, site), TypesOf(active_leaves), site));
    const ir::FunctionRef linear = KeepResults(*lin.linear, {0});
    std::vector<bool> mask(residuals.size(), false);
    const ir::FunctionRef transposed =
        Transposed(*linear, Extended(mask, active_leaves.size(), true), site);
    const Array one = FullArray(ir::CotangentType(out[0].type()), 1, site);
    return Concat(out, WeakLike(CallFunction(transposed, Concat(residuals, {one}), name, site),
                                TypesOf(active_leaves), site));
  });
  if (active == requested) return all;
  const std::vector<Array> gradients(all.end() - static_cast<int64_t>(active_leaves.size()),
                                     all.end());
  all.resize(all.size() - active_leaves.size());
  size_t next = 0;
  for (size_t i = 0; i < requested.size(); ++i)
    if (requested[i]) all.push_back(active[i] ? gradients[next++] : Array());
  return all;
}

// A primal and its tangent may vary over different axes, and are then cast to the same axes. If
// casts were needed, the tangents of the results are computed from the cast arguments, and the
// results from the arguments as they were given.
std::vector<Array> JvpFlat(const FlatArgs& primals, const std::vector<Array>& tangents,
                           const Site& site, FlatBody body) {
  std::vector<Array> active_tangents;
  const std::vector<bool> active = TangentMask(TypesOf(primals.leaves));
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!active[i]) continue;
    const Type &primal = primals.leaves[i].type(), &tangent = tangents[i].type();
    if (primal.dtype != tangent.dtype) {
      ThrowError(ErrorKind::kTypeError, site,
                 "primal and tangent arguments to jvp do not match; dtypes must be equal: ",
                 primals.path(i), " is ", primal.ToString(), " but its tangent is ",
                 tangent.ToString());
    }
    if (primal.shape != tangent.shape) {
      ThrowError(ErrorKind::kValueError, site,
                 "jvp called with different primal and tangent shapes: ", primals.path(i), " is ",
                 primal.ToString(), " but its tangent is ", tangent.ToString());
    }
    active_tangents.push_back(tangents[i]);
  }
  // The derivative rules, which make the tangents, want the same axes for a primal and its tangent.
  // The results still come from the primals as they were given.
  FlatArgs cast = primals;
  std::vector<Array> cast_tangents = tangents;
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!active[i]) continue;
    cast.leaves[i] = PvaryLike(primals.leaves[i], tangents[i].type(), site);
    cast_tangents[i] = PvaryLike(tangents[i], primals.leaves[i].type(), site);
  }
  if (TypesOf(cast.leaves) != TypesOf(primals.leaves) ||
      TypesOf(cast_tangents) != TypesOf(tangents)) {
    std::vector<Array> out = JvpFlat(cast, cast_tangents, site, body);
    const std::vector<Array> results = body(primals.leaves);
    std::copy(results.begin(), results.end(), out.begin());
    return out;
  }
  return InProgram("jvp", site, primals.leaves, [&] {
    const TracedFunction n = TraceFlat(CurrentScope(), TypesOf(primals.leaves), "jvp", site, body);
    const ir::JvpResult jvp = OrThrow(
        ir::Jvp(*n.fn, Extended(active, n.captures.size(), false), /*instantiate=*/true), site);
    // The parameters are the primals, then the tangents.
    const std::vector<Array> in = Concat(Concat(primals.leaves, n.captures), active_tangents);
    const std::vector<Array> all = CallFunction(jvp.fn, in, "jvp", site);
    const size_t num_results = n.fn->results.size();
    const std::vector<Array> out(all.begin(), all.begin() + num_results);
    return Concat(out, FillWithZeros(TypesOf(out), jvp.out_active,
                                     absl::MakeSpan(all).subspan(num_results), site));
  });
}

// Runs the forward pass now and keeps its residuals, so that the map can be applied many times. The
// mesh of the point is kept too: the map may be applied where no mesh is in context.
LinearizedFlat LinearizeFlat(const char* name, const FlatArgs& args, const Site& site,
                             FlatBody body, absl::FunctionRef<size_t()> num_aux) {
  auto linear = std::make_shared<Linear>();
  linear->site = site;
  linear->in_types = TypesOf(args.leaves);
  linear->in_paths = args.paths();
  std::vector<Array> out = InProgram(name, site, args.leaves, [&] {
    const TracedFunction n = TraceFlat(CurrentScope(), linear->in_types, name, site, body);
    linear->out_types = n.fn->result_types();
    linear->parts = OrThrow(
        ir::Linearize(*n.fn, Extended(TangentMask(linear->in_types), n.captures.size(), false)),
        site);
    // The last results are aux, which is not part of the map.
    const size_t num_kept = linear->out_types.size() - num_aux();
    const std::vector<bool>& out_active = linear->parts.out_active;
    if (num_kept < out_active.size()) {
      std::vector<int> kept_results(
          std::count(out_active.begin(), out_active.begin() + num_kept, true));
      std::iota(kept_results.begin(), kept_results.end(), 0);
      linear->parts.linear = KeepResults(*linear->parts.linear, kept_results);
      linear->parts.out_active.resize(num_kept);
      linear->out_types.resize(num_kept);
    }
    return CallFunction(linear->parts.forward, Concat(args.leaves, n.captures), name, site);
  });
  for (const Array& a : out) {
    if (linear->mesh.empty() && AsConcrete(a))
      linear->mesh = {a.placement(site).mesh, a.placement(site).devices};
  }
  const int n = linear->parts.num_residuals;
  linear->residuals.assign(out.end() - n, out.end());
  out.resize(out.size() - n);
  return {std::move(out), std::move(linear)};
}

std::vector<Array> PushForward(const Linear& linear, const std::vector<Array>& tangents) {
  CheckTangentTypes(linear, tangents);
  std::vector<Array> in = linear.residuals;
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (ir::IsInexact(linear.in_types[i].dtype)) in.push_back(tangents[i]);
  }
  const ScopedContextMesh context(linear);
  return InProgram("linearized", linear.site, in, [&] {
    return FillWithZeros(linear.out_types, linear.parts.out_active,
                         CallFunction(linear.parts.linear, in, "linearized", linear.site),
                         linear.site);
  });
}

std::vector<Array> PullBack(const Linear& linear, const std::vector<Array>& cotangents) {
  CheckCotangentTypes("unexpected type (e.g. shape/dtype) for argument to VJP function",
                      ErrorKind::kValueError, linear.out_types, cotangents, linear.site);
  std::vector<Array> in = linear.residuals;
  for (size_t r = 0; r < cotangents.size(); ++r) {
    if (linear.parts.out_active[r]) in.push_back(cotangents[r]);
  }
  const ScopedContextMesh context(linear);
  return InProgram("vjp", linear.site, in, [&] {
    const std::vector<bool> active = TangentMask(linear.in_types);
    const std::vector<bool> mask(linear.residuals.size(), false);
    const ir::FunctionRef transposed = Transposed(
        *linear.parts.linear, Extended(mask, std::count(active.begin(), active.end(), true), true),
        linear.site);
    return WeakLike(FillWithZeros(linear.in_types, active,
                                  CallFunction(transposed, in, "vjp", linear.site), linear.site),
                    linear.in_types, linear.site);
  });
}

std::vector<Array> LinearTransposeFlat(const FlatArgs& like, const std::vector<Array>& cotangents,
                                       const Site& site, FlatBody body) {
  return InProgram("linear_transpose", site, cotangents, [&] {
    const TracedFunction n =
        TraceFlat(CurrentScope(), TypesOf(like.leaves), "linear_transpose", site, body);
    const bool inexact = like.leaves.empty() || ir::IsInexact(like.leaves[0].dtype());
    for (const std::vector<Type>& types : {TypesOf(like.leaves), n.fn->result_types()}) {
      for (const Type& t : types) {
        if (ir::IsInexact(t.dtype) == inexact) continue;
        ThrowError(ErrorKind::kTypeError, site,
                   "linear_transpose only supports [float or complex] -> [float or complex], and "
                   "integer -> integer functions, but got ",
                   ir::TypesToString(TypesOf(like.leaves)), " -> ",
                   ir::TypesToString(n.fn->result_types()));
      }
    }
    CheckCotangentTypes("linear_transpose: cotangent type does not match function output",
                        ErrorKind::kTypeError, n.fn->result_types(), cotangents, site);
    const std::vector<bool> mask(like.leaves.size(), true);
    const ir::FunctionRef transposed =
        Transposed(*n.fn, Extended(mask, n.captures.size(), false), site);
    return CallFunction(transposed, Concat(n.captures, cotangents), "linear_transpose", site);
  });
}

std::vector<Array> CheckpointFlat(const FlatArgs& args, const ir::CheckpointPolicy& policy,
                                  const Site& site, FlatBody body) {
  return InProgram("checkpoint", site, args.leaves, [&] {
    const TracedFunction n =
        TraceFlat(CurrentScope(), TypesOf(args.leaves), "checkpoint", site, body);
    return Apply("checkpoint", site, Concat(args.leaves, n.captures),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   return ir::Checkpoint(b, n.fn, in, policy);
                 });
  });
}

}  // namespace tessera::internal

namespace tessera {
Array checkpoint_name(const Arg& x, const std::string& name) {
  return internal::ApplyArgs("checkpoint_name", {x}, internal::Operands::kStrict,
                             [&](ir::Builder&, const std::vector<ir::Value>& v) {
                               return ir::CheckpointName(v[0], name);
                             });
}
}  // namespace tessera
