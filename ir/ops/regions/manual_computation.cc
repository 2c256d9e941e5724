// The op manual_computation (shard_map), whose body runs once for each device along the manual
// axes, on that device's shards of the operands.
//
// The region is typed in the scope in which `manual_axes` are Manual. The specs say how arguments
// are sharded and how results are assembled. The op moves no data.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/regions/region.h"
#include "ir/strided.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace ops {
namespace {

using Specs = std::vector<PartitionSpec>;

// Returns the scope of the body.
Scope BodyScope(const Scope& outer, const AxisList& manual_axes, bool check_vma) {
  return {outer.mesh.WithAxisType(manual_axes, AxisType::kManual), check_vma, outer.mapped};
}
bool Contains(const AxisList& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}
const AxisList& AxesAt(const PartitionSpec& spec, int dim) {
  static const AxisList& none = *new AxisList;
  return dim < static_cast<int>(spec.dims.size()) ? spec.dims[dim] : none;
}
// Returns the manual axes that `spec` does not mention, in the order of `manual_axes`.
AxisList Unmentioned(const PartitionSpec& spec, const AxisList& manual_axes) {
  AxisList out;
  for (const std::string& a : manual_axes)
    if (!spec.Mentions(a)) out.push_back(a);
  return out;
}
AxisList InMeshOrder(const Mesh& mesh, const AxisList& axes) {
  AxisList out;
  for (const MeshAxis& a : mesh.axes)
    if (Contains(axes, a.name)) out.push_back(a.name);
  return out;
}

// ---- Checks at the boundary. ----

// An argument or a result of the op. For messages, it is called "in_specs[3]" or "out_specs[0]".
struct BoundaryValue {
  const InferContext& c;
  const char* specs;  // "in_specs" or "out_specs"
  const char* thing;  // "argument" or "result"
  size_t index;
  std::string Name() const { return absl::StrCat(specs, "[", index, "]"); }
};

// Checks the axes that are to be Manual, in JAX's words: they must exist, must not be Manual
// already, and must neither name nor shard the mapped dim of a vmap. A nested shard_map must agree
// about check_vma, because the types of its operands are tracked or not by the outer one.
absl::Status CheckMeshAndAxes(const InferContext& c) {
  const Mesh& mesh = c.scope.mesh;
  const AxisList& manual = c.attrs.Strings("manual_axes");
  if (mesh.empty()) return ValueError(c, "requires a non-empty mesh; set one before calling it");
  AxisSet seen;
  for (const std::string& a : manual) {
    if (!mesh.Has(a))
      return ValueError(c, "requires axis_names={", absl::StrJoin(manual, ","),
                        "} to be a subset of the axes of mesh ", mesh.ToString(),
                        ", which has no '", a, "'");
    if (mesh.IsManual(a))
      return ValueError(c, "axis '", a, "' is already manual in mesh ", mesh.ToString(),
                        "; a nested shard_map must name axes that are not yet manual");
    if (!seen.insert(a).second) return ValueError(c, "axis_names has axis '", a, "' twice");
    if (c.scope.FindMapped(a))
      return ValueError(c, "axis '", a, "' of mesh ", mesh.ToString(),
                        " can't be Manual under a vmap whose axis_name is '", a,
                        "'; give the vmap another axis_name");
    for (const MappedAxis& mapped : c.scope.mapped)
      if (Contains(mapped.sharding, a))
        return ValueError(c, "requires axis_names={", absl::StrJoin(manual, ","),
                          "} to be a subset of the axes of mesh ", mesh.ToString(), " without '", a,
                          "', which shards the dim that a vmap maps over");
  }
  if (c.attrs.Bool("check_vma") != c.scope.check_vma && !mesh.AxesOfType(AxisType::kManual).empty())
    return ValueError(c, "check_vma is ", c.attrs.Bool("check_vma") ? "true" : "false",
                      " inside a shard_map where it is ", c.scope.check_vma ? "true" : "false",
                      "; nested calls must agree");
  return absl::OkStatus();
}

// Unreduced and reduced axes are allowed if all axes of the mesh are Explicit outside and Manual
// inside, and types track which values are unreduced.
absl::Status CheckUnreducedAndReduced(const BoundaryValue& s, const PartitionSpec& spec) {
  if (spec.unreduced.empty() && spec.reduced.empty()) return absl::OkStatus();
  const InferContext& c = s.c;
  const Mesh& mesh = c.scope.mesh;
  for (const MeshAxis& a : mesh.axes)
    if (a.type == AxisType::kAuto)
      return ValueError(c, "unreduced and reduced in ", s.specs,
                        " can only be used when all axes of the mesh are of type Explicit; ",
                        s.Name(), " is ", spec.ToString(), " and the mesh ", mesh.ToString());
  if (c.attrs.Strings("manual_axes").size() < mesh.axes.size())
    return MakeError(
        ErrorKind::kNotImplemented,
        absl::StrCat("shard_map: unreduced/reduced can only be passed to ", s.specs,
                     " when all axes of the mesh are manual; ", s.Name(), " is ", spec.ToString(),
                     ", but of the axes of ", mesh.ToString(), " only ",
                     absl::StrJoin(c.attrs.Strings("manual_axes"), ", "), " are manual"));
  if (!c.attrs.Bool("check_vma"))
    return ValueError(c, s.Name(), " is ", spec.ToString(),
                      "; unreduced and reduced axes need check_vma=true");
  return absl::OkStatus();
}

// Checks a spec by itself and against the rank of the value, in JAX's words. Later functions index
// dims by the spec without checking. An out spec that is too long for a scalar gets a hint, because
// scalars cannot be concatenated.
absl::Status CheckSpec(const BoundaryValue& s, const PartitionSpec& spec, const Type& type) {
  const InferContext& c = s.c;
  const AxisList& manual = c.attrs.Strings("manual_axes");
  TESSERA_RETURN_IF_ERROR(CheckUnreducedAndReduced(s, spec));
  if (std::find(spec.open.begin(), spec.open.end(), true) != spec.open.end())
    return ValueError(c, s.Name(), " is ", spec.ToString(), "; its dims must not be left open");
  AxisSet seen;
  std::vector<AxisList> lists = spec.dims;
  lists.push_back(spec.unreduced);
  lists.push_back(spec.reduced);
  for (const AxisList& axes : lists)
    for (const std::string& a : axes) {
      for (const MappedAxis& mapped : c.scope.mapped)
        if (Contains(mapped.spmd, a))
          return ValueError(c, "vmap spmd_axis_name cannot appear in shard_map ", s.specs, ", but ",
                            s.Name(), " is ", spec.ToString(),
                            " under a vmap whose spmd_axis_name ", "is ('",
                            absl::StrJoin(mapped.spmd, "','"), "')");
      if (!Contains(manual, a))
        return ValueError(c, s.specs, " must refer to an axis marked as manual (",
                          absl::StrJoin(manual, ","), "), but ", s.Name(), " refers to '", a,
                          "' in mesh ", c.scope.mesh.ToString());
      if (!seen.insert(a).second)
        return ValueError(c, s.Name(), " is ", spec.ToString(),
                          ", which has duplicate entries for axis '", a, "'");
    }
  if (static_cast<int>(spec.dims.size()) > type.rank())
    return ValueError(
        c, "got a ", s.specs, " entry which is too long for the ", s.thing,
        " it is for: ", s.Name(), " is ", spec.ToString(), " of length ", spec.dims.size(),
        ", but ", s.thing, " ", s.index, " is ", type.ToString(), " of rank ", type.rank(),
        type.rank() == 0 && s.specs[0] == 'o'
            ? "; add at least one (singleton) axis to the result so that the spec can "
              "describe how results are concatenated"
            : "");
  return absl::OkStatus();
}

// Along an Explicit axis the spec is an assertion about the argument's sharding.
absl::Status CheckExplicit(const BoundaryValue& s, const PartitionSpec& spec, const Type& arg) {
  const Mesh& mesh = s.c.scope.mesh;
  const AxisList& manual = s.c.attrs.Strings("manual_axes");
  const auto differ = [](const AxisList& a, const AxisSet& b) {
    return AxisSet(a.begin(), a.end()) != b;
  };
  if (differ(spec.unreduced, arg.unreduced) || differ(spec.reduced, arg.reduced))
    return ValueError(s.c, "in_specs passed to shard_map: ", spec.ToString(),
                      " does not match the specs of the input: ", SpecOf(arg).ToString(),
                      " for argument ", s.index, " of type ", arg.ToString(),
                      "; use `reshard` to move it first");
  for (int d = 0; d < arg.rank(); ++d) {
    AxisList want, have;
    bool rest_seen = false, in_front = true;
    for (const std::string& a : AxesAt(spec, d))
      if (mesh.TypeOf(a) == AxisType::kExplicit) want.push_back(a);
    for (const std::string& a : arg.axes_of(d)) {
      if (!Contains(manual, a)) {
        rest_seen = true;
        continue;
      }
      in_front = in_front && !rest_seen;
      have.push_back(a);
    }
    if (want != have)
      return ValueError(s.c, "in_specs passed to shard_map: ", spec.ToString(),
                        " does not match the specs of the input: ", SpecOf(arg).ToString(),
                        " for argument ", s.index, " of type ", arg.ToString(),
                        "; use `reshard` to move it first");
    if (!in_front)
      return ValueError(s.c, "argument ", s.index, " of type ", arg.ToString(),
                        " is sharded on dim ", d,
                        " over other axes before the manual ones; put the manual axes first");
  }
  return absl::OkStatus();
}

// Returns the type of an argument's shard in the body.
absl::StatusOr<Type> BlockType(const BoundaryValue& s, const PartitionSpec& spec, const Type& arg) {
  const InferContext& c = s.c;
  TESSERA_RETURN_IF_ERROR(CheckSpec(s, spec, arg));
  TESSERA_RETURN_IF_ERROR(CheckExplicit(s, spec, arg));
  Type t = arg;
  for (int d = 0; d < arg.rank(); ++d) {
    const AxisList& axes = AxesAt(spec, d);
    const int64_t n = c.scope.mesh.SizeOf(axes);
    if (arg.shape[d] % n != 0)
      return ValueError(c, "applied to argument ", s.index, " of type ", arg.ToString(), " with ",
                        s.Name(), " = ", spec.ToString(), ": dim ", d, " of size ", arg.shape[d],
                        " is not evenly divisible by the size ", n, " of mesh axes (",
                        absl::StrJoin(axes, ","), ")");
    t.shape[d] /= n;
    if (t.is_sharded())
      std::erase_if(t.sharding[d], [&](const std::string& a) {
        return Contains(c.attrs.Strings("manual_axes"), a);
      });
    t.varying.insert(axes.begin(), axes.end());
  }
  if (!c.attrs.Bool("check_vma")) t.varying = t.unreduced = t.reduced = {};
  Normalize(&t);
  return t;
}

// Checks the promise of an out spec, namely that the result is equal along every axis that the spec
// leaves out.
absl::Status CheckPromise(const BoundaryValue& s, const PartitionSpec& spec, const Type& result) {
  const InferContext& c = s.c;
  const AxisList& manual = c.attrs.Strings("manual_axes");
  const AxisSet non_invarying = result.NonInvaryingAxes();
  AxisList mentioned, broken, inferred;
  for (const std::string& a : InMeshOrder(c.scope.mesh, manual)) {
    if (spec.Mentions(a)) mentioned.push_back(a);
    if (non_invarying.contains(a)) inferred.push_back(a);
    if (!spec.Mentions(a) && non_invarying.contains(a)) broken.push_back(a);
  }
  if (!broken.empty())
    return ValueError(c,
                      "got out_specs which require replication which can't be statically inferred "
                      "given the mesh ",
                      c.scope.mesh.ToString(), ": ", s.Name(), " is ", spec.ToString(),
                      ", so result ", s.index, " should be only varying across mesh axes {",
                      absl::StrJoin(mentioned, ","), "} and not {", absl::StrJoin(broken, ","),
                      "}, but it was inferred to be possibly varying over {",
                      absl::StrJoin(inferred, ","), "}: ", result.ToString(),
                      "; reduce it over these axes, mention them, or pass check_vma=false");
  const auto check = [&](const AxisList& axes, const AxisSet& states, const char* is_not,
                         const char* to) -> absl::Status {
    for (const std::string& a : axes)
      if (!states.contains(a))
        return ValueError(c, s.Name(), " is ", spec.ToString(), ", but result ", s.index,
                          " of type ", result.ToString(), is_not, " over '", a,
                          "'; cast it with pcast(..., to='", to, "')");
    return absl::OkStatus();
  };
  for (const AxisList& axes : spec.dims)
    TESSERA_RETURN_IF_ERROR(check(axes, result.varying, " does not vary", "varying"));
  TESSERA_RETURN_IF_ERROR(
      check(spec.unreduced, result.unreduced, " is not unreduced", "unreduced"));
  return check(spec.reduced, result.reduced, " is not reduced", "reduced");
}

// Returns the type of the array whose shards have type `result`.
absl::StatusOr<Type> AssembledType(const BoundaryValue& s, const PartitionSpec& spec,
                                   const Type& result) {
  const InferContext& c = s.c;
  TESSERA_RETURN_IF_ERROR(CheckSpec(s, spec, result));
  if (c.attrs.Bool("check_vma")) TESSERA_RETURN_IF_ERROR(CheckPromise(s, spec, result));
  Type t = result;
  for (int d = 0; d < t.rank(); ++d) {
    AxisList axes;
    for (const std::string& a : AxesAt(spec, d))
      if (c.scope.mesh.TypeOf(a) == AxisType::kExplicit) axes.push_back(a);
    const AxisList& rest = result.axes_of(d);
    axes.insert(axes.end(), rest.begin(), rest.end());
    t.shape[d] *= c.scope.mesh.SizeOf(AxesAt(spec, d));
    t.set_axes_of(d, std::move(axes));
  }
  for (const std::string& a : c.attrs.Strings("manual_axes")) t.varying.erase(a);
  Normalize(&t);
  return t;
}

// Returns the type of each argument's shard. Checks everything that can be checked without the
// body.
absl::StatusOr<std::vector<Type>> BlockTypes(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMeshAndAxes(c));
  const Specs& in_specs = c.attrs.Specs("in_specs");
  if (in_specs.size() != c.in.size())
    return ValueError(c, "shard_map in_specs have ", in_specs.size(), " entries; there are ",
                      c.in.size(), " arguments");
  std::vector<Type> blocks;
  for (size_t i = 0; i < c.in.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(Type block,
                             BlockType({c, "in_specs", "argument", i}, in_specs[i], c.in[i]));
    blocks.push_back(std::move(block));
  }
  return blocks;
}

