// Helpers of numpy.h, nn.h and similar headers: functions of one and two operands, axes, reductions
// over axes, and the dtypes of real functions. Used by the SDK only.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/numpy.h"
#include "ir/ops.h"

namespace tessera::internal {

// Returns the dtype in which a function of real numbers computes: f64 for 64-bit integers, f32 for
// other integers and bools, and inexact dtypes unchanged.
DType InexactOf(DType d);
ir::Value ToInexact(ir::Value x);
// Unary applies a function of one operand, Binary a function of two. Two operands are first brought
// to their common shape, and to the common dtype or `dtype`.
Array Unary(std::string_view name, const Arg& x, absl::FunctionRef<ir::Value(ir::Value)> op);
Array Binary(std::string_view name, const Arg& x, const Arg& y,
             absl::FunctionRef<ir::Value(ir::Value, ir::Value)> op,
             std::optional<DType> dtype = std::nullopt);
// Applies a function of one operand, whose integers become floats first.
Array UnaryInexact(std::string_view name, const Arg& x, absl::FunctionRef<ir::Value(ir::Value)> op);

// Return axes counted from 0; NormalizeAxes returns them in ascending order. Throw VALUE_ERROR,
// which names `op`, for axes out of bounds and for duplicates. Axes without a list stand for all
// axes.
int NormalizeAxis(std::string_view op, int64_t axis, int rank, const Site& site);
std::vector<int64_t> NormalizeAxes(std::string_view op, const Axes& axes, int rank,
                                   const Site& site);
int RankOf(const Arg& x);
Dims KeptDims(Dims shape, const std::vector<int64_t>& axes);
// Returns the number of elements that a reduction over `axes` combines into one.
int64_t NumReduced(const Dims& shape, const std::vector<int64_t>& axes);

// Applies a reduction over axes. `keepdims` keeps the reduced dims with size 1.
Array Reduce(std::string_view name, const Arg& x, const Axes& axes, bool keepdims,
             absl::FunctionRef<ir::Value(ir::Value, const std::vector<int64_t>&)> op);
// Broadcasts `reduced`, a reduction of `x` over `axes`, to the shape of `x`.
ir::Value BroadcastBack(ir::Value reduced, ir::Value x, const std::vector<int64_t>& axes);
ir::Value MeanOf(ir::Value x, const std::vector<int64_t>& axes);

}  // namespace tessera::internal
