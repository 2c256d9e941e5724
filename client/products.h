// Products of jax.numpy beside matmul, dot and einsum of numpy.h. Dtypes promote; all have
// `precision`, none: default_matmul_precision's.
//
// Each records the call site. All throw tessera::Error: TYPE_ERROR for sizes that do not broadcast
// or contract, VALUE_ERROR for axes that there are not.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "client/numpy.h"

namespace tessera {

// Sums over the last dims of both; a product of numbers.
Array inner(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
Array outer(const Arg& x, const Arg& y);  // of both flattened
// The dot product of both flattened, of which the first is conjugated; and that along an axis,
// where the other dims broadcast.
Array vdot(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
Array vecdot(const Arg& x, const Arg& y, int axis = -1, const lax::PrecisionLike& precision = {});
// [...,m,n] times [...,n]; and the conjugate of [...,n] times [...,n,m]. Leading dims broadcast.
Array matvec(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
Array vecmat(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
// Sums over the last dims of x with the first of y, so many, or over these of each.
Array tensordot(const Arg& x, const Arg& y, int axes = 2, const lax::PrecisionLike& precision = {});
Array tensordot(const Arg& x, const Arg& y,
                const std::pair<std::vector<int64_t>, std::vector<int64_t>>& axes,
                const lax::PrecisionLike& precision = {});
// Every element of x times all of y, in blocks; the one of lower rank has dims of 1 before.
Array kron(const Arg& x, const Arg& y);
// Of vectors of 2 or 3 along an axis; two of 2 give the third component alone.
Array cross(const Arg& x, const Arg& y, int axis = -1);

}  // namespace tessera
