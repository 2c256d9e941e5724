// Functions of one and two operands, axes, reductions over them, and the dtype of real functions,
// for numpy.h, nn.h and their kin. Used by the SDK only.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/numpy.h"
#include "ir/ops.h"

namespace tessera::internal {

// The dtype in which a function of real numbers computes: of s64 f64, of other integers f32.
DType InexactOf(DType d);
ir::Value ToInexact(ir::Value x);
// A function of one operand; and of two, which take the common shape and dtype, or `dtype`, first.
Array Unary(std::string_view name, const Arg& x, absl::FunctionRef<ir::Value(ir::Value)> op);
Array Promoted(std::string_view name, const Arg& x, const Arg& y,
               absl::FunctionRef<ir::Value(ir::Value, ir::Value)> op,
               std::optional<DType> dtype = std::nullopt);
// A function of one operand, whose integers become floats first.
Array UnaryInexact(std::string_view name, const Arg& x, absl::FunctionRef<ir::Value(ir::Value)> op);

// Axes from 0 on, in ascending order; throws naming `op` for those out of bounds, and duplicates.
int NormalAxis(std::string_view op, int64_t axis, int rank, const Site& site);
std::vector<int64_t> NormalAxes(std::string_view op, const Axes& axes, int rank, const Site& site);
int RankOf(const Arg& x);
Dims KeptDims(Dims shape, const std::vector<int64_t>& axes);
// The number of elements that a reduction over `axes` combines into one.
int64_t NumReduced(const Dims& shape, const std::vector<int64_t>& axes);

// A reduction over axes; `keepdims` keeps the dims with size 1.
Array Reduce(std::string_view name, const Arg& x, const Axes& axes, bool keepdims,
             absl::FunctionRef<ir::Value(ir::Value, const std::vector<int64_t>&)> op);
// Broadcasts `reduced`, a reduction of `x` over `axes`, to the shape of `x`.
ir::Value BroadcastBack(ir::Value reduced, ir::Value x, const std::vector<int64_t>& axes);
ir::Value MeanOf(ir::Value x, const std::vector<int64_t>& axes);

}  // namespace tessera::internal