absl::StatusOr<std::vector<Type>> InferManual(const InferContext& c) {
  const AxisList& manual = c.attrs.Strings("manual_axes");
  const Specs &in_specs = c.attrs.Specs("in_specs"), &out_specs = c.attrs.Specs("out_specs");
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Type> blocks, BlockTypes(c));
  TESSERA_RETURN_IF_ERROR(
      CheckRegion(c, 0, BodyScope(c.scope, manual, c.attrs.Bool("check_vma")), c.in.size()));
  const Function& body = *c.regions[0];
  if (out_specs.size() != body.results.size())
    return ValueError(c, "shard_map out_specs have ", out_specs.size(), " entries; the body has ",
                      body.results.size(), " results");
  for (size_t i = 0; i < c.in.size(); ++i)
    if (!EqualButWeak(blocks[i], body.types[i]))
      return TypeError(c, "argument ", i, " of type ", c.in[i].ToString(), " with in_specs[", i,
                       "] = ", in_specs[i].ToString(), " gives blocks of type ",
                       blocks[i].ToString(), "; the body takes ", body.types[i].ToString());
  std::vector<Type> out;
  for (size_t r = 0; r < out_specs.size(); ++r) {
    TESSERA_ASSIGN_OR_RETURN(Type t, AssembledType({c, "out_specs", "result", r}, out_specs[r],
                                                   body.types[body.results[r]]));
    out.push_back(std::move(t));
  }
  return out;
}

