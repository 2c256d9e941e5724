// The ops of lax.h. Each converts C++ numbers to the dtype of the arrays and emits one op of
// ir/ops.def, which checks the types; collectives first check that their axes are bound: Manual
// axes, or axis_names of a vmap.
#include "client/lax.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "client/apply/apply.h"
#include "client/apply/dot.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
#include "client/numpy.h"
#include "client/sharding.h"
#include "client/trace/trace.h"
#include "ir/ops.h"

namespace tessera::lax {
namespace {

using internal::Apply1;
using internal::ApplyArgs;
using internal::AsArray;
using internal::Operands;
using internal::ThrowError;
using Vs = std::vector<ir::Value>;

Array Unary(std::string_view name, const Arg& x, absl::FunctionRef<ir::Value(ir::Value)> op) {
  return ApplyArgs(name, {x}, Operands::kStrict, [&](ir::Builder&, Vs v) { return op(v[0]); });
}

Array Comparison(const Arg& x, const Arg& y, const char* name, const char* direction) {
  return ApplyArgs(name, {x, y}, Operands::kStrict,
                   [&](ir::Builder&, Vs v) { return ir::Compare(v[0], v[1], direction); });
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

}  // namespace

#define TESSERA_DEFINE_UNARY(name, Symbol)                                 \
  Array name(const Arg& x) {                                               \
    return ApplyArgs(#name, {x}, Operands::kStrict,                        \
                     [](ir::Builder&, Vs v) { return ir::Symbol(v[0]); }); \
  }
#define TESSERA_DEFINE_BINARY(name, Symbol)                                      \
  Array name(const Arg& x, const Arg& y) {                                       \
    return ApplyArgs(#name, {x, y}, Operands::kStrict,                           \
                     [](ir::Builder&, Vs v) { return ir::Symbol(v[0], v[1]); }); \
  }
TESSERA_LAX_UNARY(TESSERA_DEFINE_UNARY)
TESSERA_LAX_BINARY(TESSERA_DEFINE_BINARY)
#undef TESSERA_DEFINE_UNARY
#undef TESSERA_DEFINE_BINARY

Array eq(const Arg& x, const Arg& y) { return Comparison(x, y, "eq", "EQ"); }
Array ne(const Arg& x, const Arg& y) { return Comparison(x, y, "ne", "NE"); }
Array lt(const Arg& x, const Arg& y) { return Comparison(x, y, "lt", "LT"); }
Array le(const Arg& x, const Arg& y) { return Comparison(x, y, "le", "LE"); }
Array gt(const Arg& x, const Arg& y) { return Comparison(x, y, "gt", "GT"); }
Array ge(const Arg& x, const Arg& y) { return Comparison(x, y, "ge", "GE"); }

Array select(const Arg& pred, const Arg& on_true, const Arg& on_false) {
  const Array p = AsArray(pred, DType::kBool);
  return ApplyArgs("select_n", {on_true, on_false, Arg(p, pred.site)}, Operands::kStrict,
                   [](ir::Builder&, Vs v) { return ir::Select(v[2], v[0], v[1]); });
}
Array integer_pow(const Arg& x, int64_t y) {
  return ApplyArgs("integer_pow", {x}, Operands::kStrict,
                   [y](ir::Builder&, Vs v) { return ir::IntegerPow(v[0], y); });
}
Array clamp(const Arg& min, const Arg& x, const Arg& max) {
  const DType dtype = internal::CommonDType({x});
  const Array lo = AsArray(min, dtype), hi = AsArray(max, dtype);
  return ApplyArgs("clamp", {x, Arg(lo, x.site), Arg(hi, x.site)}, Operands::kStrict,
                   [](ir::Builder&, Vs v) { return ir::Clamp(v[1], v[0], v[2]); });
}
Array convert_element_type(const Arg& x, DType dtype) {
  return Unary("convert_element_type", x, [&](ir::Value v) { return ir::Convert(v, dtype); });
}
Array bitcast_convert_type(const Arg& x, DType dtype) {
  return Unary("bitcast_convert_type", x,
               [&](ir::Value v) { return ir::BitcastConvert(v, dtype); });
}
Array reduce_precision(const Arg& x, int exponent_bits, int mantissa_bits) {
  return Unary("reduce_precision", x,
               [&](ir::Value v) { return ir::ReducePrecision(v, exponent_bits, mantissa_bits); });
}

Array iota(DType dtype, Dims shape, int dimension, Site site) {
  return Apply1("iota", site, {},
                [&](ir::Builder& b, Vs) { return ir::Iota(b, dtype, shape, dimension); });
}
Array full(Dims shape, double value, DType dtype, Site site) {
  return Apply1("full", site, {},
                [&](ir::Builder& b, Vs) { return ir::Full(b, dtype, shape, value); });
}
Array full_like(const Arg& x, double value) {
  return Unary("full_like", x, [&](ir::Value v) { return ir::FullLike(v, value); });
}
Array broadcast_in_dim(const Arg& x, Dims shape, std::vector<int64_t> dims) {
  return Unary("broadcast_in_dim", x,
               [&](ir::Value v) { return ir::BroadcastInDim(v, shape, dims); });
}
Array reshape(const Arg& x, Dims shape, const OutSharding& out_sharding) {
  if (out_sharding && x.kind == Arg::kArray)
    return x.array->reshape(std::move(shape), out_sharding, x.site);
  return Unary("reshape", x, [&](ir::Value v) { return ir::Reshape(v, shape); });
}
Array transpose(const Arg& x, std::vector<int64_t> permutation) {
  return Unary("transpose", x, [&](ir::Value v) { return ir::Transpose(v, permutation); });
}
Array slice(const Arg& x, Dims start_indices, Dims limit_indices, Dims strides) {
  return Unary("slice", x,
               [&](ir::Value v) { return ir::Slice(v, start_indices, limit_indices, strides); });
}
Array concatenate(const std::vector<Array>& xs, int dimension, Site site) {
  internal::CheckVaryAlike("concatenate", xs, site);
  return Apply1("concatenate", site, xs,
                [&](ir::Builder&, Vs v) { return ir::Concatenate(v, dimension); });
}
Array pad(const Arg& x, const Arg& padding_value, std::vector<int64_t> low,
          std::vector<int64_t> high, std::vector<int64_t> interior) {
  const Array fill = AsArray(padding_value, internal::CommonDType({x}));
  return ApplyArgs("pad", {x, Arg(fill, x.site)}, Operands::kStrict,
                   [&](ir::Builder&, Vs v) { return ir::Pad(v[0], v[1], low, high, interior); });
}
Array rev(const Arg& x, std::vector<int64_t> dimensions) {
  return Unary("rev", x, [&](ir::Value v) { return ir::Reverse(v, dimensions); });
}

namespace {
std::vector<Arg> WithIndices(std::vector<Arg> first, const std::vector<Arg>& indices) {
  for (const Arg& i : indices) first.push_back(Arg(AsArray(i, DType::kS32), i.site));
  return first;
}
}  // namespace

Array dynamic_slice(const Arg& x, const std::vector<Arg>& starts, Dims slice_sizes) {
  return ApplyArgs("dynamic_slice", WithIndices({x}, starts), Operands::kStrict,
                   [&](ir::Builder&, Vs v) {
                     return ir::DynamicSlice(v[0], Vs(v.begin() + 1, v.end()), slice_sizes);
                   });
}
Array dynamic_update_slice(const Arg& x, const Arg& update, const std::vector<Arg>& starts) {
  return ApplyArgs("dynamic_update_slice", WithIndices({x, update}, starts), Operands::kStrict,
                   [&](ir::Builder&, Vs v) {
                     return ir::DynamicUpdateSlice(v[0], v[1], Vs(v.begin() + 2, v.end()));
                   });
}
Array dynamic_index_in_dim(const Arg& x, const Arg& index, int dim) {
  return ApplyArgs("dynamic_index_in_dim", WithIndices({x}, {index}), Operands::kStrict,
                   [&](ir::Builder&, Vs v) { return ir::DynamicIndexInDim(v[0], v[1], dim); });
}
Array dynamic_update_index_in_dim(const Arg& x, const Arg& row, const Arg& index, int dim) {
  return ApplyArgs(
      "dynamic_update_index_in_dim", WithIndices({x, row}, {index}), Operands::kStrict,
      [&](ir::Builder&, Vs v) { return ir::DynamicUpdateIndexInDim(v[0], v[1], v[2], dim); });
}

Array gather(const Arg& x, const Arg& start_indices, const GatherDimensionNumbers& dims,
             Dims slice_sizes, const GatherScatterOptions& options,
             std::optional<double> fill_value) {
  return ApplyArgs("gather", WithIndices({x}, {start_indices}), Operands::kStrict,
                   [&](ir::Builder&, Vs v) {
                     std::optional<ir::Array> fill;
                     if (fill_value) fill = ir::Array::Scalar(v[0].dtype(), *fill_value);
                     return ir::Gather(v[0], v[1], dims, slice_sizes, options, std::move(fill));
                   });
}
#define TESSERA_DEFINE_SCATTER(name, Symbol)                                              \
  Array name(const Arg& x, const Arg& indices, const Arg& updates,                        \
             const ScatterDimensionNumbers& dims, const GatherScatterOptions& options) {  \
    return ApplyArgs(                                                                     \
        #name, WithIndices({x, updates}, {indices}), Operands::kStrict,                   \
        [&](ir::Builder&, Vs v) { return ir::Symbol(v[0], v[2], v[1], dims, options); }); \
  }
TESSERA_DEFINE_SCATTER(scatter, Scatter)
TESSERA_DEFINE_SCATTER(scatter_add, ScatterAdd)
TESSERA_DEFINE_SCATTER(scatter_mul, ScatterMul)
TESSERA_DEFINE_SCATTER(scatter_min, ScatterMin)
TESSERA_DEFINE_SCATTER(scatter_max, ScatterMax)
#undef TESSERA_DEFINE_SCATTER

Array scatter_apply(const Arg& x, const Arg& indices, absl::FunctionRef<Array(const Array&)> func,
                    const ScatterDimensionNumbers& dims, Dims update_shape,
                    const GatherScatterOptions& options) {
  const Site site = internal::SiteOf({x, indices});
  return ApplyArgs(
      "scatter_apply", WithIndices({x}, {indices}), Operands::kStrict, [&](ir::Builder& b, Vs v) {
        const DType dtype = v[0].dtype();
        const ir::FunctionRef f = internal::TraceComputation(
            "scatter_apply", {dtype, dtype}, site,
            [&](const std::vector<Array>& in) { return std::vector<Array>{func(in[0])}; });
        const ir::Value unused = ir::Full(b, dtype, update_shape, 0);
        return ir::ScatterBy({v[0]}, v[1], {unused}, f, dims, options)[0];
      });
}

// Traces the computation on scalars and emits a reduce op with it. ir::Reduce turns computations
// that it knows, such as a sum, into the ops with derivatives.
std::vector<Array> reduce(
    const std::vector<Array>& operands, const std::vector<Arg>& init_values,
    absl::FunctionRef<std::vector<Array>(const std::vector<Array>&, const std::vector<Array>&)>
        computation,
    std::vector<int64_t> dimensions, Site site) {
  const size_t n = operands.size();
  if (init_values.size() != n) {
    ThrowError(ErrorKind::kValueError, site,
               "reduce: Must have same total number of operands as init_values: ", n, " vs. ",
               init_values.size());
  }
  std::vector<Array> inputs = operands;
  std::vector<DType> dtypes;
  for (size_t k = 0; k < n; ++k) {
    internal::ThrowIfNoValue(operands[k], site);
    dtypes.push_back(operands[k].dtype());
    inputs.push_back(AsArray(init_values[k], dtypes[k]));
  }
  std::vector<DType> params = dtypes;
  params.insert(params.end(), dtypes.begin(), dtypes.end());
  internal::CheckVaryAlike("reduce", operands, site);
  return internal::Apply("reduce", site, inputs, [&](ir::Builder&, Vs v) {
    const ir::FunctionRef f =
        internal::TraceComputation("reduce", params, site, [&](const std::vector<Array>& in) {
          return computation({in.begin(), in.begin() + n}, {in.begin() + n, in.end()});
        });
    return ir::Reduce(Vs(v.begin(), v.begin() + n), Vs(v.begin() + n, v.end()), f, dimensions);
  });
}
Array reduce(const Array& operand, const Arg& init_value,
             absl::FunctionRef<Array(const Array&, const Array&)> computation,
             std::vector<int64_t> dimensions, Site site) {
  using Arrays = std::vector<Array>;
  const auto of_one = [&](const Arrays& x, const Arrays& y) {
    return Arrays{computation(x[0], y[0])};
  };
  return reduce(Arrays{operand}, std::vector<Arg>{init_value}, of_one, std::move(dimensions),
                site)[0];
}

#define TESSERA_DEFINE_REDUCE(name, Symbol)                                              \
  Array name(const Arg& x, std::vector<int64_t> axes, const OutSharding& out_sharding) { \
    return Unary(#name, x, [&](ir::Value v) {                                            \
      return internal::Resharded(#name, ir::Symbol(v, axes), out_sharding, x.site);      \
    });                                                                                  \
  }
TESSERA_DEFINE_REDUCE(reduce_sum, ReduceSum)
TESSERA_DEFINE_REDUCE(reduce_prod, ReduceProd)
TESSERA_DEFINE_REDUCE(reduce_max, ReduceMax)
TESSERA_DEFINE_REDUCE(reduce_min, ReduceMin)
TESSERA_DEFINE_REDUCE(reduce_and, ReduceAnd)
TESSERA_DEFINE_REDUCE(reduce_or, ReduceOr)
#undef TESSERA_DEFINE_REDUCE

#define TESSERA_DEFINE_CUMULATIVE(name, Symbol)                                        \
  Array name(const Arg& x, int axis, bool reverse) {                                   \
    return Unary(#name, x, [&](ir::Value v) { return ir::Symbol(v, axis, reverse); }); \
  }
TESSERA_DEFINE_CUMULATIVE(cumsum, Cumsum)
TESSERA_DEFINE_CUMULATIVE(cumprod, Cumprod)
TESSERA_DEFINE_CUMULATIVE(cummax, Cummax)
TESSERA_DEFINE_CUMULATIVE(cummin, Cummin)
TESSERA_DEFINE_CUMULATIVE(cumlogsumexp, Cumlogsumexp)
#undef TESSERA_DEFINE_CUMULATIVE

std::vector<Array> sort(const std::vector<Array>& operands, int dimension, bool is_stable,
                        int num_keys, Site site) {
  internal::CheckVaryAlike("sort", operands, site);
  return internal::Apply("sort", site, operands, [&](ir::Builder&, Vs v) {
    const int dim = dimension < 0 && !v.empty() ? dimension + v[0].rank() : dimension;
    return ir::Sort(std::move(v), dim, is_stable, num_keys);
  });
}
Array sort(const Array& operand, int dimension, bool is_stable, Site site) {
  return sort(std::vector<Array>{operand}, dimension, is_stable, 1, site)[0];
}
std::vector<Array> sort_by(
    const std::vector<Array>& operands,
    absl::FunctionRef<Array(const std::vector<Array>&, const std::vector<Array>&)> comparator,
    int dimension, Site site) {
  std::vector<DType> params;
  for (const Array& x : operands) {
    internal::ThrowIfNoValue(x, site);
    params.insert(params.end(), 2, x.dtype());
  }
  internal::CheckVaryAlike("sort", operands, site);
  return internal::Apply("sort", site, operands, [&](ir::Builder&, Vs v) {
    const int dim = dimension < 0 && !v.empty() ? dimension + v[0].rank() : dimension;
    const ir::FunctionRef f =
        internal::TraceComputation("sort", params, site, [&](const std::vector<Array>& in) {
          std::vector<Array> left, right;
          for (size_t i = 0; i < in.size(); ++i) (i % 2 == 0 ? left : right).push_back(in[i]);
          return std::vector<Array>{comparator(left, right)};
        });
    return ir::SortBy(std::move(v), f, dim);
  });
}
Array sort_by(const Array& operand, absl::FunctionRef<Array(const Array&, const Array&)> comparator,
              int dimension, Site site) {
  using Arrays = std::vector<Array>;
  const auto of_one = [&](const Arrays& x, const Arrays& y) { return comparator(x[0], y[0]); };
  return sort_by(Arrays{operand}, of_one, dimension, site)[0];
}
std::pair<Array, Array> top_k(const Array& operand, int64_t k, int axis, Site site) {
  const std::vector<Array> best =
      internal::Apply("top_k", site, {operand}, [&](ir::Builder&, Vs v) {
        const auto [values, indices] = ir::TopK(v[0], k, axis < 0 ? axis + v[0].rank() : axis);
        return Vs{values, indices};
      });
  return {best[0], best[1]};
}

Array argmax(const Arg& x, int axis, DType index_dtype) {
  return Unary("argmax", x, [&](ir::Value v) { return ir::ArgMax(v, axis, index_dtype); });
}
Array argmin(const Arg& x, int axis, DType index_dtype) {
  return Unary("argmin", x, [&](ir::Value v) { return ir::ArgMin(v, axis, index_dtype); });
}

Array dot_general(const Arg& lhs, const Arg& rhs, const DotDimensions& dims,
                  const PartitionSpec* out_sharding) {
  DotOptions options;
  options.out_sharding = out_sharding;
  return dot_general(lhs, rhs, dims, options);
}
Array dot_general(const Arg& lhs, const Arg& rhs, const DotDimensions& dims,
                  const DotOptions& options) {
  return ApplyArgs("dot_general", {lhs, rhs}, Operands::kStrict, [&](ir::Builder&, Vs v) {
    if (options.precision.algorithm == DotAlgorithmPreset::kDEFAULT)
      internal::CheckPreferred("dot_general", v[0].dtype(), options.preferred_element_type);
    return internal::DotBy(v[0], v[1],
                           {dims.lhs_batch, dims.rhs_batch, dims.lhs_contract, dims.rhs_contract},
                           options.out_sharding, options.preferred_element_type, options.precision,
                           internal::SiteOf({lhs, rhs}));
  });
}
Array with_sharding_constraint(const Arg& x, const PartitionSpec& spec) {
  return Unary("sharding_constraint", x,
               [&](ir::Value v) { return ir::ShardingConstraint(v, spec); });
}
std::vector<Array> optimization_barrier(const std::vector<Array>& xs, Site site) {
  return internal::Apply("optimization_barrier", site, xs,
                         [&](ir::Builder& b, Vs v) { return ir::OptimizationBarrier(b, v); });
}

namespace {

// Returns on each device the values of all devices of its group, along a new first dim.
Array GatheredInGroups(const char* name, const Arg& x, const AxisNames& axes,
                       const AxisIndexGroups& groups) {
  RequireBound(name, axes, x.site);
  const ir::Scope scope = internal::CurrentScope();
  const bool mapped = std::any_of(axes.names.begin(), axes.names.end(),
                                  [&](const auto& axis) { return !scope.mesh.Has(axis); });
  if (mapped || scope.check_vma) {
    ThrowError(ErrorKind::kNotImplemented, x.site, name, ": axis_index_groups are not implemented ",
               mapped ? "for the axis of a vmap"
                      : "where it is checked what varies; pass check_vma = false to shard_map");
  }
  const int64_t n = scope.SizeOf(axes.names);
  const size_t size = groups[0].size();
  std::vector<double> members(n * size, -1);  // for each device, the members of its group
  int64_t found = 0;
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
      ++found;
    }
  }
  if (found != n) {
    ThrowError(ErrorKind::kValueError, x.site, name,
               ": axis_index_groups must cover all indices exactly once; they have ", found,
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
