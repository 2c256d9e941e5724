#include "client/flat.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/operand.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// `mask` with `more` times `value` at its end.
std::vector<bool> Extended(std::vector<bool> mask, size_t more, bool value) {
  mask.insert(mask.end(), more, value);
  return mask;
}

// `f` with only the results `which`.
ir::FunctionRef KeepResults(const ir::Function& f, const std::vector<int>& which) {
  ir::Function out = f;
  out.results.clear();
  for (int r : which) out.results.push_back(f.results[r]);
  return ir::Dce(out);
}

// `type` that varies where either does.
Type UnionOfVarying(Type type, const Type& other) {
  type.varying.insert(other.varying.begin(), other.varying.end());
  return type;
}

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

void CheckLoss(const char* name, const Nested& n, const Site& site) {
  const Type loss = n.fn->type(n.fn->results[0]);
  if (loss.rank() != 0) {
    ThrowError(ErrorKind::kTypeError, site, name,
               ": Gradient only defined for scalar-output functions. Output had "
               "shape: (",
               ir::DimsToString(loss.shape), "). Reduce it, e.g. by sum");
  }
  if (!ir::IsFloat(loss.dtype)) {
    ThrowError(ErrorKind::kTypeError, site, name,
               " requires real-valued outputs (output dtype that is a float), "
               "but got ",
               std::string(ir::DTypeName(loss.dtype)));
  }
}

}  // namespace

std::vector<Array> Concat(std::vector<Array> a, const std::vector<Array>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Array FullArray(const Type& type, double value, const Site& site) {
  return Apply1("full", site, {},
                [&](ir::Builder& b, std::vector<ir::Value>) { return ir::Full(b, type, value); });
}

std::vector<bool> HaveTangents(const std::vector<Type>& types) {
  std::vector<bool> out;
  for (const Type& t : types) out.push_back(ir::IsInexact(t.dtype));
  return out;
}

std::vector<Array> FillWithZeros(const std::vector<Type>& types, const std::vector<bool>& given,
                                 absl::Span<const Array> arrays, const Site& site) {
  std::vector<Array> out;
  size_t next = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    out.push_back(given[i] ? arrays[next++] : FullArray(types[i], 0, site));
  }
  return out;
}

std::string PcastHint(const Type& have, const Type& want) {
  ir::AxisList missing;
  for (const std::string& axis : want.varying) {
    if (!have.varying.contains(axis)) missing.push_back(axis);
  }
  Type cast = have;
  cast.varying.insert(missing.begin(), missing.end());
  if (missing.empty() || !ir::EqualButWeak(cast, want)) return "";
  return absl::StrCat("pcast(..., ('", absl::StrJoin(missing, "', '"),
                      missing.size() == 1 ? "',)" : "')", ", to='varying')");
}

std::vector<Type> TypesOf(const std::vector<Array>& arrays) {
  std::vector<Type> out;
  for (const Array& a : arrays) out.push_back(a.type());
  return out;
}

Array NumberArgument(const Arg& number, bool use_f64) {
  DType dtype = DType::kBool;
  if (number.kind == Arg::kReal) {
    dtype = use_f64 ? DType::kF64 : DType::kF32;
  } else if (number.kind == Arg::kInteger) {
    if (number.integer < 0 && number.number > 0) {
      ThrowError(ErrorKind::kValueError, number.site, "the argument ",
                 static_cast<uint64_t>(number.integer),
                 " is too large: a number below 2^63 is expected. Give an array");
    }
    const bool fits = number.integer == static_cast<int32_t>(number.integer);
    dtype = fits ? DType::kS32 : DType::kS64;
  }
  const bool weak = number.kind != Arg::kBoolean;
  if (CurrentFrame()) {
    return Apply1("constant", number.site, {}, [&](ir::Builder& b, std::vector<ir::Value>) {
      return ConvertTo(Literal(b, number, dtype), {dtype, weak});
    });
  }
  Type type = ir::MakeType(dtype, {});
  type.weak = weak;
  auto state = std::make_shared<NumberState>(std::move(type));
  state->value = number.kind == Arg::kReal ? ir::Array::Scalar(dtype, number.number)
                                           : ir::Array::ScalarInt(dtype, number.integer);
  return Array(std::move(state));
}

bool HasFloat64(const std::vector<Array>& arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [](const Array& a) {
    return a.valid() && (a.dtype() == DType::kF64 || a.dtype() == DType::kC128);
  });
}

// ---- Differentiation. ---------------------------------------------------------------------------