Cost ManualCost(const InferContext& c, absl::Span<const Type>) {
  Cost body_cost = TotalCost(*c.regions[0]);
  const auto n = static_cast<double>(c.scope.mesh.SizeOf(c.attrs.Strings("manual_axes")));
  return {body_cost.flops * n, body_cost.bytes * n};
}

// ---- The op's attributes, for the rules. ----

struct ManualAttrs {
  AxisList manual_axes;
  bool check_vma;
  Specs in_specs, out_specs;

  explicit ManualAttrs(const Attrs& attrs)
      : manual_axes(attrs.Strings("manual_axes")),
        check_vma(attrs.Bool("check_vma")),
        in_specs(attrs.Specs("in_specs")),
        out_specs(attrs.Specs("out_specs")) {}
  // Emits the same op with another body and other specs. Requires: the types of the body fit the
  // specs.
  std::vector<Value> Emit(Builder& b, FunctionRef body, Values args, Specs in, Specs out) const {
    return b.Emit(kManualComputation, args,
                  {{"in_specs", std::move(in)},
                   {"out_specs", std::move(out)},
                   {"manual_axes", manual_axes},
                   {"check_vma", check_vma}},
                  {std::move(body)});
  }
};
Specs SpecsWhere(const Specs& specs, const std::vector<bool>& mask) {
  return ElementsAt(specs, walk::Where(mask));
}
Specs JoinSpecs(Specs a, const Specs& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// ---- Differentiation. ----

// Tangents have the specs of their primals.
std::vector<Value> ManualJvp(const RuleContext& c, Values tangents) {
  const ManualAttrs p(c.attrs);
  const std::vector<bool> active = AreValid(tangents);
  const JvpResult jvp = ValueOrThrow(Jvp(*c.regions[0], active));
  return SpreadTangents(p.Emit(c.b, jvp.fn, Concat(c.in, DropAbsent(tangents)),
                               JoinSpecs(p.in_specs, SpecsWhere(p.in_specs, active)),
                               JoinSpecs(p.out_specs, SpecsWhere(p.out_specs, jvp.out_active))),
                        jvp.out_active);
}

// Returns the spec of a residual, a value that the known shard_map passes to the unknown one. The
// shards of a residual are concatenated along dim 0 over all axes along which they may differ. It
// stays unreduced or reduced along the axes along which it is so in the body.
PartitionSpec ResidualSpec(const ManualAttrs& p, const Mesh& mesh, const Type& t) {
  AxisList axes;
  for (const std::string& a : InMeshOrder(mesh, p.manual_axes))
    if (!p.check_vma || t.varying.contains(a)) axes.push_back(a);
  PartitionSpec spec;
  if (!axes.empty()) spec.dims = {axes};
  for (const std::string& a : InMeshOrder(mesh, p.manual_axes)) {
    if (t.unreduced.contains(a)) spec.unreduced.push_back(a);
    if (t.reduced.contains(a)) spec.reduced.push_back(a);
  }
  return spec;
}
bool NeedsSingleton(const PartitionSpec& spec, const Type& t) {
  return t.rank() == 0 && !spec.dims.empty();
}

// A residual that is a scalar gets a dim of size 1, along which its shards can be concatenated.
// WithSingletonResults adds this dim to the results from `num_out` on, the residuals, where `specs`
// need it. WithSingletonParams returns a body that takes the params marked in `singleton` with this
// dim, and drops it.
FunctionRef WithSingletonResults(const Function& f, int num_out, const Specs& specs) {
  return WithMappedResults(f, [&](int k, Value v) {
    return k >= num_out && NeedsSingleton(specs[k], v.type()) ? ExpandDims(v, {0}) : v;
  });
}
FunctionRef WithSingletonParams(const Function& f, const std::vector<bool>& singleton) {
  Builder b(f.scope, f.name);
  std::vector<Value> args;
  for (int i = 0; i < f.num_params; ++i) {
    const bool is_singleton = i < static_cast<int>(singleton.size()) && singleton[i];
    const Value v = b.Param(is_singleton ? walk::InsertDim(f.types[i], 0, 1) : f.types[i]);
    args.push_back(is_singleton ? Squeeze(v, {0}) : v);
  }
  return b.Build(Inline(b, f, args));
}

// Splits the body and emits a shard_map for each part. Residuals leave the first shard_map and
// enter the second one with specs by which every device gets its own value back. A residual that is
// an argument of the op is passed on as that argument, with its own spec.
void ManualPartialEval(PartialEvalContext& c) {
  const ManualAttrs p(c.op.attrs);
  const PartialEvalResult pe = ValueOrThrow(PartialEval(*c.op.regions[0], c.known, {}, c.options));
  const std::vector<int> known_params = walk::Where(c.known), known_out = walk::Where(pe.out_known);
  const auto num_out = static_cast<int>(known_out.size());
  // With check_vma=false, a result may differ between shards although its out spec says that it is
  // equal, so it cannot stand for a residual.
  const DedupedResiduals deduped =
      DedupeResiduals(*pe.known, num_out, /*search_results=*/p.check_vma);

  Specs out_specs = ElementsAt(p.out_specs, known_out);
  const std::vector<Type> known_types = deduped.known->result_types();
  for (size_t k = num_out; k < known_types.size(); ++k)
    out_specs.push_back(ResidualSpec(p, deduped.known->scope.mesh, known_types[k]));
  const std::vector<Value> args = DropAbsent(c.known_in);
  std::vector<Value> known;
  if (!known_types.empty() || deduped.known->has_effects)
    known = p.Emit(c.known_b, WithSingletonResults(*deduped.known, num_out, out_specs), args,
                   ElementsAt(p.in_specs, known_params), out_specs);
  for (int k = 0; k < num_out; ++k) c.known_out[known_out[k]] = known[k];

  if (pe.unknown->results.empty() && !pe.unknown->has_effects) return;
  std::vector<Value> unknown_args;
  std::vector<bool> singleton;
  Specs in_specs;
  for (const DedupedResiduals::Source& s : deduped.sources) {
    unknown_args.push_back(c.residual(s.is_param ? args[s.index] : known[s.index]));
    in_specs.push_back(s.is_param ? p.in_specs[known_params[s.index]] : out_specs[s.index]);
    singleton.push_back(!s.is_param && s.index >= num_out &&
                        NeedsSingleton(out_specs[s.index], known_types[s.index]));
  }
  for (int i : walk::Where(c.known, false)) {
    unknown_args.push_back(c.unknown_in(i));
    in_specs.push_back(p.in_specs[i]);
  }
  const std::vector<int> unknown_out = walk::Where(pe.out_known, false);
  const std::vector<Value> out =
      p.Emit(c.unknown_b, WithSingletonParams(*pe.unknown, singleton), unknown_args, in_specs,
             ElementsAt(p.out_specs, unknown_out));
  for (size_t k = 0; k < unknown_out.size(); ++k) c.unknown_out[unknown_out[k]] = out[k];
}

// If states are not tracked (check_vma=false), the body has no casts whose transposes would add up
// cotangents, so this is done at the boundary. The cotangent of a replicated result is divided
// among its copies, and that of a replicated argument is summed.
FunctionRef WithCompensatedCotangents(const Function& f, const ManualAttrs& p, size_t num_args,
                                      const Specs& ct_specs, const Specs& out_specs) {
  Builder b(f.scope, f.name);
  std::vector<Value> args;
  for (int i = 0; i < f.num_params; ++i) args.push_back(b.Param(f.types[i]));
  for (size_t k = 0; k < ct_specs.size(); ++k) {
    const int64_t copies = b.mesh().SizeOf(Unmentioned(ct_specs[k], p.manual_axes));
    Value& ct = args[num_args + k];
    if (copies > 1) ct = Div(ct, FullLike(ct, static_cast<double>(copies)));
  }
  std::vector<Value> out = Inline(b, f, args);
  for (size_t k = 0; k < out.size(); ++k)
    out[k] = Psum(out[k], Unmentioned(out_specs[k], p.manual_axes));
  return b.Build(out);
}

// The cotangent of an unreduced value is reduced, and the other way round.
Specs CotangentSpecs(Specs specs) {
  for (PartitionSpec& s : specs) std::swap(s.unreduced, s.reduced);
  return specs;
}

std::vector<Value> ManualTranspose(const RuleContext& c, Values cts,
                                   const std::vector<bool>& linear) {
  const ManualAttrs p(c.attrs);
  const Function& body = *c.regions[0];
  const std::vector<bool> has_ct = AreValid(cts);
  const FunctionRef wanted = walk::Reorder(body, walk::Iota(body.num_params), walk::Where(has_ct));
  FunctionRef transposed = ValueOrThrow(TransposeFunction(*wanted, linear));
  const std::vector<Value> others = ElementsAt(c.in, walk::Where(linear, false));
  const Specs ct_specs = CotangentSpecs(SpecsWhere(p.out_specs, has_ct)),
              out_specs = CotangentSpecs(SpecsWhere(p.in_specs, linear));
  if (!p.check_vma)
    transposed = WithCompensatedCotangents(*transposed, p, others.size(), ct_specs, out_specs);
  return ScatterByMask(
      p.Emit(c.b, transposed, Concat(others, DropAbsent(cts)),
             JoinSpecs(ElementsAt(p.in_specs, walk::Where(linear, false)), ct_specs), out_specs),
      linear);
}

// ---- Batching: every device has the whole batch, unless vmap's spmd_axis_name cuts it. ----

// Returns the specs of the batched values, in which dim dims[i] of value i is the batch, sharded by
// the axes `cut`. Values without a batch have dims[i] < 0.
Specs WithBatchAxes(Specs specs, absl::Span<const int> dims, const AxisList& cut) {
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto dim = static_cast<size_t>(dims[i]);
    if (dims[i] < 0 || (cut.empty() && dim >= specs[i].dims.size())) continue;
    if (dim > specs[i].dims.size()) specs[i].dims.resize(dim);
    specs[i].dims.insert(specs[i].dims.begin() + dims[i], cut);
  }
  return specs;
}

