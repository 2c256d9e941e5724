// The ops of jax.lax, with their names. Shapes and dtypes of arrays must agree; C++ numbers adapt.
// Collectives must be called under shard_map, pmap or a vmap with an axis_name.
//
// Ops whose names are C++ keywords have the prefix `bitwise_`: bitwise_and for `and`.
// client/numpy.h has functions with numpy's broadcasting. All throw tessera::Error.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/array.h"
#include "client/mesh.h"
#include "client/precision.h"
#include "client/tree.h"
#include "ir/gather_scatter.h"

namespace tessera::lax {

// clang-format off
#define TESSERA_LAX_UNARY(X)                                                                   \
  X(abs, Abs) X(neg, Neg) X(sign, Sign) X(exp, Exp) X(expm1, Expm1) X(log, Log)                \
  X(log1p, Log1p) X(logistic, Logistic) X(tanh, Tanh) X(sin, Sin) X(cos, Cos) X(tan, Tan)      \
  X(sqrt, Sqrt) X(rsqrt, Rsqrt) X(cbrt, Cbrt) X(erf, Erf) X(erf_inv, ErfInv) X(ceil, Ceil)     \
  X(floor, Floor) X(round, RoundNearestAfz) X(round_even, RoundNearestEven)                    \
  X(bitwise_not, Not) X(population_count, PopulationCount) X(clz, Clz)                         \
  X(is_finite, IsFinite) X(square, Square) X(stop_gradient, StopGradient) X(exp2, Exp2)        \
  X(asin, Asin) X(acos, Acos) X(atan, Atan) X(sinh, Sinh) X(cosh, Cosh) X(asinh, Asinh)        \
  X(acosh, Acosh) X(atanh, Atanh) X(erfc, Erfc) X(lgamma, Lgamma) X(digamma, Digamma)    \
  X(real, Real) X(imag, Imag) X(conj, Conj)
#define TESSERA_LAX_BINARY(X)                                                                  \
  X(add, Add) X(sub, Sub) X(mul, Mul) X(div, Div) X(rem, Rem) X(pow, Pow) X(max, Max)          \
  X(min, Min) X(atan2, Atan2) X(bitwise_and, And) X(bitwise_or, Or) X(bitwise_xor, Xor)        \
  X(shift_left, ShiftLeft) X(shift_right_arithmetic, ShiftRightArithmetic)                     \
  X(shift_right_logical, ShiftRightLogical) X(nextafter, Nextafter) X(complex, Complex)
// clang-format on

#define TESSERA_DECLARE_UNARY(name, Symbol) Array name(const Arg& x);
#define TESSERA_DECLARE_BINARY(name, Symbol) Array name(const Arg& x, const Arg& y);
TESSERA_LAX_UNARY(TESSERA_DECLARE_UNARY)
TESSERA_LAX_BINARY(TESSERA_DECLARE_BINARY)
#undef TESSERA_DECLARE_UNARY
#undef TESSERA_DECLARE_BINARY

// Special functions. client/special.h has more of them, with numpy's rules. The derivatives are
// JAX's: igamma and igammac have derivatives by both operands, polygamma and betainc by x only.
// zeta and igamma_grad_a have none; nor has random_gamma_grad, which is the derivative of a sample
// x of Gamma(a, 1) by a.
Array bessel_i0e(const Arg& x);
Array bessel_i1e(const Arg& x);
Array polygamma(const Arg& m, const Arg& x);
Array zeta(const Arg& x, const Arg& q);
Array igamma(const Arg& a, const Arg& x);
Array igammac(const Arg& a, const Arg& x);
Array igamma_grad_a(const Arg& a, const Arg& x);
Array random_gamma_grad(const Arg& a, const Arg& x);
Array betainc(const Arg& a, const Arg& b, const Arg& x);

Array eq(const Arg& x, const Arg& y);
Array ne(const Arg& x, const Arg& y);
Array lt(const Arg& x, const Arg& y);
Array le(const Arg& x, const Arg& y);
Array gt(const Arg& x, const Arg& y);
Array ge(const Arg& x, const Arg& y);
// Returns the elements of `on_true` where `pred` is true, else those of `on_false`.
Array select(const Arg& pred, const Arg& on_true, const Arg& on_false);
Array integer_pow(const Arg& x, int64_t y);
Array clamp(const Arg& min, const Arg& x, const Arg& max);
Array convert_element_type(const Arg& x, DType dtype);
// Returns the same bits as another dtype. If `dtype` has fewer bits, each element becomes several
// along a new last dim, the lowest bits first. If it has more, the last dim becomes one element.
Array bitcast_convert_type(const Arg& x, DType dtype);
Array reduce_precision(const Arg& x, int exponent_bits, int mantissa_bits);

Array iota(DType dtype, Dims shape, int dimension, Site site = Site::Here());
Array full(Dims shape, double value, DType dtype, Site site = Site::Here());
Array full_like(const Arg& x, double value);
Array broadcast_in_dim(const Arg& x, Dims shape, std::vector<int64_t> broadcast_dimensions);
Array reshape(const Arg& x, Dims shape, const OutSharding& out_sharding = {});
Array transpose(const Arg& x, std::vector<int64_t> permutation);
Array slice(const Arg& x, Dims start_indices, Dims limit_indices, Dims strides = {});
Array concatenate(const std::vector<Array>& xs, int dimension, Site site = Site::Here());
Array pad(const Arg& x, const Arg& padding_value, std::vector<int64_t> low,
          std::vector<int64_t> high, std::vector<int64_t> interior = {});
Array rev(const Arg& x, std::vector<int64_t> dimensions);
// Starts are clamped so that the slice is within bounds.
Array dynamic_slice(const Arg& x, const std::vector<Arg>& starts, Dims slice_sizes);
Array dynamic_update_slice(const Arg& x, const Arg& update, const std::vector<Arg>& starts);
Array dynamic_index_in_dim(const Arg& x, const Arg& index, int dim = 0);
Array dynamic_update_index_in_dim(const Arg& x, const Arg& row, const Arg& index, int dim = 0);

// gather returns the windows of x at the positions that the index vectors name. The scatters return
// x with windows of updates written there, or combined with the old elements. If several updates of
// `scatter` write one element, the last one stays, in row-major order of the index vectors. In the
// mode kFillOrDrop a window of gather that is out of bounds reads as `fill_value`. The default of
// fill_value is NaN, the lowest signed or the highest unsigned number, or true.
using ir::GatherDimensionNumbers;
using ir::GatherScatterMode;
using ir::GatherScatterOptions;
using ir::ScatterDimensionNumbers;
Array gather(const Arg& x, const Arg& start_indices,
             const GatherDimensionNumbers& dimension_numbers, Dims slice_sizes,
             const GatherScatterOptions& options = {},
             std::optional<double> fill_value = std::nullopt);
Array scatter(const Arg& x, const Arg& indices, const Arg& updates,
              const ScatterDimensionNumbers& dimension_numbers,
              const GatherScatterOptions& options = {});
Array scatter_add(const Arg& x, const Arg& indices, const Arg& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  const GatherScatterOptions& options = {});
Array scatter_mul(const Arg& x, const Arg& indices, const Arg& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  const GatherScatterOptions& options = {});
Array scatter_min(const Arg& x, const Arg& indices, const Arg& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  const GatherScatterOptions& options = {});
Array scatter_max(const Arg& x, const Arg& indices, const Arg& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  const GatherScatterOptions& options = {});
// Replaces the elements in the windows by `func` of each, once for every index vector that names
// the element. `func` takes and returns a scalar, and must not use an array from outside.
Array scatter_apply(const Arg& x, const Arg& indices, absl::FunctionRef<Array(const Array&)> func,
                    const ScatterDimensionNumbers& dimension_numbers, Dims update_shape,
                    const GatherScatterOptions& options = {});

// Combines arrays of one shape over `dimensions`. `computation` takes one element of each array,
// and another element of each, and returns one element for each array. `computation` must be
// associative, and the initial values must be its neutral elements. It takes and returns scalars,
// and must not use an array from outside.
std::vector<Array> reduce(
    const std::vector<Array>& operands, const std::vector<Arg>& init_values,
    absl::FunctionRef<std::vector<Array>(const std::vector<Array>&, const std::vector<Array>&)>
        computation,
    std::vector<int64_t> dimensions, Site site = Site::Here());
Array reduce(const Array& operand, const Arg& init_value,
             absl::FunctionRef<Array(const Array&, const Array&)> computation,
             std::vector<int64_t> dimensions, Site site = Site::Here());
Array reduce_sum(const Arg& x, std::vector<int64_t> axes, const OutSharding& out_sharding = {});
Array reduce_prod(const Arg& x, std::vector<int64_t> axes, const OutSharding& out_sharding = {});
Array reduce_max(const Arg& x, std::vector<int64_t> axes, const OutSharding& out_sharding = {});
Array reduce_min(const Arg& x, std::vector<int64_t> axes, const OutSharding& out_sharding = {});
Array reduce_and(const Arg& x, std::vector<int64_t> axes, const OutSharding& out_sharding = {});
Array reduce_or(const Arg& x, std::vector<int64_t> axes, const OutSharding& out_sharding = {});
// Combines each element along `axis` with those before it; with `reverse`, with those after it.
Array cumsum(const Arg& x, int axis = 0, bool reverse = false);
Array cumprod(const Arg& x, int axis = 0, bool reverse = false);
Array cummax(const Arg& x, int axis = 0, bool reverse = false);
Array cummin(const Arg& x, int axis = 0, bool reverse = false);
Array cumlogsumexp(const Arg& x, int axis = 0, bool reverse = false);
// Sorts arrays of one shape in ascending order along `dimension`, by the first `num_keys` of them.
// NaNs come last.
std::vector<Array> sort(const std::vector<Array>& operands, int dimension = -1,
                        bool is_stable = true, int num_keys = 1, Site site = Site::Here());
Array sort(const Array& operand, int dimension = -1, bool is_stable = true,
           Site site = Site::Here());
// Sorts arrays of one shape along `dimension`. `comparator` takes one element of each array, and
// another element of each, and returns whether the first ones come before the others. Equal
// elements keep their order. `comparator` takes and returns scalars, and must not use an array from
// outside.
std::vector<Array> sort_by(
    const std::vector<Array>& operands,
    absl::FunctionRef<Array(const std::vector<Array>&, const std::vector<Array>&)> comparator,
    int dimension = -1, Site site = Site::Here());
Array sort_by(const Array& operand, absl::FunctionRef<Array(const Array&, const Array&)> comparator,
              int dimension = -1, Site site = Site::Here());
// Returns the k largest elements along `axis`, in descending order, and their indices (s32). Among
// equal elements, the first comes first.
std::pair<Array, Array> top_k(const Array& operand, int64_t k, int axis = -1,
                              Site site = Site::Here());
Array argmax(const Arg& x, int axis, DType index_dtype = DType::kS32);
Array argmin(const Arg& x, int axis, DType index_dtype = DType::kS32);

struct DotDimensions {
  std::vector<int64_t> lhs_contract, rhs_contract, lhs_batch, rhs_batch;
};
struct DotOptions {
  PrecisionLike precision = {};  // by default that of default_matmul_precision
  // The dtype in which products are summed and which the result has. It must be of the operands'
  // kind; for integers it must not have fewer bits. By default the operands' dtype.
  std::optional<DType> preferred_element_type = {};
  const PartitionSpec* out_sharding = nullptr;
};
Array dot_general(const Arg& lhs, const Arg& rhs, const DotDimensions& dims,
                  const PartitionSpec* out_sharding = nullptr);
Array dot_general(const Arg& lhs, const Arg& rhs, const DotDimensions& dims,
                  const DotOptions& options);

// The padding before and after an array along each dim that windows move along. "VALID" pads
// nothing. "SAME" pads so that with strides of 1 the result is as large as the array; an odd amount
// puts one more at the end. "SAME_LOWER" puts it at the beginning. Or a list gives the amounts
// {before, after}; negative amounts cut.
struct Padding {
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  Padding(const char* name) : name(name) {}
  Padding(std::vector<std::pair<int64_t, int64_t>> amounts) : amounts(std::move(amounts)) {}
  Padding(std::initializer_list<std::pair<int64_t, int64_t>> list) : amounts(list) {}
  // NOLINTEND(google-explicit-constructor)
  std::string name;  // empty if `amounts` are given
  std::vector<std::pair<int64_t, int64_t>> amounts;
};
// The dims of each array as letters. N is the batch and C the features, of the input and of the
// result. I is the kernel's input features, O its output features. All other letters are spatial
// dims. If all three strings are empty, the input and the result are N, C and the spatial dims, and
// the kernel is O, I and the spatial dims.
struct ConvDimensionNumbers {
  std::string lhs, rhs, out;  // "NHWC", "HWIO", "NHWC"
};
struct ConvOptions {
  std::vector<int64_t> lhs_dilation = {}, rhs_dilation = {};  // per spatial dim; empty means 1
  ConvDimensionNumbers dimension_numbers = {};
  int64_t feature_group_count = 1, batch_group_count = 1;
  std::optional<DType> preferred_element_type = {};
  const PartitionSpec* out_sharding = nullptr;
  std::optional<Precision> precision = {};  // by default that of default_matmul_precision
};
// Returns the products of windows of `lhs` with `rhs`, a kernel, which is not reversed.
Array conv_general_dilated(const Arg& lhs, const Arg& rhs, std::vector<int64_t> window_strides,
                           const Padding& padding, const ConvOptions& options = {});
// Returns the transposed convolution: the elements of `lhs` are set `strides` apart and convolved
// with `rhs`. A padding with a name is the padding of the forward convolution that this one
// transposes. Without dimension numbers the features are last: "NHWC", "HWIO". Only the options
// rhs_dilation, dimension_numbers, preferred_element_type and precision are used.
Array conv_transpose(const Arg& lhs, const Arg& rhs, std::vector<int64_t> strides,
                     const Padding& padding, const ConvOptions& options = {});
// The dilations of the array and of the window: one number per dim; an empty list means 1.
struct WindowOptions {
  std::vector<int64_t> base_dilation = {}, window_dilation = {};
};
// Pads arrays of one shape by the initial values, and combines them over windows as `reduce` does.
// It has derivatives if `computation` is add, mul, max, min, and, or or. The derivative of max goes
// in equal parts to all elements of a window that are the largest.
std::vector<Array> reduce_window(
    const std::vector<Array>& operands, const std::vector<Arg>& init_values,
    absl::FunctionRef<std::vector<Array>(const std::vector<Array>&, const std::vector<Array>&)>
        computation,
    std::vector<int64_t> window_dimensions, std::vector<int64_t> window_strides,
    const Padding& padding, const WindowOptions& options = {}, Site site = Site::Here());
Array reduce_window(const Array& operand, const Arg& init_value,
                    absl::FunctionRef<Array(const Array&, const Array&)> computation,
                    std::vector<int64_t> window_dimensions, std::vector<int64_t> window_strides,
                    const Padding& padding, const WindowOptions& options = {},
                    Site site = Site::Here());
// On Auto axes this is a constraint for the planner; on Explicit axes it is an assertion about the
// type.
Array with_sharding_constraint(const Arg& x, const PartitionSpec& spec);
std::vector<Array> optimization_barrier(const std::vector<Array>& xs, Site site = Site::Here());

// ---- Collectives: axes are names of Manual axes (shard_map, pmap), or axis_names of vmaps. ----

struct AxisNames {
  ir::AxisList names;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  AxisNames(const char* name) : names{name} {}
  AxisNames(std::string name) : names{std::move(name)} {}
  AxisNames(ir::AxisList list) : names(std::move(list)) {}
  // NOLINTEND(google-explicit-constructor)
  AxisNames(std::initializer_list<const char*> list) : names(list.begin(), list.end()) {}
};

// Splits the indices along the axes into groups of equal size, in which each index occurs once. A
// reduction then combines the values of the devices of one group. Each device receives the values
// of all groups before it combines those of its own group. Allowed under shard_map with check_vma =
// false and under pmap; NOT_IMPLEMENTED elsewhere, as in JAX. An empty list means one group.
using AxisIndexGroups = std::vector<std::vector<int64_t>>;
Array psum(const Arg& x, const AxisNames& axes, const AxisIndexGroups& axis_index_groups = {});
Array pmax(const Arg& x, const AxisNames& axes, const AxisIndexGroups& axis_index_groups = {});
Array pmin(const Arg& x, const AxisNames& axes, const AxisIndexGroups& axis_index_groups = {});
Array pmean(const Arg& x, const AxisNames& axes, const AxisIndexGroups& axis_index_groups = {});
// Return the psum or pmean of every array of a tree.
template <class T>
requires(!std::is_convertible_v<const T&, Arg>) T
    psum(const T& tree, const AxisNames& axes, Site site = Site::Here()) {
  return tree_map([&](const Array& a) { return psum(Arg(a, site), axes); }, tree);
}
template <class T>
requires(!std::is_convertible_v<const T&, Arg>) T
    pmean(const T& tree, const AxisNames& axes, Site site = Site::Here()) {
  return tree_map([&](const Array& a) { return pmean(Arg(a, site), axes); }, tree);
}
// `to` is the state of the result: "varying", "invarying" or "reduced". The cotangent of a reduced
// result is summed while it is scattered.
Array all_gather(const Arg& x, const AxisNames& axes, int axis = 0, bool tiled = false,
                 std::string_view to = "varying");
Array psum_scatter(const Arg& x, const AxisNames& axes, int scatter_dimension = 0,
                   bool tiled = false);
// `perm` has pairs {source, destination}. A device that is no destination gets zeros.
Array ppermute(const Arg& x, const AxisNames& axes, std::vector<std::pair<int64_t, int64_t>> perm);
// ppermute by sources: device i gets the value of device perm[i]. VALUE_ERROR if `perm` is no
// permutation.
Array pshuffle(const Arg& x, const AxisNames& axes, const std::vector<int64_t>& perm);
// Returns on all devices the value of the device at index `source` along the axes. VALUE_ERROR for
// an index out of bounds.
Array pbroadcast(const Arg& x, const AxisNames& axes, int64_t source);
Array all_to_all(const Arg& x, const AxisNames& axes, int split_axis, int concat_axis,
                 bool tiled = false);
// all_to_all with one axis for both roles: dim `axis`, whose size is that of the mesh axes, is
// swapped with the mesh axes.
Array pswapaxes(const Arg& x, const AxisNames& axes, int axis);
Array axis_index(const AxisNames& axes, Site site = Site::Here());
int64_t axis_size(const AxisNames& axes, Site site = Site::Here());
// Casts between the states of a value across Manual axes; free at run time. An invarying value may
// become "varying" or "reduced", a reduced value "varying". A varying value may become "unreduced":
// each device's value is then a summand, and psum and psum_scatter add the summands up. VALUE_ERROR
// for other casts.
Array pcast(const Arg& x, const AxisNames& axes, std::string_view to = "varying");
Array pvary(const Arg& x, const AxisNames& axes);

}  // namespace tessera::lax