std::vector<Array> ValueAndGradFlat(const char* name, const FlatArgs& args,
                                    const std::vector<bool>& active, const Site& site,
                                    FlatBody body) {
  std::vector<Array> wanted;
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    if (!active[i]) continue;
    wanted.push_back(args.leaves[i]);
    if (!ir::IsFloat(args.leaves[i].dtype())) {
      ThrowError(ErrorKind::kTypeError, site, name,
                 " requires real-valued inputs (input dtype that is a float), "
                 "but ",
                 args.path(i), " is ", args.leaves[i].type().ToString(),
                 ". Convert it, or differentiate by another argument");
    }
  }
  return InProgram(name, site, args.leaves, [&] {
    const Nested n = TraceFlat(CurrentScope(), TypesOf(args.leaves), name, site, body);
    CheckLoss(name, n, site);
    const ir::Linearized lin =
        OrThrow(ir::Linearize(*n.fn, Extended(active, n.captures.size(), false)), site);
    std::vector<Array> out = CallFunction(lin.forward, Concat(args.leaves, n.captures), name, site);
    const std::vector<Array> residuals(out.end() - lin.num_residuals, out.end());
    out.resize(out.size() - lin.num_residuals);
    if (!lin.out_active[0]) return Concat(out, ZerosLike(wanted, site));
    const ir::FunctionRef linear = KeepResults(*lin.linear, {0});
    std::vector<bool> mask(residuals.size(), false);
    const ir::FunctionRef transposed =
        OrThrow(ir::TransposeFunction(*linear, Extended(mask, wanted.size(), true)), site);
    const Array one = FullArray(ir::CotangentType(out[0].type()), 1, site);
    return Concat(out, CallFunction(transposed, Concat(residuals, {one}), name, site));
  });
}

std::vector<Array> JvpFlat(const FlatArgs& primals, const std::vector<Array>& tangents,
                           const Site& site, FlatBody body) {
  std::vector<Array> active_tangents;
  const std::vector<bool> active = HaveTangents(TypesOf(primals.leaves));
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!active[i]) continue;
    if (!ir::SameShapeAndDType(primals.leaves[i].type(), tangents[i].type())) {
      ThrowError(ErrorKind::kTypeError, site,
                 "primal and tangent arguments to jvp do not match; dtypes and shapes "
                 "must be equal: ",
                 primals.path(i), " is ", primals.leaves[i].type().ToString(),
                 " but its tangent is ", tangents[i].type().ToString());
    }
    active_tangents.push_back(tangents[i]);
  }
  return InProgram("jvp", site, primals.leaves, [&] {
    const Nested n = TraceFlat(CurrentScope(), TypesOf(primals.leaves), "jvp", site, body);
    const ir::JvpResult jvp = OrThrow(
        ir::Jvp(*n.fn, Extended(active, n.captures.size(), false), /*instantiate=*/true), site);
    // The parameters are the primals, then the tangents.
    const std::vector<Array> in = Concat(Concat(primals.leaves, n.captures), active_tangents);
    const std::vector<Array> all = CallFunction(jvp.fn, in, "jvp", site);
    const size_t results = n.fn->results.size();
    const std::vector<Array> out(all.begin(), all.begin() + results);
    return Concat(out, FillWithZeros(TypesOf(out), jvp.out_active,
                                     absl::MakeSpan(all).subspan(results), site));
  });
}

LinearizedFlat LinearizeFlat(const char* name, const FlatArgs& args, const Site& site,
                             FlatBody body) {
  auto linear = std::make_shared<Linear>();
  linear->site = site;
  linear->in_types = TypesOf(args.leaves);
  linear->in_paths = args.paths();
  std::vector<Array> out = InProgram(name, site, args.leaves, [&] {
    const Nested n = TraceFlat(CurrentScope(), linear->in_types, name, site, body);
    linear->out_types = n.fn->result_types();
    linear->parts = OrThrow(
        ir::Linearize(*n.fn, Extended(HaveTangents(linear->in_types), n.captures.size(), false)),
        site);
    return CallFunction(linear->parts.forward, Concat(args.leaves, n.captures), name, site);
  });
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
  return InProgram("vjp", linear.site, in, [&] {
    const std::vector<bool> active = HaveTangents(linear.in_types);
    const std::vector<bool> mask(linear.residuals.size(), false);
    const ir::FunctionRef transposed = OrThrow(
        ir::TransposeFunction(*linear.parts.linear,
                              Extended(mask, std::count(active.begin(), active.end(), true), true)),
        linear.site);
    return FillWithZeros(linear.in_types, active, CallFunction(transposed, in, "vjp", linear.site),
                         linear.site);
  });
}

std::vector<Array> LinearTransposeFlat(const FlatArgs& like, const std::vector<Array>& cotangents,
                                       const Site& site, FlatBody body) {
  return InProgram("linear_transpose", site, cotangents, [&] {
    const Nested n =
        TraceFlat(CurrentScope(), TypesOf(like.leaves), "linear_transpose", site, body);
    CheckCotangentTypes("linear_transpose: cotangent type does not match function output",
                        ErrorKind::kTypeError, n.fn->result_types(), cotangents, site);
    const std::vector<bool> mask(like.leaves.size(), true);
    const ir::FunctionRef transposed =
        OrThrow(ir::TransposeFunction(*n.fn, Extended(mask, n.captures.size(), false)), site);
    return CallFunction(transposed, Concat(n.captures, cotangents), "linear_transpose", site);
  });
}

// ---- vmap. --------------------------------------------------------------------------------------