// The batch is cut inside the body by the axes of vmap's spmd_axis_name that are Manual there.
Batched ManualBatch(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const ManualAttrs p(c.attrs);
  AxisList cut;
  for (const std::string& a : c.batch.spmd)
    if (Contains(p.manual_axes, a)) cut.push_back(a);
  MappedAxis inside = c.batch;
  const int64_t parts = c.b.mesh().SizeOf(cut);
  if (size % parts != 0)
    Throw(ErrorKind::kValueError,
          absl::StrCat("shard_map: the batch of the vmap around it, of size ", size,
                       ", is not evenly divisible by ", parts,
                       ", the size of its spmd_axis_name ('", absl::StrJoin(cut, "','"), "')"));
  inside.size = size / parts;
  const BatchResult batched =
      ValueOrThrow(Batch(*c.regions[0], {dims.begin(), dims.end()}, inside));
  return {p.Emit(c.b, batched.fn, c.in, WithBatchAxes(p.in_specs, dims, cut),
                 WithBatchAxes(p.out_specs, batched.out_dims, cut)),
          batched.out_dims};
}

// ---- Reference semantics. ----

// Returns the index at which the shard of `device` begins in the array.
Dims ShardStarts(const Mesh& mesh, int64_t device, const PartitionSpec& spec, const Dims& block) {
  Dims starts(block.size(), 0);
  for (size_t d = 0; d < block.size(); ++d)
    starts[d] = mesh.IndexAlong(device, AxesAt(spec, static_cast<int>(d))) * block[d];
  return starts;
}

