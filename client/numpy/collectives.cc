// The collectives of lax.h and the casts between states along Manual axes. Each first checks that
// its axes are bound: Manual axes, or axis_names of a vmap.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_join.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/lax.h"
#include "client/numpy.h"
#include "client/sharding.h"
#include "client/trace/trace.h"
#include "ir/ops.h"

namespace tessera::lax {
namespace {

using internal::Apply1;
using internal::ApplyArgs;
using internal::Operands;
using internal::ThrowError;
using Vs = std::vector<ir::Value>;

Array Unary(std::string_view name, const Arg& x, absl::FunctionRef<ir::Value(ir::Value)> op) {
  return ApplyArgs(name, {x}, Operands::kStrict, [&](ir::Builder&, Vs v) { return op(v[0]); });
}

// Throws JAX's error if one of the axes is not bound in the current scope.
void RequireBound(std::string_view op, const AxisNames& axes, const Site& site) {
  const ir::Scope scope = internal::CurrentScope();
  for (const std::string& axis : axes.names) {
    if (!scope.IsBound(axis)) {
      ThrowError(ErrorKind::kNameError, site, "Found an unbound axis name: ", axis,
                 ". To fix this, please call ", ToAbsl(op),
                 " under shard_map, or under a vmap or pmap with this axis_name");
    }
  }
}

// Under auto_pcast(false), throws unless `x` varies over the axes, or is unreduced or reduced
// there.
void CheckVaries(std::string_view name, const Array& x, const AxisNames& axes, const Site& site) {
  const ir::Scope scope = internal::CurrentScope();
  if (is_auto_pcast() || !scope.check_vma) return;
  const ir::AxisSet non_invarying = x.type().NonInvaryingAxes();
  for (const std::string& axis : axes.names) {
    if (!scope.mesh.Has(axis) || non_invarying.contains(axis)) continue;
    const bool is_sum = name == "psum" || name == "pmax" || name == "pmin" || name == "pmean";
    ThrowError(ErrorKind::kValueError, site, is_sum ? "" : "Collective ", ToAbsl(name),
               is_sum ? " is a variant->invariant collective: it" : "",
               " must be applied to a device-varying type, but got ", x.type().ToString(),
               " over axes (", absl::StrJoin(axes.names, ","),
               "); apply pcast(..., to='varying') first, because auto_pcast(false) is set");
  }
}

Array Collective(const char* name, const Arg& x, const AxisNames& axes,
                 absl::FunctionRef<ir::Value(ir::Value)> op) {
  RequireBound(name, axes, x.site);
  if (x.kind == Arg::kArray) CheckVaries(name, *x.array, axes, x.site);
  return Unary(name, x, op);
}

// Returns on each device the values of all devices of its group, along a new first dim.
Array GatheredInGroups(const char* name, const Arg& x, const AxisNames& axes,
                       const AxisIndexGroups& groups) {
  RequireBound(name, axes, x.site);
  const ir::Scope scope = internal::CurrentScope();
  const bool mapped = std::any_of(axes.names.begin(), axes.names.end(),
                                  [&](const auto& axis) { return !scope.mesh.Has(axis); });
  if (mapped || scope.check_vma) {
    ThrowError(ErrorKind::kNotImplemented, x.site, name, ": axis_index_groups are not implemented ",
               mapped
                   ? "for the axis of a vmap"
                   : "in a shard_map that checks which values vary; pass check_vma = false to it");
  }
  const int64_t n = scope.SizeOf(axes.names);
  const size_t size = groups[0].size();
  std::vector<double> members(n * size, -1);  // for each device, the members of its group
  int64_t num_members = 0;
  for (const std::vector<int64_t>& group : groups) {
    if (group.size() != size) {
      ThrowError(ErrorKind::kValueError, x.site, name,
                 ": axis_index_groups must all be the same size, but there are groups of ", size,
                 " and of ", group.size());
    }
    for (const int64_t i : group) {
      if (i < 0 || i >= n || members[i * size] >= 0) {
        ThrowError(ErrorKind::kValueError, x.site, name,
                   ": axis_index_groups must cover all indices exactly once; ", i,
                   i < 0 || i >= n ? " is not one of the " : " occurs twice among the ", n,
                   " indices along the axes");
      }
      std::copy(group.begin(), group.end(), members.begin() + i * static_cast<int64_t>(size));
      ++num_members;
    }
  }
  if (num_members != n) {
    ThrowError(ErrorKind::kValueError, x.site, name,
               ": axis_index_groups must cover all indices exactly once; they have ", num_members,
               " of the ", n, " indices along the axes");
  }
  const Array table = Apply1("constant", x.site, {}, [&](ir::Builder& b, Vs) {
    return ir::Constant(b, ir::Array::Of(DType::kS32, {n, static_cast<int64_t>(size)}, members));
  });
  const Array group = take(table, Arg(axis_index(axes, x.site), x.site), 0);
  return take(Arg(all_gather(x, axes), x.site), Arg(group, x.site), 0);
}

}  // namespace

Array psum(const Arg& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  if (groups.empty())
    return Collective("psum", x, axes, [&](ir::Value v) { return ir::Psum(v, axes.names); });
  const Array all = GatheredInGroups("psum", x, axes, groups);
  return reduce_sum(all.dtype() == DType::kBool ? all.astype(DType::kS32, x.site) : all, {0});
}
Array pmax(const Arg& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  if (!groups.empty()) return reduce_max(GatheredInGroups("pmax", x, axes, groups), {0});
  return Collective("pmax", x, axes, [&](ir::Value v) { return ir::Pmax(v, axes.names); });
}
Array pmin(const Arg& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  if (!groups.empty()) return reduce_min(GatheredInGroups("pmin", x, axes, groups), {0});
  return Collective("pmin", x, axes, [&](ir::Value v) { return ir::Pmin(v, axes.names); });
}
Array pmean(const Arg& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  if (!groups.empty()) return mean(GatheredInGroups("pmean", x, axes, groups), 0);
  return Collective("pmean", x, axes, [&](ir::Value v) {
    const double n = static_cast<double>(v.builder().scope().SizeOf(axes.names));
    if (!ir::IsInexact(v.dtype())) v = ir::Convert(v, DType::kF32);
    const ir::Value sum = ir::Psum(v, axes.names);
    return sum / ir::FullLike(sum, n);
  });
}
Array all_gather(const Arg& x, const AxisNames& axes, int axis, bool tiled, std::string_view to) {
  if (to != "varying" && to != "invarying" && to != "reduced") {
    ThrowError(ErrorKind::kValueError, x.site, "all_gather: to='", ToAbsl(to),
               "' is not one of 'varying', 'invarying', 'reduced'");
  }
  const auto gather = [&](ir::Value v) { return ir::AllGather(v, axes.names, axis, tiled, to); };
  if (to == "varying") return Collective("all_gather", x, axes, gather);
  RequireBound("all_gather", axes, x.site);
  return Unary("all_gather", x, gather);
}
Array psum_scatter(const Arg& x, const AxisNames& axes, int scatter_dimension, bool tiled) {
  return Collective("psum_scatter", x, axes, [&](ir::Value v) {
    return ir::PsumScatter(v, axes.names, scatter_dimension, tiled);
  });
}
Array ppermute(const Arg& x, const AxisNames& axes, std::vector<std::pair<int64_t, int64_t>> perm) {
  return Collective("ppermute", x, axes,
                    [&](ir::Value v) { return ir::Ppermute(v, axes.names, perm); });
}
Array pshuffle(const Arg& x, const AxisNames& axes, const std::vector<int64_t>& perm) {
  const auto n = static_cast<int64_t>(perm.size());
  std::vector<std::pair<int64_t, int64_t>> pairs;
  std::set<int64_t> sources;
  for (int64_t i = 0; i < n; ++i) {
    if (perm[i] < 0 || perm[i] >= n || !sources.insert(perm[i]).second) {
      ThrowError(ErrorKind::kValueError, x.site,
                 "pshuffle: `perm` does not represent a permutation: [", absl::StrJoin(perm, ", "),
                 "]");
    }
    pairs.emplace_back(perm[i], i);
  }
  return ppermute(x, axes, std::move(pairs));
}
Array pbroadcast(const Arg& x, const AxisNames& axes, int64_t source) {
  RequireBound("pbroadcast", axes, x.site);
  const int64_t n = internal::CurrentScope().SizeOf(axes.names);
  if (source < 0 || source >= n) {
    ThrowError(ErrorKind::kValueError, x.site, "pbroadcast: source ", source, " is not one of the ",
               n, " indices along (", absl::StrJoin(axes.names, ","), ")");
  }
  return Collective("pbroadcast", x, axes, [&](ir::Value v) {
    const ir::Value all = ir::AllGather(v, axes.names, 0, /*tiled=*/false, "varying");
    return ir::Squeeze(ir::SliceInDim(all, 0, source, source + 1), {0});
  });
}
Array all_to_all(const Arg& x, const AxisNames& axes, int split_axis, int concat_axis, bool tiled) {
  return Collective("all_to_all", x, axes, [&](ir::Value v) {
    return ir::AllToAll(v, axes.names, split_axis, concat_axis, tiled);
  });
}
Array pswapaxes(const Arg& x, const AxisNames& axes, int axis) {
  return all_to_all(x, axes, axis, axis);
}
Array axis_index(const AxisNames& axes, Site site) {
  RequireBound("axis_index", axes, site);
  return Apply1("axis_index", site, {},
                [&](ir::Builder& b, Vs) { return ir::AxisIndex(b, axes.names); });
}
int64_t axis_size(const AxisNames& axes, Site site) {
  RequireBound("axis_size", axes, site);
  return internal::CurrentScope().SizeOf(axes.names);
}

// Looks up the state of the operand along the axes (varying, invarying, reduced or unreduced),
// which must be the same along all of them, and emits JAX's cast from this state to `to`. The error
// texts are JAX's. Without check_vma types have no states, so there is nothing to cast.
Array pcast(const Arg& x, const AxisNames& axes, std::string_view to) {
  const ir::Scope scope = internal::CurrentScope();
  if (scope.mesh.AxesOfType(AxisType::kManual).empty()) {
    ThrowError(ErrorKind::kValueError, x.site, "pcast: pvary should be called under shard_map");
  }
  RequireBound("pcast", axes, x.site);
  if (!scope.check_vma) return Unary("pcast", x, [](ir::Value v) { return v; });
  if (to != "varying" && to != "unreduced" && to != "reduced") {
    ThrowError(ErrorKind::kValueError, x.site, "pcast: Got unexpected `to` value '", ToAbsl(to),
               "'. Allowed `to` values are: 'varying', 'unreduced', 'reduced'");
  }
  return Unary("pcast", x, [&](ir::Value v) {
    const ir::AxisSet non_invarying = v.type().NonInvaryingAxes();
    const size_t num_non_invarying =
        std::count_if(axes.names.begin(), axes.names.end(),
                      [&](const std::string& axis) { return non_invarying.contains(axis); });
    if (num_non_invarying > 0 && num_non_invarying < axes.names.size()) {
      ThrowError(ErrorKind::kValueError, x.site,
                 "pcast can only accept axis_name which corresponds to one of varying, unreduced, "
                 "reduced or invarying state of the input; it got ",
                 v.type().ToString(), " over axes (", absl::StrJoin(axes.names, ","),
                 "), which is invarying over only some of these axes: name only those");
    }
    const ir::AxisSet set(axes.names.begin(), axes.names.end());
    if (set.empty()) return v;
    const auto is_all = [&](const ir::AxisSet& state) {
      return std::all_of(set.begin(), set.end(),
                         [&](const std::string& axis) { return state.contains(axis); });
    };
    const Type& t = v.type();
    const std::string_view from = num_non_invarying == 0 ? "invarying"
                                  : is_all(t.varying)    ? "varying"
                                  : is_all(t.unreduced)  ? "unreduced"
                                  : is_all(t.reduced)    ? "reduced"
                                                         : "";
    if (from == "invarying" && to == "varying") return ir::Pvary(v, set);
    if (from == "invarying" && to == "reduced") return ir::Preduced(v, set);
    if (from == "varying" && to == "unreduced") return ir::VaryUnreducedCast(v, set);
    if (from == "reduced" && to == "varying") return ir::ReducedVaryCast(v, set);
    if (from.empty()) {
      ThrowError(ErrorKind::kValueError, x.site,
                 "pcast can only accept axis_name which corresponds to one of varying, unreduced, "
                 "reduced or invarying state of the input; it got ",
                 t.ToString(), " over axes (", absl::StrJoin(axes.names, ","), ")");
    }
    ThrowError(ErrorKind::kValueError, x.site, "Unsupported pcast from=", ToAbsl(from), ", to='",
               ToAbsl(to), "' over axes (", absl::StrJoin(axes.names, ","), ") of a value of type ",
               t.ToString());
  });
}
Array pvary(const Arg& x, const AxisNames& axes) { return pcast(x, axes); }

}  // namespace tessera::lax