namespace {

// `type` without dim `d`.
Type WithoutDim(Type type, int d) {
  type.shape.erase(type.shape.begin() + d);
  if (type.is_sharded()) type.sharding.erase(type.sharding.begin() + d);
  ir::Normalize(&type);
  return type;
}

// Makes the mapped dims non-negative, checks their sizes, and returns the batch size.
int64_t BatchSize(const VmapFlat& call, const Site& site, std::vector<int>* dims) {
  int64_t size = call.axis_size;
  std::string of = "axis_size";
  for (size_t i = 0; i < call.args.leaves.size(); ++i) {
    if (!call.dims[i]) {
      dims->push_back(-1);
      continue;
    }
    const Type& type = call.args.leaves[i].type();
    const int d = *call.dims[i] < 0 ? *call.dims[i] + type.rank() : *call.dims[i];
    if (d < 0 || d >= type.rank()) {
      ThrowError(ErrorKind::kValueError, site, "vmap was requested to map its argument ",
                 call.args.path(i), " along axis ", *call.dims[i],
                 ", which implies that its rank should be at least ",
                 (*call.dims[i] < 0 ? -*call.dims[i] : *call.dims[i] + 1), ", but is only ",
                 type.rank(), " (its type is ", type.ToString(), ")");
    }
    if (size >= 0 && size != type.shape[d]) {
      ThrowError(ErrorKind::kValueError, site,
                 "vmap got inconsistent sizes for array axes to be mapped: ", of, " is ", size,
                 " but axis ", d, " of ", call.args.path(i), ", a ", type.ToString(), ", is ",
                 type.shape[d]);
    }
    if (size < 0) {
      size = type.shape[d];
      of = absl::StrCat("axis ", d, " of ", call.args.path(i));
    }
    dims->push_back(d);
  }
  if (size < 0) {
    ThrowError(ErrorKind::kValueError, site,
               "vmap must have at least one non-None value in in_axes, or be given axis_size");
  }
  return size;
}

}  // namespace

std::vector<Array> RunVmap(const VmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims) {
  std::vector<int> dims;
  const int64_t size = BatchSize(call, site, &dims);
  return InProgram("vmap", site, call.args.leaves, [&] {
    std::vector<Type> inner;
    for (size_t i = 0; i < dims.size(); ++i) {
      const Type& t = call.args.leaves[i].type();
      inner.push_back(dims[i] < 0 ? t : WithoutDim(t, dims[i]));
    }
    const Nested n = TraceFlat(CurrentScope(), inner, "vmap", site, body);
    std::vector<int> param_dims = dims;
    param_dims.insert(param_dims.end(), n.captures.size(), -1);
    std::vector<int> result_dims;
    const std::vector<std::optional<int>> wanted = out_dims();
    for (size_t r = 0; r < wanted.size(); ++r) {
      const int rank = n.fn->type(n.fn->results[r]).rank() + 1;
      const int d = !wanted[r] ? -1 : *wanted[r] < 0 ? *wanted[r] + rank : *wanted[r];
      if (wanted[r] && (d < 0 || d >= rank)) {
        ThrowError(ErrorKind::kValueError, site, "vmap out_axes: axis ", *wanted[r], " of result ",
                   r, " is out of bounds for rank ", rank);
      }
      result_dims.push_back(d);
    }
    ir::FunctionRef batched = OrThrow(ir::Batch(*n.fn, param_dims, size, result_dims), site).fn;
    const std::vector<Array> in = Concat(call.args.leaves, n.captures);
    // A mapped dim that is sharded on an Explicit axis changes the types in the batched body.
    const std::vector<Type> types = TypesOf(in);
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i].sharding != batched->types[i].sharding) {
        batched = OrThrow(ir::Rescope(*batched, batched->scope, types), site);
        break;
      }
    }
    return CallFunction(batched, in, "vmap", site);
  });
}

// ---- shard_map. ---------------------------------------------------------------------------------