// Returns whether `device` is the first one along `axes`.
bool IsFirst(const Mesh& mesh, int64_t device, const AxisList& axes) {
  return mesh.IndexAlong(device, axes) == 0;
}

// Cuts each argument into shards by its spec, runs the body on the shards of all devices, and
// assembles the results. Shards that are copies of each other are written once, from the first
// device. An unreduced result is summed over its axes first, because outside the op the evaluator
// knows whole arrays only.
absl::StatusOr<std::vector<Shards>> EvalManual(const EvalContext& c, absl::Span<const Shards> in) {
  const ManualAttrs p(c.attrs);
  const Function& body = *c.regions[0];
  const Mesh& mesh = c.scope.mesh;
  // Each shard outside the op belongs to a device, and the body runs on all devices of its group
  // along the manual axes. The pairs are sorted by device.
  std::vector<std::pair<int64_t, size_t>> shards;  // pairs of device and shard outside
  const std::vector<int64_t> outside = c.evaluator.shard_devices();
  for (size_t o = 0; o < outside.size(); ++o)
    for (int64_t device : mesh.GroupOf(outside[o], p.manual_axes)) shards.emplace_back(device, o);
  std::sort(shards.begin(), shards.end());

  std::vector<int64_t> devices;
  for (const auto& [device, o] : shards) devices.push_back(device);
  std::vector<Shards> args(in.size());
  for (size_t i = 0; i < in.size(); ++i)
    for (const auto& [device, o] : shards) {
      const Dims& shape = body.types[i].shape;
      // The first device's summand of an unreduced argument is the value, and the other summands
      // are zeros.
      args[i].push_back(
          IsFirst(mesh, device, p.in_specs[i].unreduced)
              ? SliceBlock(in[i][o], ShardStarts(mesh, device, p.in_specs[i], shape), shape)
              : Array(body.types[i].dtype, shape));
    }
  TESSERA_ASSIGN_OR_RETURN(std::vector<Shards> got,
                           c.evaluator.RunOnDevices(devices, body, std::move(args)));

  std::vector<Shards> out(got.size());
  for (size_t r = 0; r < got.size(); ++r) {
    if (const AxisList& axes = p.out_specs[r].unreduced; !axes.empty()) {
      Builder b({body.scope.mesh, /*check_vma=*/false}, "sum");
      const Value summand = b.Param(MakeType(got[r][0].dtype(), got[r][0].shape()));
      const FunctionRef sum = b.Build({Psum(summand, axes)});
      TESSERA_ASSIGN_OR_RETURN(const std::vector<Shards> whole,
                               c.evaluator.RunOnDevices(devices, *sum, {got[r]}));
      got[r] = whole[0];
    }
    for (size_t o = 0; o < outside.size(); ++o)
      out[r].emplace_back(c.out_types[r].dtype, c.out_types[r].shape);
    AxisList copies = Unmentioned(p.out_specs[r], p.manual_axes);
    for (const AxisList* equal : {&p.out_specs[r].unreduced, &p.out_specs[r].reduced})
      copies.insert(copies.end(), equal->begin(), equal->end());
    for (size_t k = 0; k < shards.size(); ++k) {
      const auto& [device, o] = shards[k];
      if (!IsFirst(mesh, device, copies)) continue;
      WriteBlock(&out[r][o], ShardStarts(mesh, device, p.out_specs[r], got[r][k].shape()),
                 got[r][k]);
    }
  }
  return out;
}

