// Arithmetic and array functions with numpy's rules: dtypes are promoted, shapes broadcast,
// negative axes count from the end. They are in namespace tessera, so that argument-dependent
// lookup finds them.
//
// Each function records the call site. All throw tessera::Error: TYPE_ERROR for dtypes and shapes
// that cannot be combined, VALUE_ERROR for axes that do not exist.
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
// Integers divide as floats: 64-bit integers as f64, others as f32.
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
Array remainder(const Arg& x, const Arg& y);  // has the sign of y; lax::rem has the sign of x
Array logical_and(const Arg& x, const Arg& y);
Array logical_or(const Arg& x, const Arg& y);
Array logical_not(const Arg& x);
// Returns the elements of x where `condition` holds (is not 0), else those of y.
Array where(const Arg& condition, const Arg& x, const Arg& y);
Array clip(const Arg& x, const Arg& low, const Arg& high);

using lax::abs, lax::complex, lax::conj, lax::full_like, lax::imag, lax::real, lax::sign,
    lax::square, lax::stop_gradient;
using lax::with_sharding_constraint;
Array floor(const Arg& x);
Array ceil(const Arg& x);
Array round(const Arg& x);  // rounds halves to even; lax::round rounds them away from zero
Array is_finite(const Arg& x);
// Integers compute as floats: 64-bit integers as f64, others as f32.
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

// The axes of a reduction; by default all.
struct Axes {
  std::optional<std::vector<int64_t>> list;
  Axes() = default;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
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
// Returns the mean squared distance from the mean. The sum of squares is divided by the number of
// elements minus `ddof`; the result is NaN if that is not positive.
Array var(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);
Array all(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array any(const Arg& x, const Axes& axes = {}, bool keepdims = false);
// Return indices (s32). Without an axis, they are those of the flattened array.
Array argmax(const Arg& x, std::optional<int> axis = std::nullopt, bool keepdims = false);
Array argmin(const Arg& x, std::optional<int> axis = std::nullopt, bool keepdims = false);
// Sum or multiply along an axis, or, without one, over the flattened array. Bools count as s32.
Array cumsum(const Arg& x, std::optional<int> axis = std::nullopt);
Array cumprod(const Arg& x, std::optional<int> axis = std::nullopt);
// Sort in ascending order along the axis, with NaNs last. argsort returns the indices (s32) of
// sort's elements. Equal elements keep their order.
Array sort(const Arg& x, int axis = -1);
Array argsort(const Arg& x, int axis = -1);
using lax::top_k;

// Multiplies vectors and matrices; leading dims broadcast.
Array matmul(const Arg& x, const Arg& y, const lax::DotOptions& options = {});
// Like matmul, but an operand may also be a number or a scalar.
Array dot(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {},
          const OutSharding& out_sharding = {});
// Sums products by a spec such as "bij,bjk->bik". The letters of one operand must differ.
Array einsum(std::string_view spec, const std::vector<Arg>& operands,
             const lax::PrecisionLike& precision = {}, const OutSharding& out_sharding = {});

Array reshape(const Arg& x, Dims shape,  // One size may be -1, and is inferred.
              const OutSharding& out_sharding = {});
Array transpose(const Arg& x, std::vector<int64_t> permutation = {});
Array swapaxes(const Arg& x, int a, int b);
Array expand_dims(const Arg& x, int axis);
Array squeeze(const Arg& x, const Axes& axes = {});
Array broadcast_to(const Arg& x, Dims shape);
Array concatenate(const std::vector<Array>& xs, int axis = 0, Site site = Site::Here());
Array stack(const std::vector<Array>& xs, int axis = 0, Site site = Site::Here());
Array flip(const Arg& x, const Axes& axes = {});

// Returns the elements of x along `axis` at `indices`. The dims of the indices, of any shape, take
// the place of the axis. Without an axis, x is flattened. A negative index counts from the end. An
// index out of bounds gives NaN, the lowest signed or the highest unsigned number, or true
// (kFillOrDrop), or is clamped (kClip).
Array take(const Arg& x, const Arg& indices, std::optional<int> axis = std::nullopt,
           lax::GatherScatterMode mode = lax::GatherScatterMode::kFillOrDrop,
           const OutSharding& out_sharding = {});
// out[..., i, ...] = x[..., indices[..., i, ...], ...]. The other dims of x and indices must be
// equal.
Array take_along_axis(const Arg& x, const Arg& indices, int axis,
                      lax::GatherScatterMode mode = lax::GatherScatterMode::kFillOrDrop);

// Make arrays of a shape. `out_sharding` is their sharding on Explicit axes.
Array zeros(Dims shape, DType dtype = DType::kF32, Site site = Site::Here());
Array ones(Dims shape, DType dtype = DType::kF32, Site site = Site::Here());
Array full(Dims shape, double value, DType dtype = DType::kF32, Site site = Site::Here());
Array zeros(Dims shape, DType dtype, const OutSharding& out_sharding, Site site = Site::Here());
Array ones(Dims shape, DType dtype, const OutSharding& out_sharding, Site site = Site::Here());
Array full(Dims shape, double value, DType dtype, const OutSharding& out_sharding,
           Site site = Site::Here());
Array zeros_like(const Arg& x);
Array ones_like(const Arg& x);
// Returns 0, 1, ... stop - 1, or start, start + step, ... up to but not including stop. VALUE_ERROR
// for a step of 0.
Array arange(int64_t stop, DType dtype = DType::kS32, Site site = Site::Here());
Array arange(int64_t stop, DType dtype, const OutSharding& out_sharding, Site site = Site::Here());
Array arange(double start, double stop, double step, DType dtype = DType::kF32,
             Site site = Site::Here());
Array eye(int64_t n, DType dtype = DType::kF32, Site site = Site::Here());

}  // namespace tessera