namespace {

ir::AxisList ManualAxes(const ShardMapFlat& call, const ir::Mesh& mesh, const Site& site) {
  for (const std::string& axis : call.axis_names) {
    if (!mesh.Has(axis)) {
      ThrowError(ErrorKind::kValueError, site, "shard_map requires axis_names={",
                 absl::StrJoin(call.axis_names, ","), "} to be a subset of the mesh's axes, but ",
                 mesh.ToString(), " has no axis '", axis, "'");
    }
  }
  if (!call.axis_names.empty()) return call.axis_names;
  ir::AxisList out;
  for (const ir::MeshAxis& a : mesh.axes) {
    if (a.type != AxisType::kManual) out.push_back(a.name);
  }
  return out;
}

void CheckSpecAxes(std::string_view which, const PartitionSpec& spec, const std::string& path,
                   const ir::AxisList& manual, const Site& site) {
  for (const ir::AxisList& axes : spec.dims) {
    for (const std::string& axis : axes) {
      if (std::find(manual.begin(), manual.end(), axis) == manual.end()) {
        ThrowError(ErrorKind::kValueError, site, "shard_map ", ToAbsl(which),
                   " must refer to an axis marked as manual (", absl::StrJoin(manual, ", "),
                   "), but the spec of ", path, " refers to '", axis, "'");
      }
    }
  }
}

Type BlockType(const Array& arg, const PartitionSpec& spec, const std::string& path,
               const ir::Scope& inside, const ir::AxisList& manual, const Site& site) {
  Type type = arg.type();
  if (static_cast<int>(spec.dims.size()) > type.rank()) {
    ThrowError(ErrorKind::kValueError, site,
               "shard_map was given an in_specs entry which is too long: ", spec.ToString(),
               " for ", path, ", which has rank ", type.rank(), " (", type.ToString(), ")");
  }
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    const int64_t parts = inside.mesh.SizeOf(spec.dims[d]);
    if (type.shape[d] % parts != 0) {
      ThrowError(ErrorKind::kValueError, site, "shard_map applied to ", path, " with in_spec ",
                 spec.ToString(), ": dim ", d, " of ", type.ToString(),
                 " is not evenly divisible by ", parts, ", the size of mesh axes (",
                 absl::StrJoin(spec.dims[d], ", "), ")");
    }
    type.shape[d] /= parts;
    type.varying.insert(spec.dims[d].begin(), spec.dims[d].end());
  }
  for (ir::AxisList& axes : type.sharding) {
    std::erase_if(axes, [&](const std::string& a) {
      return std::find(manual.begin(), manual.end(), a) != manual.end();
    });
  }
  if (!inside.check_vma) type.varying = type.unreduced = type.reduced = {};
  ir::Normalize(&type);
  return type;
}

// A result as its spec wants it: varying on the axes it mentions.
Array MatchOutSpec(const Array& r, const PartitionSpec& spec, const std::string& path,
                   const ir::Scope& inside, const Site& site) {
  if (static_cast<int>(spec.dims.size()) > r.rank()) {
    ThrowError(ErrorKind::kValueError, site,
               "shard_map was given an out_specs entry which is too long: ", spec.ToString(),
               " for ", path, ", which has rank ", r.rank(), " (", r.type().ToString(), ")",
               r.rank() == 0 ? "; add at least one (singleton) axis to the result so "
                               "that blocks can be concatenated"
                             : "");
  }
  ir::AxisSet missing;
  for (const ir::AxisList& axes : spec.dims) missing.insert(axes.begin(), axes.end());
  for (const std::string& axis : r.type().varying) missing.erase(axis);
  if (missing.empty() || !inside.check_vma) return r;
  return Apply1("pvary", site, {r},
                [&](ir::Builder&, std::vector<ir::Value> v) { return ir::Pvary(v[0], missing); });
}

}  // namespace

std::vector<Array> RunShardMap(const ShardMapFlat& call, const Site& site, FlatBody body,
                               absl::FunctionRef<std::vector<PartitionSpec>()> out_specs,
                               absl::FunctionRef<std::vector<std::string>()> out_paths) {
  // Outside of a trace, the program that runs the shard_map gets its mesh.
  std::optional<set_mesh> context;
  if (!CurrentFrame() && context_mesh().empty() && !call.mesh.empty()) context.emplace(call.mesh);
  return InProgram("shard_map", site, call.args.leaves, [&] {
    const ir::Scope outer = CurrentScope();
    if (outer.mesh.empty()) {
      if (!call.mesh.empty()) throw RetraceWithMesh{call.mesh};
      ThrowError(ErrorKind::kValueError, site,
                 "shard_map: the context mesh cannot be empty. Pass a mesh, or use set_mesh");
    }
    if (!call.mesh.empty() && !call.mesh.logical.SameShape(outer.mesh)) {
      ThrowError(ErrorKind::kValueError, site, "shard_map: the context mesh ",
                 outer.mesh.ToString(), " should match the mesh passed to shard_map, ",
                 call.mesh.ToString());
    }
    const ir::AxisList manual = ManualAxes(call, outer.mesh, site);
    const ir::Scope inside{outer.mesh.With(manual, AxisType::kManual), call.check_vma};
    std::vector<Type> blocks;
    const std::vector<std::string> in_paths = call.args.paths();
    for (size_t i = 0; i < call.args.leaves.size(); ++i) {
      CheckSpecAxes("in_specs", call.in_specs[i], in_paths[i], manual, site);
      blocks.push_back(
          BlockType(call.args.leaves[i], call.in_specs[i], in_paths[i], inside, manual, site));
    }
    std::vector<PartitionSpec> specs;
    const Nested n =
        TraceFlat(inside, blocks, "shard_map", site, [&](const std::vector<Array>& in) {
          std::vector<Array> out = body(in);
          specs = out_specs();
          const std::vector<std::string> paths = out_paths();
          for (size_t r = 0; r < out.size(); ++r) {
            CheckSpecAxes("out_specs", specs[r], paths[r], manual, site);
            out[r] = MatchOutSpec(out[r], specs[r], paths[r], inside, site);
          }
          return out;
        });
    std::vector<PartitionSpec> in_specs = call.in_specs;
    in_specs.resize(in_specs.size() + n.captures.size());
    return Apply("shard_map", site, Concat(call.args.leaves, n.captures),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   return ir::ManualComputation(b, n.fn, in, in_specs, specs, manual,
                                                call.check_vma);
                 });
  });
}

