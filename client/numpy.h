// Arithmetic and array functions with numpy's rules: dtypes promote, shapes broadcast, negative
// axes count from the end. In namespace tessera, so that argument-dependent lookup finds them.
//
// Each records the call site. All throw tessera::Error.
#pragma once
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "client/array.h"
#include "client/indexing.h"
#include "client/lax.h"
#include "client/mesh.h"

namespace tessera {

Array operator-(const Arg& x);
Array operator+(const Arg& x, const Arg& y);
Array operator-(const Arg& x, const Arg& y);
Array operator*(const Arg& x, const Arg& y);
// Integers divide as floats: s64 as f64, others as f32.
Array operator/(const Arg& x, const Arg& y);
Array operator<(const Arg& x, const Arg& y);
Array operator<=(const Arg& x, const Arg& y);
Array operator>(const Arg& x, const Arg& y);
Array operator>=(const Arg& x, const Arg& y);
Array equal(const Arg& x, const Arg& y);
Array not_equal(const Arg& x, const Arg& y);
Array maximum(const Arg& x, const Arg& y);
Array minimum(const Arg& x, const Arg& y);
Array power(const Arg& x, const Arg& y);
Array remainder(const Arg& x, const Arg& y);  // has the sign of y; lax::rem has that of x
Array logical_and(const Arg& x, const Arg& y);
Array logical_or(const Arg& x, const Arg& y);
Array logical_not(const Arg& x);
Array where(const Arg& condition, const Arg& x, const Arg& y);
Array clip(const Arg& x, const Arg& low, const Arg& high);

using lax::abs, lax::complex, lax::conj, lax::full_like, lax::imag, lax::real, lax::sign,
    lax::square, lax::stop_gradient;
using lax::with_sharding_constraint;
Array floor(const Arg& x);
Array ceil(const Arg& x);
Array round(const Arg& x);  // halves to even; lax::round takes them away from zero
Array is_finite(const Arg& x);
// Integers compute as floats: s64 as f64, others as f32.
Array tanh(const Arg& x);
Array exp(const Arg& x);
Array expm1(const Arg& x);
Array log(const Arg& x);
Array log1p(const Arg& x);
Array sin(const Arg& x);
Array cos(const Arg& x);
Array sqrt(const Arg& x);
Array rsqrt(const Arg& x);
Array cbrt(const Arg& x);
Array exp2(const Arg& x);
Array tan(const Arg& x);
Array arcsin(const Arg& x);
Array arccos(const Arg& x);
Array arctan(const Arg& x);
Array arctan2(const Arg& y, const Arg& x);
Array sinh(const Arg& x);
Array cosh(const Arg& x);
Array arcsinh(const Arg& x);
Array arccosh(const Arg& x);
Array arctanh(const Arg& x);
Array nextafter(const Arg& x, const Arg& y);

// The axes of a reduction; all by default.
struct Axes {
  std::optional<std::vector<int64_t>> list;
  Axes() = default;
  // NOLINTBEGIN(google-explicit-constructor): reads as the axis
  Axes(int axis) : list(std::vector<int64_t>{axis}) {}
  Axes(std::initializer_list<int64_t> axes) : list(std::in_place, axes) {}
  Axes(std::vector<int64_t> axes) : list(std::move(axes)) {}
  // NOLINTEND(google-explicit-constructor)
};
Array sum(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array prod(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array max(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array min(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array mean(const Arg& x, const Axes& axes = {}, bool keepdims = false);
// The mean squared distance from the mean; the sum of squares is divided by the number of elements
// minus `ddof`, and NaN where that is not positive.
Array var(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);
Array all(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array any(const Arg& x, const Axes& axes = {}, bool keepdims = false);
// Without an axis, of the flattened array.
Array argmax(const Arg& x, std::optional<int> axis = std::nullopt, bool keepdims = false);
Array argmin(const Arg& x, std::optional<int> axis = std::nullopt, bool keepdims = false);
// Along an axis, or of the flattened array; of bools as s32.
Array cumsum(const Arg& x, std::optional<int> axis = std::nullopt);
Array cumprod(const Arg& x, std::optional<int> axis = std::nullopt);
// Ascending along the axis, NaNs last; argsort gives the indices (s32) of what sort gives, equals
// in their order.
Array sort(const Arg& x, int axis = -1);
Array argsort(const Arg& x, int axis = -1);
using lax::top_k;

Array matmul(const Arg& x, const Arg& y,  // vectors, matrices, leading dims broadcast
             const lax::DotOptions& options = {});
Array dot(const Arg& x, const Arg& y,  // matmul; products with numbers too
          const lax::PrecisionLike& precision = {}, const OutSharding& out_sharding = {});
// "bij,bjk->bik"; each operand's letters differ.
Array einsum(std::string_view spec, const std::vector<Arg>& operands,
             const lax::PrecisionLike& precision = {}, const OutSharding& out_sharding = {});

Array reshape(const Arg& x, Dims shape,  // one -1 is inferred
              const OutSharding& out_sharding = {});
Array transpose(const Arg& x, std::vector<int64_t> permutation = {});
Array swapaxes(const Arg& x, int a, int b);
Array expand_dims(const Arg& x, int axis);
Array squeeze(const Arg& x, const Axes& axes = {});
Array broadcast_to(const Arg& x, Dims shape);
Array concatenate(const std::vector<Array>& xs, int axis = 0, Site site = Site::Here());
Array stack(const std::vector<Array>& xs, int axis = 0, Site site = Site::Here());
Array flip(const Arg& x, const Axes& axes = {});

// The elements of x along `axis` (without: of the flattened array) at `indices`, of any shape,
// which takes the place of the axis. A negative index counts from the end. What is out of bounds is
// NaN, the lowest signed or the highest unsigned number, or true (kFillOrDrop); or clamped (kClip).
Array take(const Arg& x, const Arg& indices, std::optional<int> axis = std::nullopt,
           lax::GatherScatterMode mode = lax::GatherScatterMode::kFillOrDrop,
           const OutSharding& out_sharding = {});
// out[..., i, ...] = x[..., indices[..., i, ...], ...]; the other dims of x and indices are equal.
Array take_along_axis(const Arg& x, const Arg& indices, int axis,
                      lax::GatherScatterMode mode = lax::GatherScatterMode::kFillOrDrop);

Array zeros(Dims shape, DType dtype = DType::kF32, Site site = Site::Here());
Array ones(Dims shape, DType dtype = DType::kF32, Site site = Site::Here());
Array full(Dims shape, double value, DType dtype = DType::kF32, Site site = Site::Here());
Array zeros(Dims shape, DType dtype, const OutSharding& out_sharding, Site site = Site::Here());
Array ones(Dims shape, DType dtype, const OutSharding& out_sharding, Site site = Site::Here());
Array full(Dims shape, double value, DType dtype, const OutSharding& out_sharding,
           Site site = Site::Here());
Array zeros_like(const Arg& x);
Array ones_like(const Arg& x);
Array arange(int64_t stop, DType dtype = DType::kS32, Site site = Site::Here());
Array arange(int64_t stop, DType dtype, const OutSharding& out_sharding, Site site = Site::Here());
Array arange(double start, double stop, double step, DType dtype = DType::kF32,
             Site site = Site::Here());
Array eye(int64_t n, DType dtype = DType::kF32, Site site = Site::Here());

}  // namespace tessera
