#include "client/vmap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/operand.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

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

// Mapped dims are sharded alike, on axes that nothing else that is used inside is sharded on: these
// axes are not in the types there.
void CheckMappedShardings(const std::vector<Array>& args, const std::vector<int>& dims,
                          const std::vector<std::string>& paths, const Site& site) {
  std::optional<size_t> first;
  for (size_t i = 0; i < args.size(); ++i) {
    if (dims[i] < 0) continue;
    if (!first) first = i;
    const Type &want = args[*first].type(), &type = args[i].type();
    if (type.axes_of(dims[i]) == want.axes_of(dims[*first])) continue;
    ThrowError(ErrorKind::kValueError, site,
               "Mapped away dimension of inputs passed to vmap should be sharded the same: ",
               paths[*first], " is ", want.ToString(), " and is mapped along axis ", dims[*first],
               ", ", paths[i], " is ", type.ToString(), " and is mapped along axis ", dims[i],
               "; reshard one");
  }
  if (!first) return;
  const ir::AxisList mapped = args[*first].type().axes_of(dims[*first]);
  for (size_t i = 0; i < args.size(); ++i) {
    if (dims[i] >= 0) continue;
    for (const ir::AxisList& axes : args[i].type().sharding) {
      for (const std::string& axis : axes) {
        if (std::find(mapped.begin(), mapped.end(), axis) == mapped.end()) continue;
        ThrowError(ErrorKind::kValueError, site,
                   "Unmapped values passed to vmap cannot be sharded along the mesh axis you are "
                   "vmapping over: ",
                   paths[i], " is ", args[i].type().ToString(), ", and '", axis,
                   "' shards the mapped dims; reshard it");
      }
    }
  }
}

}  // namespace

std::vector<Array> RunVmap(const VmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims) {
  std::vector<int> dims;
  const int64_t size = BatchSize(call, site, &dims);
  CheckMappedShardings(call.args.leaves, dims, call.args.paths(), site);
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
    const auto mapped = std::find_if(dims.begin(), dims.end(), [](int d) { return d >= 0; });
    const ir::AxisList axes = mapped == dims.end()
                                  ? ir::AxisList{}
                                  : call.args.leaves[mapped - dims.begin()].type().axes_of(*mapped);
    const ir::FunctionRef batched =
        OrThrow(ir::Batch(*n.fn, param_dims, size, result_dims, axes), site).fn;
    const std::vector<Array> in = Concat(call.args.leaves, n.captures);
    return CallFunction(batched, in, "vmap", site);
  });
}

}  // namespace tessera::internal