// ---- Control flow and checkpoint. ---------------------------------------------------------------

namespace {

int64_t ScanLength(const ScanFlat& call, const Site& site) {
  int64_t length = call.length;
  for (size_t i = 0; i < call.xs.leaves.size(); ++i) {
    const Type& t = call.xs.leaves[i].type();
    if (t.rank() == 0) {
      ThrowError(ErrorKind::kValueError, site,
                 "scan got value with no leading axis to scan over: ", call.xs.path(i), " is ",
                 t.ToString());
    }
    if (length >= 0 && length != t.shape[0]) {
      ThrowError(ErrorKind::kValueError, site,
                 "scan got values with different leading axis sizes: ", call.xs.path(i), " is ",
                 t.ToString(), " but ", length, " steps are expected");
    }
    length = t.shape[0];
  }
  if (length < 0) {
    ThrowError(ErrorKind::kValueError, site,
               "scan: xs holds no array, so the number of steps must be given as length");
  }
  return length;
}

void CheckCarry(std::string_view what, const FlatArgs& carry, const ir::Function& f,
                const Site& site) {
  std::string wrong;
  for (size_t i = 0; i < carry.leaves.size(); ++i) {
    const Type &in = carry.leaves[i].type(), &out = f.type(f.results[i]);
    if (ir::EqualButWeak(in, out)) continue;
    const std::string hint = PcastHint(in, out);
    absl::StrAppend(&wrong, "\n  * the input carry component ", carry.path(i), " has type ",
                    in.ToString(), " but the corresponding output carry component has type ",
                    out.ToString());
    if (!hint.empty()) {
      absl::StrAppend(&wrong,
                      ", so the varying manual axes do not match. This might be fixed by "
                      "applying ",
                      hint, " to the initial carry value corresponding to ", carry.path(i));
    }
  }
  if (!wrong.empty()) {
    ThrowError(ErrorKind::kTypeError, site, ToAbsl(what),
               " function carry input and carry output must have equal types (e.g. "
               "shapes and dtypes of arrays), but they differ:",
               wrong);
  }
}

// The function with its captures as the first params: as an op wants its constants.
ir::FunctionRef CapturesFirst(const Nested& n, const Site& site) {
  std::vector<int> order;
  const int declared = n.fn->num_params - static_cast<int>(n.captures.size());
  for (int i = declared; i < n.fn->num_params; ++i) order.push_back(i);
  for (int i = 0; i < declared; ++i) order.push_back(i);
  return ConvertExceptions(site, [&] { return ReorderParams(*n.fn, order); });
}

}  // namespace

std::vector<Array> RunScan(const ScanFlat& call, const Site& site, FlatBody body) {
  const int64_t length = ScanLength(call, site);
  const std::vector<Array> args = Concat(call.carry.leaves, call.xs.leaves);
  return InProgram("scan", site, args, [&] {
    std::vector<Type> params = TypesOf(call.carry.leaves);
    for (const Array& x : call.xs.leaves) params.push_back(WithoutDim(x.type(), 0));
    const Nested n = TraceFlat(CurrentScope(), params, "scan", site, body);
    CheckCarry("scan", call.carry, *n.fn, site);
    const ir::FunctionRef fn = CapturesFirst(n, site);
    return Apply(
        "scan", site, Concat(n.captures, args), [&](ir::Builder& b, std::vector<ir::Value> in) {
          return ir::Scan(b, fn, in, static_cast<int>(n.captures.size()),
                          static_cast<int>(call.carry.leaves.size()), length, call.reverse);
        });
  });
}

std::vector<Array> RunWhile(const FlatArgs& carry, const Site& site, FlatBody predicate,
                            FlatBody body) {
  return InProgram("while_loop", site, carry.leaves, [&] {
    const std::vector<Type> params = TypesOf(carry.leaves);
    const Nested p = TraceFlat(CurrentScope(), params, "cond_fun", site, predicate);
    const Type& holds = p.fn->type(p.fn->results[0]);
    if (holds.rank() != 0 || holds.dtype != DType::kBool) {
      ThrowError(ErrorKind::kTypeError, site,
                 "while_loop: cond_fun must return a boolean scalar, but got output type ",
                 holds.ToString());
    }
    const Nested n = TraceFlat(CurrentScope(), params, "body_fun", site, body);
    CheckCarry("while_loop body", carry, *n.fn, site);
    const ir::FunctionRef predicate_fn = CapturesFirst(p, site), body_fn = CapturesFirst(n, site);
    return Apply("while_loop", site, Concat(Concat(p.captures, n.captures), carry.leaves),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   return ir::While(b, predicate_fn, body_fn, in,
                                    static_cast<int>(p.captures.size()),
                                    static_cast<int>(n.captures.size()));
                 });
  });
}