// The axes that a spec names for the dims of a value shard it outside the op only. They are the
// edge's prefix.
DataFlow ManualDataFlow(const InferContext& c) {
  const Function& body = *c.regions[0];
  RegionDataFlow edges = EdgesOf(body, 0);
  for (DataFlowEdge& e : edges.operands) {
    e.prefix = c.attrs.Specs("in_specs")[e.outer].dims;
    e.prefix.resize(body.types[e.inner].rank());
  }
  for (DataFlowEdge& e : edges.results) {
    e.prefix = c.attrs.Specs("out_specs")[e.outer].dims;
    e.prefix.resize(body.types[body.results[e.inner]].rank());
  }
  DataFlow flow;
  flow.regions = {std::move(edges)};
  flow.manual_axes = c.attrs.Strings("manual_axes");
  return flow;
}

Attrs KeepManual(const Attrs& attrs, const std::vector<bool>& operands,
                 const std::vector<bool>& results) {
  const auto kept = [](const Specs& specs, const std::vector<bool>& mask) {
    Specs out;
    for (size_t i = 0; i < specs.size(); ++i)
      if (mask[i]) out.push_back(specs[i]);
    return out;
  };
  Attrs out = attrs;
  out.Set("in_specs", kept(attrs.Specs("in_specs"), operands));
  out.Set("out_specs", kept(attrs.Specs("out_specs"), results));
  return out;
}

