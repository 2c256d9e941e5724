// The part of shard_map that is no template: checks the specs, traces f on the types of one
// device's blocks, and emits one op. pmap.cc uses this part too.
#include "client/transform/shard_map.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "ir/ops.h"

namespace tessera::internal {
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
  // Without axis_names, all axes become Manual except those that shard the mapped dim of an
  // enclosing vmap.
  ir::AxisSet vmap_axes;
  for (const ir::MappedAxis& axis : CurrentScope().mapped)
    vmap_axes.insert(axis.sharding.begin(), axis.sharding.end());
  ir::AxisList out;
  for (const ir::MeshAxis& a : mesh.axes) {
    if (a.type != AxisType::kManual && !vmap_axes.contains(a.name)) out.push_back(a.name);
  }
  return out;
}

// Throws if the spec has unreduced or reduced axes, unless all axes of the mesh are Explicit
// outside and Manual inside the shard_map.
void CheckUnreduced(std::string_view which, const PartitionSpec& spec, const std::string& path,
                    const ir::AxisList& manual, const ir::Mesh& mesh, const Site& site) {
  if (spec.unreduced.empty() && spec.reduced.empty()) return;
  for (const ir::MeshAxis& a : mesh.axes) {
    if (a.type == AxisType::kAuto) {
      ThrowError(ErrorKind::kValueError, site, "shard_map: unreduced and reduced in ",
                 ToAbsl(which), " can only be used when all axes of the mesh are of type ",
                 "Explicit; got ", spec.ToString(), " for ", path, " and ", mesh.ToString());
    }
  }
  if (manual.size() < mesh.axes.size()) {
    ThrowError(ErrorKind::kNotImplemented, site,
               "shard_map: unreduced/reduced can only be passed to ", ToAbsl(which),
               " when all axes of the mesh are manual; got ", spec.ToString(), " for ", path,
               ", but of the axes of ", mesh.ToString(), " only ", absl::StrJoin(manual, ", "),
               " are manual");
  }
}

void CheckSpecAxes(std::string_view which, const PartitionSpec& spec, const std::string& path,
                   const ir::AxisList& manual, const ir::Mesh& mesh, const Site& site) {
  CheckUnreduced(which, spec, path, manual, mesh, site);
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

// Returns specs from the arguments' types, restricted to the axes that become Manual. Within a dim,
// these axes must come before the others.
std::vector<PartitionSpec> InferredSpecs(const FlatArgs& args, const ir::AxisList& manual,
                                         const ir::Mesh& mesh, const Site& site) {
  for (const std::string& axis : manual) {
    if (mesh.TypeOf(axis) == AxisType::kExplicit) continue;
    ThrowError(ErrorKind::kTypeError, site,
               "shard_map in_specs argument must be a pytree of PartitionSpecs, but it was Infer, "
               "and axis '",
               axis, "' of ", mesh.ToString(), " is not Explicit. Give the in_specs");
  }
  const auto is_manual = [&](const std::string& axis) {
    return std::find(manual.begin(), manual.end(), axis) != manual.end();
  };
  std::vector<PartitionSpec> out;
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    PartitionSpec spec = ir::SpecOf(args.leaves[i].type());
    for (ir::AxisList& axes : spec.dims) {
      const ir::AxisList original = axes;
      const auto others = std::stable_partition(axes.begin(), axes.end(), is_manual);
      if (axes != original) {
        ThrowError(ErrorKind::kValueError, site,
                   "shard_map: Invalid spec: ", ir::SpecOf(args.leaves[i].type()).ToString(),
                   " of ", args.path(i),
                   ", in which an axis that becomes Manual comes after one that does not");
      }
      axes.erase(others, axes.end());
    }
    out.push_back(std::move(spec));
  }
  return out;
}

// Returns the type of one device's block of an argument: the shape divided by its spec, varying
// along the axes of the spec. Throws if the spec does not fit the type.
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

// Returns a result of f, cast to vary along the axes that its spec mentions.
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

std::vector<PartitionSpec> AxisSpecs(const Prefix<int>& axes, const Flat& flat,
                                     const std::string& axis_name, std::string_view what,
                                     const Site& site) {
  const std::vector<std::optional<int>> dims = BroadcastPrefix(axes, flat.tree, what, site);
  std::vector<PartitionSpec> specs(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!dims[i]) continue;
    const int rank = flat.leaves[i].rank();
    const int dim = *dims[i] < 0 ? *dims[i] + rank : *dims[i];
    if (dim < 0) {
      ThrowError(ErrorKind::kValueError, site, ToAbsl(what), ": axis ", *dims[i],
                 " is out of bounds for ", flat.leaves[i].type().ToString(), "; an axis from ",
                 -rank, " to ", rank - 1, " is expected");
    }
    specs[i].dims.resize(dim + 1);
    specs[i].dims[dim] = {axis_name};
  }
  return specs;
}

// If the program has no mesh yet, it is traced again with the mesh of the shard_map:
// RetraceWithMesh is caught by TraceProgram. The specs of the results are known only after f has
// run. Captures are whole on every device.
std::vector<Array> RunShardMap(const ShardMapFlat& call, const Site& site, FlatBody body,
                               absl::FunctionRef<std::vector<PartitionSpec>()> out_specs,
                               absl::FunctionRef<std::vector<std::string>()> out_paths) {
  // Outside a trace, the program that runs the shard_map gets its mesh.
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
    const ir::Scope inside = ir::ManualScope(outer, manual, call.check_vma);
    std::vector<Type> block_types;
    const std::vector<std::string> in_paths = call.args.paths();
    std::vector<PartitionSpec> in_specs =
        call.in_specs ? *call.in_specs : InferredSpecs(call.args, manual, outer.mesh, site);
    for (size_t i = 0; i < call.args.leaves.size(); ++i) {
      CheckSpecAxes("in_specs", in_specs[i], in_paths[i], manual, outer.mesh, site);
      block_types.push_back(
          BlockType(call.args.leaves[i], in_specs[i], in_paths[i], inside, manual, site));
    }
    std::vector<PartitionSpec> result_specs;
    const TracedFunction n =
        TraceFlat(inside, block_types, "shard_map", site, [&](const std::vector<Array>& in) {
          std::vector<Array> out = body(in);
          result_specs = out_specs();
          const std::vector<std::string> paths = out_paths();
          for (size_t r = 0; r < out.size(); ++r) {
            CheckSpecAxes("out_specs", result_specs[r], paths[r], manual, outer.mesh, site);
            out[r] = MatchOutSpec(out[r], result_specs[r], paths[r], inside, site);
          }
          return out;
        });
    in_specs.resize(in_specs.size() + n.captures.size());
    return Apply("shard_map", site, Concat(call.args.leaves, n.captures),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   return ir::ManualComputation(b, n.fn, in, in_specs, result_specs, manual,
                                                call.check_vma);
                 });
  });
}

}  // namespace tessera::internal