namespace {

void CheckBranches(const char* name, const std::vector<Nested>& branches,
                   absl::FunctionRef<std::vector<std::string>()> out_paths, const Site& site) {
  const std::vector<Type> first = branches[0].fn->result_types();
  std::string wrong;
  for (size_t k = 1; k < branches.size(); ++k) {
    const std::vector<Type> other = branches[k].fn->result_types();
    for (size_t r = 0; r < first.size(); ++r) {
      if (ir::EqualButWeak(first[r], other[r])) continue;
      absl::StrAppend(&wrong, "\n  * ", out_paths()[r], " has type ", first[r].ToString(),
                      " of branch 0 and ", other[r].ToString(), " of branch ", k);
      const std::string hints[] = {PcastHint(first[r], UnionOfVarying(first[r], other[r])),
                                   PcastHint(other[r], UnionOfVarying(other[r], first[r]))};
      if (hints[0].empty() && hints[1].empty()) continue;
      wrong += ", so the varying manual axes do not match";
      for (int i : {0, 1})
        if (!hints[i].empty())
          absl::StrAppend(&wrong, ". This might be fixed by applying ", hints[i],
                          " to the output of branch ", i == 0 ? 0 : k);
    }
  }
  if (!wrong.empty()) {
    ThrowError(ErrorKind::kTypeError, site, name,
               " branches must have equal output types but they differ:", wrong);
  }
}

}  // namespace

std::vector<Array> RunBranches(const char* name, const Array& index, const FlatArgs& args,
                               const Site& site, const std::vector<FlatBody>& branches,
                               absl::FunctionRef<std::vector<std::string>()> out_paths) {
  const std::vector<Array> inputs = Concat({index}, args.leaves);
  return InProgram(name, site, inputs, [&] {
    const std::vector<Type> params = TypesOf(args.leaves);
    std::vector<Nested> nested;
    std::vector<Array> operands = inputs;
    for (const FlatBody& branch : branches) {
      nested.push_back(TraceFlat(CurrentScope(), params, name, site, branch));
      operands = Concat(operands, nested.back().captures);
    }
    CheckBranches(name, nested, out_paths, site);
    // Every branch takes the captures of all.
    std::vector<ir::FunctionRef> fns;
    for (size_t k = 0; k < nested.size(); ++k)
      fns.push_back(ConvertExceptions(site, [&] {
        ir::Builder b(nested[k].fn->scope, name);
        std::vector<ir::Value> in;
        for (const Type& t : params) in.push_back(b.Param(t));
        for (size_t j = 0; j < nested.size(); ++j)
          for (size_t i = params.size(); i < static_cast<size_t>(nested[j].fn->num_params); ++i) {
            const ir::Value capture = b.Param(nested[j].fn->types[i]);
            if (j == k) in.push_back(capture);
          }
        return b.Build(ir::Inline(b, *nested[k].fn, in));
      }));
    return Apply(name, site, operands, [&](ir::Builder&, std::vector<ir::Value> in) {
      return ir::Case(in[0], fns, absl::MakeConstSpan(in).subspan(1));
    });
  });
}

ForiBounds CheckedBounds(const Arg& lower, const Arg& upper) {
  ForiBounds out;
  out.site = lower.site;
  for (const Arg* bound : {&lower, &upper}) {
    const bool integer =
        bound->kind == Arg::kInteger || (bound->kind == Arg::kArray && bound->array->rank() == 0 &&
                                         ir::IsInteger(bound->array->dtype()));
    if (!integer) {
      ThrowError(ErrorKind::kTypeError, bound->site,
                 "fori_loop: a bound must be an integer scalar, got ",
                 bound->kind == Arg::kArray ? bound->array->type().ToString()
                                            : absl::StrCat(bound->number));
    }
    if (bound->kind == Arg::kInteger && (bound->integer < std::numeric_limits<int32_t>::min() ||
                                         bound->integer > std::numeric_limits<int32_t>::max())) {
      ThrowError(ErrorKind::kValueError, bound->site, "fori_loop: the bound ", bound->integer,
                 " is beyond what an s32 holds; give it as an array of s64");
    }
  }
  const Arg& like = lower.array ? lower : upper;
  const DType dtype = like.array ? like.array->dtype() : DType::kS32;
  const auto array_of = [&](const Arg& bound) {
    return bound.array
               ? *bound.array
               : FullArray(ir::MakeType(dtype, {}), static_cast<double>(bound.integer), bound.site);
  };
  out.lower = array_of(lower);
  out.upper = array_of(upper);
  if (!like.array) out.count = std::max<int64_t>(upper.integer - lower.integer, 0);
  return out;
}

