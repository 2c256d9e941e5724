// reshard, and the checks of specs for Explicit axes that all ops with an out_sharding make. The
// scope of the function that is being recorded says which axes are Explicit.
#include "client/apply/reshard.h"

#include <algorithm>
#include <string>
#include <vector>

#include "client/apply/operand.h"
#include "client/error.h"
#include "client/sharding.h"
#include "client/trace/trace.h"
#include "ir/ops.h"

namespace tessera {
namespace internal {
namespace {

// Throws VALUE_ERROR unless the spec can be used on the mesh in context: each axis is Explicit and
// occurs once. The spec is checked before an op is emitted, so that the error names that op.
void CheckExplicit(std::string_view op, const PartitionSpec& spec, const Site& site) {
  const ir::Mesh& mesh = CurrentScope().mesh;
  if (mesh.empty()) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(op),
               ": Using PartitionSpec when you are not under a mesh context is not allowed. Use "
               "set_mesh, or an array that lies on a mesh. Got ",
               spec.ToString());
  }
  ir::AxisSet seen;
  std::vector<ir::AxisList> lists = spec.dims;
  lists.push_back(spec.unreduced);
  lists.push_back(spec.reduced);
  for (const ir::AxisList& axes : lists) {
    for (const std::string& axis : axes) {
      if (!seen.insert(axis).second) {
        ThrowError(ErrorKind::kValueError, site, ToAbsl(op), ": the sharding ", spec.ToString(),
                   " has duplicate entries for axis '", axis, "'");
      }
      if (!mesh.Has(axis)) {
        ThrowError(ErrorKind::kValueError, site, ToAbsl(op), ": Resource axis: ", axis, " of ",
                   spec.ToString(), " is not found in mesh: ", mesh.ToString());
      }
      if (mesh.TypeOf(axis) == AxisType::kExplicit) continue;
      ThrowError(ErrorKind::kValueError, site, "PartitionSpec passed to ", ToAbsl(op),
                 " cannot contain axis names that are of type Auto or Manual. Got PartitionSpec: ",
                 spec.ToString(), " with axis name: ", axis,
                 " of type: ", ToAbsl(ir::AxisTypeName(mesh.TypeOf(axis))));
    }
  }
}

}  // namespace

PartitionSpec FitToRank(std::string_view op, const PartitionSpec& spec, int rank,
                        const Site& site) {
  CheckExplicit(op, spec, site);
  PartitionSpec fitted = spec;
  while (static_cast<int>(fitted.dims.size()) > rank && fitted.dims.back().empty())
    fitted.dims.pop_back();
  if (static_cast<int>(fitted.dims.size()) > rank) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(op), ": Length of sharding.spec (",
               fitted.dims.size(), ") must be equal to aval's ndim (", rank, "), got ",
               spec.ToString());
  }
  fitted.dims.resize(rank);
  std::sort(fitted.unreduced.begin(), fitted.unreduced.end());
  std::sort(fitted.reduced.begin(), fitted.reduced.end());
  return fitted;
}

ir::Value Resharded(std::string_view op, ir::Value x, const OutSharding& to, const Site& site) {
  if (!to) return x;
  const PartitionSpec spec = FitToRank(op, *to, x.rank(), site);
  return ir::Reshard(x, spec.dims, {spec.unreduced.begin(), spec.unreduced.end()},
                     {spec.reduced.begin(), spec.reduced.end()});
}

}  // namespace internal

Array reshard(const Arg& x, const PartitionSpec& spec) {
  return internal::ApplyArgs("reshard", {x}, internal::Operands::kStrict,
                             [&](ir::Builder&, std::vector<ir::Value> v) {
                               return internal::Resharded("reshard", v[0], spec, x.site);
                             });
}

}  // namespace tessera