AddedValues AddManualValues(const InferContext& c, int num_operands, int num_results) {
  PartitionSpec spec;
  spec.dims = {InMeshOrder(c.scope.mesh, c.attrs.Strings("manual_axes"))};
  Specs in = c.attrs.Specs("in_specs"), out = c.attrs.Specs("out_specs");
  in.insert(in.end(), num_operands, spec);
  out.insert(out.end(), num_results, spec);
  Attrs attrs = c.attrs;
  attrs.Set("in_specs", std::move(in));
  attrs.Set("out_specs", std::move(out));
  return {std::move(attrs)};
}

constexpr AttrSpec kManualAttrs[] = {{"in_specs", AttrKind::kSpecs},
                                     {"out_specs", AttrKind::kSpecs},
                                     {"manual_axes", AttrKind::kStrings},
                                     {"check_vma", AttrKind::kBool}};

}  // namespace

const OpDef kManualComputation = Checked({.name = "manual_computation",
                                          .lax_name = "shard_map",
                                          .family = Family::kControlFlow,
                                          .num_operands = kAnyNumber,
                                          .regions = kOneBody,
                                          .attrs = kManualAttrs,
                                          .lowering = Lowering::kRegion,
                                          .infer = InferManual,
                                          .factors = ReplicatedFactors,
                                          .sharding = KeepInferredTypes,
                                          .varying = KeepInferredTypes,
                                          .jvp = ManualJvp,
                                          .jvp_emits_primals = true,
                                          .transpose = ManualTranspose,
                                          .batch = ManualBatch,
                                          .partition = Refused{"the planner enters regions itself"},
                                          .partial_eval = ManualPartialEval,
                                          .data_flow = ManualDataFlow,
                                          .keep = KeepManual,
                                          .add_values = AddManualValues,
                                          .cost = ManualCost,
                                          .eval_shards = EvalManual});

}  // namespace ops

