// Statistics of jax.numpy over axes (all by default), and what it computes of samples: spreads,
// quantiles, differences, integrals.
//
// Integers compute as floats: s64 as f64, others as f32, but where it says that they stay. Each
// records the call site. All throw tessera::Error: VALUE_ERROR for an axis that there is not, a
// shape that does not fit, or a method that is none.
#pragma once
#include <optional>
#include <string_view>
#include <utility>

#include "client/numpy.h"

namespace tessera {

// The root of var. Where all of tessera is in scope, `std(x)` may be this or the namespace: write
// tessera::std(x), or say `using tessera::std;` in the function, where std::vector stays what it
// is.
Array std(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);
Array ptp(const Arg& x, const Axes& axes = {}, bool keepdims = false);  // max - min, of any dtype
// How many elements are not 0, as s32.
Array count_nonzero(const Arg& x, const Axes& axes = {}, bool keepdims = false);
// The mean, weighted by an array of x's shape or, along one axis, a vector.
Array average(const Arg& x, const std::optional<Array>& weights = std::nullopt,
              const Axes& axes = {}, bool keepdims = false);

// Below which a part q, 0 to 1, of the elements is. `method` says what is between two of them:
// "linear", in proportion, "lower", "higher", "midpoint" or "nearest". NaN where an element is. A
// vector of q gives a first dim.
Array quantile(const Arg& x, const Arg& q, const Axes& axes = {},
               std::string_view method = "linear", bool keepdims = false);
Array percentile(const Arg& x, const Arg& q, const Axes& axes = {},  // q is 0 to 100
                 std::string_view method = "linear", bool keepdims = false);
Array median(const Arg& x, const Axes& axes = {}, bool keepdims = false);

// The same without NaNs. What is without elements is 0 as a sum, 1 as a product, else NaN.
Array nansum(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanprod(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanmax(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanmin(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanmean(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array nanvar(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);
Array nanstd(const Arg& x, const Axes& axes = {}, bool keepdims = false, double ddof = 0);

// The covariances of variables, which are the rows of a matrix, or a vector; without `rowvar` the
// columns. Sums are divided by the number of observations minus `ddof`.
Array cov(const Arg& m, bool rowvar = true, double ddof = 1);
// The same over the roots of both variances; within [-1, 1].
Array corrcoef(const Arg& m, bool rowvar = true);

// The differences of neighbours along an axis, n times; of bools whether they differ.
Array diff(const Arg& x, int n = 1, int axis = -1);
// The slope along an axis: half the difference of both neighbours over the distance dx, and at the
// ends the difference of two. Two elements or more are expected.
Array gradient(const Arg& x, double dx, int axis);
// The integral along an axis by trapezoids, whose corners are dx apart, or at `x`: a vector, or of
// y's shape.
Array trapezoid(const Arg& y, double dx = 1, int axis = -1);
Array trapezoid(const Arg& y, const Array& x, int axis = -1);
// The line through the points (xp, fp), of which xp ascends, at x: vectors of one size, and any
// array. Beyond the ends it is `left` or `right`, by default the first or the last of fp.
Array interp(const Arg& x, const Array& xp, const Array& fp,
             std::optional<double> left = std::nullopt, std::optional<double> right = std::nullopt);

}  // namespace tessera
