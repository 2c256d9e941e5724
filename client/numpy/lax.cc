// The ops of lax.h, except for windows (windows.cc), collectives (collectives.cc) and special
// functions (client/lib/special.cc). Each converts C++ numbers to the dtype of the arrays and emits
// one op of ir/ops.def, which checks the types.
#include "client/lax.h"

#include <algorithm>
#include <utility>

#include "client/apply/apply.h"
#include "client/apply/dot.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
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
      internal::CheckPreferredElementType("dot_general", v[0].dtype(),
                                          options.preferred_element_type);
    return internal::DotWithPrecision(
        v[0], v[1], {dims.lhs_batch, dims.rhs_batch, dims.lhs_contract, dims.rhs_contract},
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

}  // namespace tessera::lax