namespace {

// Returns the body with a cast to varying on each result that does not vary along all axes in its
// spec's dims. The shards of such a result are equal, and are concatenated along these axes.
FunctionRef WithVaryingResults(FunctionRef body, const std::vector<PartitionSpec>& out_specs) {
  if (!body->scope.check_vma || out_specs.size() != body->results.size()) return body;
  std::vector<AxisSet> missing(out_specs.size());
  bool is_any_missing = false;
  for (size_t r = 0; r < out_specs.size(); ++r)
    for (const AxisList& axes : out_specs[r].dims)
      for (const std::string& a : axes)
        if (body->scope.mesh.IsManual(a) &&
            !body->types[body->results[r]].NonInvaryingAxes().contains(a)) {
          missing[r].insert(a);
          is_any_missing = true;
        }
  if (!is_any_missing) return body;
  return ops::WithMappedResults(*body, [&](int r, Value v) { return Pvary(v, missing[r]); });
}

}  // namespace

Scope ManualScope(const Scope& outer, const AxisList& manual_axes, bool check_vma) {
  return ops::BodyScope(outer, manual_axes, check_vma);
}

std::vector<Type> ManualShardTypes(const Scope& outer, absl::Span<const Type> args,
                                   const std::vector<PartitionSpec>& in_specs,
                                   const AxisList& manual_axes, bool check_vma) {
  const Attrs attrs = {{"in_specs", in_specs},
                       {"out_specs", std::vector<PartitionSpec>{}},
                       {"manual_axes", manual_axes},
                       {"check_vma", check_vma}};
  return ValueOrThrow(ops::BlockTypes({ops::kManualComputation, outer, args, attrs, {}}));
}

std::vector<Value> ManualComputation(Builder& b, FunctionRef body, Values args,
                                     std::vector<PartitionSpec> in_specs,
                                     std::vector<PartitionSpec> out_specs, AxisList manual_axes,
                                     bool check_vma) {
  body = WithVaryingResults(std::move(body), out_specs);
  return b.Emit(ops::kManualComputation, args,
                {{"in_specs", std::move(in_specs)},
                 {"out_specs", std::move(out_specs)},
                 {"manual_axes", std::move(manual_axes)},
                 {"check_vma", check_vma}},
                {std::move(body)});
}

}  // namespace tessera::ir
