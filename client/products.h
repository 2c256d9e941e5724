// Products of jax.numpy that numpy.h does not have (it has matmul, dot and einsum). Dtypes are
// promoted. Most take a `precision`; without one, default_matmul_precision's counts.
//
// Each function records the call site. All throw tessera::Error: TYPE_ERROR for sizes that do not
// broadcast or contract, VALUE_ERROR for axes that do not exist.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "client/numpy.h"

namespace tessera {

// Sums products over the last dims of both operands. A scalar operand is multiplied.
Array inner(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
Array outer(const Arg& x, const Arg& y);  // both operands are flattened
// vdot returns the dot product of both operands flattened, with the first conjugated. vecdot
// returns this product along an axis; the other dims broadcast.
Array vdot(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
Array vecdot(const Arg& x, const Arg& y, int axis = -1, const lax::PrecisionLike& precision = {});
// matvec multiplies [...,m,n] by [...,n], vecmat the conjugate of [...,n] by [...,n,m]. Leading
// dims broadcast.
Array matvec(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
Array vecmat(const Arg& x, const Arg& y, const lax::PrecisionLike& precision = {});
// Sums products over the last `axes` dims of x and the first `axes` dims of y, or over the given
// dims of each operand.
Array tensordot(const Arg& x, const Arg& y, int axes = 2, const lax::PrecisionLike& precision = {});
Array tensordot(const Arg& x, const Arg& y,
                const std::pair<std::vector<int64_t>, std::vector<int64_t>>& axes,
                const lax::PrecisionLike& precision = {});
// Returns the product of every element of x with all of y, as blocks. The operand of lower rank
// gets leading dims of size 1.
Array kron(const Arg& x, const Arg& y);
// Returns the cross product of vectors of size 2 or 3 along an axis. For two vectors of size 2 it
// is the third component alone, and the axis is dropped.
Array cross(const Arg& x, const Arg& y, int axis = -1);

}  // namespace tessera