Array IndexOfPredicate(const Arg& pred) {
  return ApplyArgs("cond", {pred}, Operands::kStrict, [&](ir::Builder&, std::vector<ir::Value> in) {
    const ir::Value p = in[0];
    if (p.rank() != 0) {
      ThrowError(ErrorKind::kTypeError, pred.site, "cond: pred must be a scalar, got ",
                 p.type().ToString());
    }
    const bool holds = p.dtype() == DType::kBool;
    return ir::Convert(holds ? p : ir::Compare(p, ir::FullLike(p, 0), "NE"), DType::kS32);
  });
}

Array IndexOfBranch(const Arg& index, size_t size) {
  return ApplyArgs(
      "switch", {index}, Operands::kStrict, [&](ir::Builder&, std::vector<ir::Value> in) {
        ir::Value i = in[0];
        if (i.rank() != 0 || !ir::IsInteger(i.dtype())) {
          ThrowError(ErrorKind::kTypeError, index.site,
                     "switch: index must be an integer scalar, got ", i.type().ToString());
        }
        if (ir::ByteWidth(i.dtype()) < ir::ByteWidth(DType::kS32)) i = ir::Convert(i, DType::kS32);
        const ir::Value first = ir::FullLike(i, 0);
        const ir::Value last = ir::FullLike(i, static_cast<double>(size - 1));
        return ir::Convert(ir::Clamp(first, i, last), DType::kS32);
      });
}

std::vector<Array> CheckpointFlat(const FlatArgs& args, const Site& site, FlatBody body) {
  return InProgram("checkpoint", site, args.leaves, [&] {
    const Nested n = TraceFlat(CurrentScope(), TypesOf(args.leaves), "checkpoint", site, body);
    return Apply(
        "checkpoint", site, Concat(args.leaves, n.captures),
        [&](ir::Builder& b, std::vector<ir::Value> in) { return ir::Checkpoint(b, n.fn, in); });
  });
}

// ---- jit. ---------------------------------------------------------------------------------------

namespace {

// A path in a tree as the name of a value; long paths are truncated at the front.
std::string ValueName(const std::string& path) {
  const size_t over = path.size() > ir::kValueNameMax ? path.size() - ir::kValueNameMax + 2 : 0;
  std::string name = over > 0 ? ".." + path.substr(over) : path;
  for (char& c : name)
    if (c < 0x20 || c > 0x7e) c = '?';
  return name;
}

TracedProgram TraceForJit(const FlatArgs& args, const JitCache::Options& options, const Site& site,
                          FlatBody body) {
  TracedProgram traced = TraceProgram(options.name, site, args.leaves, body);
  for (size_t i = 0; i < options.in_shardings.size(); ++i) {
    if (options.in_shardings[i]) traced.program.in_shardings[i] = options.in_shardings[i];
  }
  traced.program.out_shardings = options.out_shardings();
  for (const std::string& path : args.paths()) traced.program.in_names.push_back(ValueName(path));
  for (size_t i = 0; i < traced.captures.size(); ++i)
    traced.program.in_names.push_back(absl::StrCat("captured[", i, "]"));
  for (const std::string& path : options.out_paths())
    traced.program.out_names.push_back(ValueName(path));
  return traced;
}

// Different for most different calls, and quick: shapes and dtypes alone.
size_t HashOf(const std::type_info& type, const std::vector<Array>& leaves) {
  size_t hash = type.hash_code();
  for (const Array& a : leaves) hash = absl::HashOf(hash, a.type().dtype, a.type().shape);
  return hash;
}

// Throws unless the arguments can be passed to a run.
void CheckArguments(const std::string& name, const FlatArgs& args, const Site& site) {
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const Array& a = args.leaves[i];
    const ConcreteState* c = a.valid() ? AsConcrete(a) : nullptr;
    if (!c && !(a.valid() && AsNumber(a))) {
      ThrowError(ErrorKind::kTypeError, site, name, ": ", args.path(i), " is ", a.to_string(),
                 ", but a concrete array is expected outside a trace");
    }
    if (c && c->deleted.load()) ThrowDeleted(absl::StrCat(name, ": ", args.path(i)), a, site);
  }
}

}  // namespace

std::vector<bool> DonatedLeaves(const std::string& name, const std::vector<int>& argnums,
                                const TreeNode& args, const Site& site) {
  if (argnums.empty()) return {};
  const auto refuse = [&](int argnum, const std::string& why) {
    ThrowError(ErrorKind::kValueError, site, name, ": donate_argnums {",
               absl::StrJoin(argnums, ", "), "} names argument ", argnum, ", ", why);
  };
  const int n = static_cast<int>(args.children.size());
  std::vector<bool> donated(n, false);
  for (int argnum : argnums) {
    if (argnum < -n || argnum >= n) {
      refuse(argnum, n == 0
                         ? "but the call has no arguments. Leave it out"
                         : absl::StrCat("but the call has ", n, n == 1 ? " argument" : " arguments",
                                        "; a number from ", -n, " to ", n - 1, " is expected"));
    }
    const int a = argnum < 0 ? argnum + n : argnum;
    if (args.children[a].kind == TreeNode::kStatic) {
      refuse(argnum, absl::StrCat("which is static, the value ", args.children[a].text,
                                  "; arrays are expected. Leave it out"));
    }
    donated[a] = true;
  }
  std::vector<bool> leaves;
  for (int a = 0; a < n; ++a) {
    leaves.insert(leaves.end(), args.children[a].num_leaves(), donated[a]);
  }
  return leaves;
}

