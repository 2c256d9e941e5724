// The part of vmap that is no template: traces f for one element, batches the traced function, and
// runs the result in the current frame or as a program.
#include "client/transform/vmap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// Appends the mapped dim of each argument to `dims`, counted from the front, or -1 if the argument
// is not mapped. Checks the sizes of the mapped dims, and returns their common size.
int64_t ResolveBatch(const VmapFlat& call, const Site& site, std::vector<int>* dims) {
  int64_t size = call.axis_size;
  std::string size_source = "axis_size";
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
                 "vmap got inconsistent sizes for array axes to be mapped: ", size_source, " is ",
                 size, " but axis ", d, " of ", call.args.path(i), ", a ", type.ToString(), ", is ",
                 type.shape[d]);
    }
    if (size < 0) {
      size = type.shape[d];
      size_source = absl::StrCat("axis ", d, " of ", call.args.path(i));
    }
    dims->push_back(d);
  }
  if (size < 0) {
    ThrowError(ErrorKind::kValueError, site,
               "vmap must have at least one non-None value in in_axes, or be given axis_size");
  }
  return size;
}

// Returns the Explicit axes that shard the mapped dim. Throws unless these axes shard the mapped
// dim of every mapped argument, and no dim of the other arguments.
ir::AxisList ExplicitAxes(const VmapFlat& call, const std::vector<int>& dims, const Site& site) {
  std::optional<size_t> first;
  const auto axes_of = [&](size_t i) { return call.args.leaves[i].type().axes_of(dims[i]); };
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) continue;
    if (!first) first = i;
    if (axes_of(i) == axes_of(*first)) continue;
    ThrowError(ErrorKind::kValueError, site,
               "Mapped away dimension of inputs passed to vmap should be sharded the same. Got "
               "inconsistent axis specs: ",
               call.args.path(*first), " is a ", call.args.leaves[*first].type().ToString(),
               ", mapped over axis ", dims[*first], ", but ", call.args.path(i), " a ",
               call.args.leaves[i].type().ToString(), ", mapped over axis ", dims[i],
               "; reshard one of them");
  }
  if (!first) return {};
  const ir::AxisList axes = axes_of(*first);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) continue;
    for (const ir::AxisList& used : call.args.leaves[i].type().sharding) {
      for (const std::string& axis : axes) {
        if (std::find(used.begin(), used.end(), axis) == used.end()) continue;
        ThrowError(ErrorKind::kValueError, site,
                   "Unmapped values passed to vmap cannot be sharded along the mesh axis you are "
                   "vmapping over. Got type: ",
                   call.args.leaves[i].type().ToString(), " of ", call.args.path(i),
                   ", in_axes: None and vmapped mesh axis: ", axis);
      }
    }
  }
  return axes;
}

ir::MappedAxis MappedAxisOf(const VmapFlat& call, const std::vector<int>& dims, int64_t size,
                            const Site& site) {
  ir::MappedAxis axis = size;
  axis.name = call.axis_name;
  axis.sharding = ExplicitAxes(call, dims, site);
  if (axis.sharding != call.spmd_axis_name) axis.spmd = call.spmd_axis_name;
  if (!axis.sharding.empty() && !axis.spmd.empty()) {
    ThrowError(ErrorKind::kValueError, site,
               "Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is "
               "allowed. Got spmd_axis_name=(",
               absl::StrJoin(axis.spmd, ", "), ") and arrays sharded on explicit_mesh_axis=(",
               absl::StrJoin(axis.sharding, ", "), ")");
  }
  const ir::Mesh mesh = CurrentScope().mesh;
  const auto refuse_manual = [&](std::string_view what, const std::string& name) {
    if (!mesh.IsManual(name)) return;
    ThrowError(ErrorKind::kValueError, site, "vmap: ", ToAbsl(what), " '", name,
               "' is the name of an axis of mesh ", mesh.ToString(),
               " that is Manual here; give another name");
  };
  refuse_manual("axis_name", axis.name);
  for (const std::string& name : axis.spmd) refuse_manual("spmd_axis_name", name);
  return axis;
}

}  // namespace

// If the mapped axis has a name, or is sharded over axes of the mesh, it is part of the scope in
// which f is traced: f can then use the name in collectives, and cannot name these mesh axes.
// Values that f captures are not mapped.
std::vector<Array> RunVmap(const VmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims) {
  std::vector<int> dims;
  const int64_t size = ResolveBatch(call, site, &dims);
  return InProgram("vmap", site, call.args.leaves, [&] {
    std::vector<Type> element_types;
    for (size_t i = 0; i < dims.size(); ++i) {
      const Type& t = call.args.leaves[i].type();
      element_types.push_back(dims[i] < 0 ? t : WithoutDim(t, dims[i]));
    }
    const ir::MappedAxis axis = MappedAxisOf(call, dims, size, site);
    ir::Scope scope = CurrentScope();
    if (axis.in_scope()) scope.mapped.push_back(axis);
    const TracedFunction n = TraceFlat(scope, element_types, "vmap", site, body);
    std::vector<int> param_dims = dims;
    param_dims.insert(param_dims.end(), n.captures.size(), -1);
    std::vector<int> result_dims;
    const std::vector<std::optional<int>> requested_dims = out_dims();
    for (size_t r = 0; r < requested_dims.size(); ++r) {
      const int rank = n.fn->type(n.fn->results[r]).rank() + 1;
      const int d = !requested_dims[r]       ? -1
                    : *requested_dims[r] < 0 ? *requested_dims[r] + rank
                                             : *requested_dims[r];
      if (requested_dims[r] && (d < 0 || d >= rank)) {
        ThrowError(ErrorKind::kValueError, site, "vmap out_axes: axis ", *requested_dims[r],
                   " of result ", r, " is out of bounds for rank ", rank);
      }
      result_dims.push_back(d);
    }
    const ir::BatchResult batched = OrThrow(ir::Batch(*n.fn, param_dims, axis, result_dims), site);
    return CallFunction(batched.fn, Concat(call.args.leaves, n.captures), "vmap", site);
  });
}

}  // namespace tessera::internal
