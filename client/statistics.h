// Statistics of jax.numpy over axes (all by default), and functions of samples: spreads, quantiles,
// differences, integrals.
//
// Integers compute as floats: 64-bit ones as f64, others as f32, except where a function says that
// they stay integers. Each function records the call site. All throw tessera::Error: VALUE_ERROR
// for an axis that does not exist, a shape that does not fit, or an unknown method.
#pragma once
#include <optional>
#include <string_view>
#include <utility>

#include "client/numpy.h"

namespace tessera {

// The square root of var. If all of tessera is in scope, `std(x)` may mean this function or the
// namespace std. Write tessera::std(x), or say `using tessera::std;` in the function, where
// std::vector keeps its meaning.
Array std(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);
Array ptp(const Arg& x, const Axes& axes = {}, bool keepdims = false);  // max - min, in any dtype
// Returns the number of elements that are not 0, as s32.
Array count_nonzero(const Arg& x, const Axes& axes = {}, bool keepdims = false);
// Returns the mean, weighted by an array of x's shape or, along one axis, by a vector.
Array average(const Arg& x, const std::optional<Array>& weights = std::nullopt,
              const Axes& axes = {}, bool keepdims = false);

// Returns the number below which a part q, from 0 to 1, of the elements lies. `method` says how a
// result between two elements is found: "linear" in proportion, "lower", "higher", "midpoint" or
// "nearest". The result is NaN if an element is. A vector q adds a first dim.
Array quantile(const Arg& x, const Arg& q, const Axes& axes = {},
               std::string_view method = "linear", bool keepdims = false);
Array percentile(const Arg& x, const Arg& q, const Axes& axes = {},  // q is from 0 to 100
                 std::string_view method = "linear", bool keepdims = false);
Array median(const Arg& x, const Axes& axes = {}, bool keepdims = false);

// Like the functions above, but NaNs are left out. Without any elements left, a sum is 0, a product
// 1, and any other result NaN.
Array nansum(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanprod(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanmax(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanmin(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanmean(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanvar(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);
Array nanstd(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);

// Returns the covariances of variables. The variables are the rows of a matrix, or its columns
// without `rowvar`; a vector is one variable. Sums are divided by the number of observations minus
// `ddof`.
Array cov(const Arg& m, bool rowvar = true, double ddof = 1);
// Returns cov divided by the square roots of both variances; within [-1, 1].
Array corrcoef(const Arg& m, bool rowvar = true);

// Returns the differences of neighbours along an axis, n times. For bools they say whether
// neighbours differ.
Array diff(const Arg& x, int n = 1, int axis = -1);
// Returns the slope along an axis: half the difference of both neighbours divided by the distance
// dx, and at the ends the difference of two elements. VALUE_ERROR for fewer than two elements.
Array gradient(const Arg& x, double dx, int axis);
// Returns the integral along an axis by trapezoids. The corners are dx apart, or at `x`, which is a
// vector or has y's shape.
Array trapezoid(const Arg& y, double dx = 1, int axis = -1);
Array trapezoid(const Arg& y, const Array& x, int axis = -1);
// Evaluates the piecewise linear function through the points (xp, fp) at x, any array. xp and fp
// are vectors of one size; xp must ascend. Beyond the ends the result is `left` or `right`, by
// default the first or the last element of fp.
Array interp(const Arg& x, const Array& xp, const Array& fp,
             std::optional<double> left = std::nullopt, std::optional<double> right = std::nullopt);

}  // namespace tessera