bool JitCache::Matches(const Entry& entry, const std::type_info& type, const FlatArgs& args) {
  if (*entry.type != type || !(entry.tree == args.tree) || !(entry.context == context_mesh()) ||
      entry.precision != PrecisionOr({}))
    return false;
  bool has_arrays = !entry.captures.empty();
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const LeafKey& key = entry.leaves[i];
    const ConcreteState* const c = AsConcrete(args.leaves[i]);
    has_arrays |= c != nullptr;
    if (!(key.type == args.leaves[i].type()) || key.session != (c ? c->session.get() : nullptr) ||
        (c && key.placement != c->placement && !(*key.placement == *c->placement)))
      return false;
  }
  return has_arrays || entry.session == Session::Default(Site{});
}

std::shared_ptr<const JitCache::Entry> JitCache::Find(size_t hash, const std::type_info& type,
                                                      const FlatArgs& args) const {
  const auto [first, last] = entries_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (Matches(*it->second, type, args)) return it->second;
  return nullptr;
}

std::vector<Array> JitCache::Call(const std::type_info& type, const FlatArgs& args,
                                  const Options& options, const Site& site, FlatBody body,
                                  std::shared_ptr<const void>* like_out) {
  if (CurrentFrame()) {
    const Nested n = TraceFlat(CurrentScope(), TypesOf(args.leaves), options.name, site, body);
    return Apply("jit", site, Concat(args.leaves, n.captures),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   return ir::Call(b, n.fn, in, options.name);
                 });
  }
  CheckArguments(options.name, args, site);
  const size_t hash = HashOf(type, args.leaves);
  std::shared_ptr<const Entry> entry;
  {
    absl::MutexLock lock(&mu_);
    entry = Find(hash, type, args);
  }
  if (!entry) {
    entry = Compile(type, args, options, site, body, like_out);
    absl::MutexLock lock(&mu_);
    if (!Find(hash, type, args)) entries_.emplace(hash, entry);
  }
  *like_out = entry->like_out;
  std::vector<bool> donate = options.donate;
  if (!donate.empty()) donate.resize(args.leaves.size() + entry->captures.size(), false);
  std::vector<Array> all;
  if (!entry->captures.empty()) all = Concat(args.leaves, entry->captures);
  return entry->session->Run(*entry->executable, all.empty() ? args.leaves : all, std::move(donate),
                             site);
}

std::shared_ptr<const JitCache::Entry> JitCache::Compile(const std::type_info& type,
                                                         const FlatArgs& args,
                                                         const Options& options, const Site& site,
                                                         FlatBody body,
                                                         std::shared_ptr<const void>* like_out) {
  const TracedProgram traced = TraceForJit(args, options, site, body);
  auto made = std::make_shared<Entry>();
  made->type = &type;
  made->tree = args.tree;
  made->context = context_mesh();
  made->precision = PrecisionOr({});
  for (const Array& a : args.leaves) {
    const ConcreteState* const c = AsConcrete(a);
    made->leaves.push_back({a.type(), c ? c->placement : nullptr, c ? c->session.get() : nullptr});
  }
  made->session = SessionOf(Concat(args.leaves, traced.captures), site);
  made->executable = made->session->Compile(traced.program, traced.mesh.devices, options.name,
                                            /*explain=*/false, site);
  made->captures = traced.captures;
  made->like_out = *like_out;
  return made;
}

api::CompileReply JitCache::Explain(const FlatArgs& args, const Options& options,
                                    const AbsentDevices* absent, const Site& site, FlatBody body) {
  if (CurrentFrame()) {
    ThrowError(ErrorKind::kTypeError, site,
               "explain: not while tracing; explain the outer function");
  }
  if (absent) {
    if (absent->memory_bytes <= 0 || absent->mesh.empty() || !absent->mesh.devices.empty()) {
      ThrowError(ErrorKind::kValueError, site,
                 "explain: absent devices want a mesh that names none (abstract_mesh) and "
                 "memory_bytes above 0");
    }
    const set_mesh on(absent->mesh);
    const TracedProgram traced = TraceForJit(args, options, site, body);
    return SessionOf(Concat(args.leaves, traced.captures), site)
        ->PlanForAbsent(traced.program, absent->memory_bytes, options.name, site);
  }
  CheckArguments(options.name, args, site);
  const TracedProgram traced = TraceForJit(args, options, site, body);
  const std::shared_ptr<Session> session = SessionOf(Concat(args.leaves, traced.captures), site);
  return session->Compile(traced.program, traced.mesh.devices, options.name, /*explain=*/true, site)
      ->reply;
}

int64_t JitCache::num_compiled() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(entries_.size());
}

}  // namespace tessera::internal
