// Functions for neural networks with the names and the values of jax.nn: activations, softmax and
// its kin, attention, and the initializers of weights.
//
// Operands are promoted and broadcast as in numpy.h. Integers compute as floats, except in relu,
// hard_tanh and identity. Derivatives are JAX's, also at points where a function has none: the
// derivative of relu at 0 is 0. All throw tessera::Error.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/array.h"
#include "client/numpy.h"

namespace tessera::nn {

// ---- Activations, element by element. -----------------------------------------------------------

// clang-format off
#define TESSERA_NN_UNARY(X)                                                       \
  X(sigmoid) X(log_sigmoid) X(silu) X(mish) X(softplus) X(soft_sign) X(selu)      \
  X(relu6) X(hard_sigmoid) X(hard_silu) X(sparse_plus) X(sparse_sigmoid)          \
  X(log1mexp)  /* log(1 - exp(-x)) */
// Activations with a parameter, a number or an array, and its default value.
#define TESSERA_NN_WITH_PARAMETER(X)                                              \
  X(elu, alpha, 1.0) X(celu, alpha, 1.0) X(leaky_relu, negative_slope, 1e-2)      \
  X(squareplus, b, 4.0)
// clang-format on
#define TESSERA_DECLARE(name) Array name(const Arg& x);
#define TESSERA_DECLARE_WITH(name, parameter, value) \
  Array name(const Arg& x, const Arg& parameter = value);
TESSERA_NN_UNARY(TESSERA_DECLARE)
TESSERA_NN_WITH_PARAMETER(TESSERA_DECLARE_WITH)
#undef TESSERA_DECLARE
#undef TESSERA_DECLARE_WITH

Array identity(const Arg& x);
Array relu(const Arg& x);
Array hard_tanh(const Arg& x);
Array gelu(const Arg& x, bool approximate = true);
inline Array swish(const Arg& x) { return silu(x); }
inline Array hard_swish(const Arg& x) { return hard_silu(x); }
// Returns the first half of x along the axis, multiplied by the sigmoid of the second half.
// VALUE_ERROR for an odd size.
Array glu(const Arg& x, int axis = -1);

// ---- Functions of rows of numbers. --------------------------------------------------------------

Array logsumexp(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array logmeanexp(const Arg& x, const Axes& axes = {}, bool keepdims = false);
Array softmax(const Arg& x, int axis = -1);
Array log_softmax(const Arg& x, int axis = -1);
// Returns (x - mean) / sqrt(variance + epsilon) over the axes. The variance is that of jax.nn's
// "fast" algorithm: mean(x^2) - mean(x)^2, or 0 if that is negative.
Array standardize(const Arg& x, const Axes& axes = -1, double epsilon = 1e-5);
// Returns x with a new dim of size `classes`: 1 where the index equals x, else 0. The new dim is
// the last, or dim `axis` of the result.
Array one_hot(const Arg& x, int64_t classes, DType dtype = DType::kF32, int axis = -1,
              const OutSharding& out_sharding = {});

struct AttentionOptions {
  // Added to the scaled products of queries and keys. The shape is [batch, heads, length,
  // key_length], where batch and heads may be 1; without the batch if the query has none.
  std::optional<Array> bias = {};
  std::optional<Array> mask = {};  // bools, shaped like `bias`; false hides a key from a query
  // factor of the products of queries and keys; by default 1 / sqrt(size)
  std::optional<double> scale = {};
  bool is_causal = false;  // hides the later keys from each query
  // s32[batch]: how many of the first queries, and of the first keys and values, of each batch
  // element are used. The result of a query beyond this number is 0.
  std::optional<Array> query_seq_lengths = {}, key_value_seq_lengths = {};
  // How far to the left and to the right a query sees keys.
  std::optional<std::pair<int64_t, int64_t>> local_window_size = {};
};
// Queries are [batch, length, heads, size], keys and values [batch, key_length, key_heads, size].
// All have the batch or none has it; all have one dtype, a float. The result has the shape of the
// queries. key_heads must divide heads: consecutive heads share a key. The softmax is computed in
// f32. VALUE_ERROR for other shapes and dtypes.
Array dot_product_attention(const Arg& query, const Arg& key, const Arg& value,
                            const AttentionOptions& options = {});

}  // namespace tessera::nn

namespace tessera {
using nn::gelu, nn::log_softmax, nn::logsumexp, nn::one_hot, nn::relu, nn::sigmoid, nn::silu,
    nn::softmax, nn::standardize;
}  // namespace tessera

// ---- Initializers: the first values of weights. -------------------------------------------------

namespace tessera::nn::initializers {

// A function that makes weights of a shape from a key (random.h).
class Initializer {
 public:
  using Function = std::function<Array(const Arg& key, const Dims& shape, DType dtype)>;
  Initializer(Function f, DType dtype) : f_(std::move(f)), dtype_(dtype) {}
  // Without a dtype, the weights have the initializer's dtype.
  Array operator()(const Arg& key, const Dims& shape,
                   std::optional<DType> dtype = std::nullopt) const {
    return f_(key, shape, dtype.value_or(dtype_));
  }

 private:
  Function f_;
  DType dtype_;
};

Array zeros(const Arg& key, const Dims& shape, DType dtype = DType::kF32);
Array ones(const Arg& key, const Dims& shape, DType dtype = DType::kF32);
Initializer constant(double value, DType dtype = DType::kF32);
Initializer uniform(double scale = 1e-2, DType dtype = DType::kF32);  // in [0, scale)
Initializer normal(double stddev = 1e-2, DType dtype = DType::kF32);
Initializer truncated_normal(double stddev = 1e-2, DType dtype = DType::kF32, double lower = -2,
                             double upper = 2);
// Makes weights that form an orthogonal matrix times `scale`: dim `column_axis` numbers the
// columns, and all other dims together number the rows. The columns or the rows, whichever are
// fewer, are orthogonal.
Initializer orthogonal(double scale = 1, int column_axis = -1, DType dtype = DType::kF32);

// The axes of weights: the axes of inputs, of outputs, and the batch axes, along which each index
// is a layer of its own. All other axes are the receptive field of each output.
struct FanAxes {
  Axes in_axis = -2, out_axis = -1, batch_axis = Axes(std::vector<int64_t>{});
};
// Makes weights of variance scale / n. `mode` says what n is: the number of inputs ("fan_in"), of
// outputs ("fan_out"), their mean ("fan_avg") or geometric mean ("fan_geo_avg"). `distribution` is
// "truncated_normal", "normal" or "uniform".
Initializer variance_scaling(double scale, std::string_view mode, std::string_view distribution,
                             const FanAxes& axes = {}, DType dtype = DType::kF32);
// clang-format off
#define TESSERA_NN_SCALED(X)                          \
  X(glorot_uniform, 1, "fan_avg", "uniform")          \
  X(glorot_normal, 1, "fan_avg", "truncated_normal")  \
  X(lecun_uniform, 1, "fan_in", "uniform")            \
  X(lecun_normal, 1, "fan_in", "truncated_normal")    \
  X(he_uniform, 2, "fan_in", "uniform")               \
  X(he_normal, 2, "fan_in", "truncated_normal")       \
  X(xavier_uniform, 1, "fan_avg", "uniform")          \
  X(xavier_normal, 1, "fan_avg", "truncated_normal")  \
  X(kaiming_uniform, 2, "fan_in", "uniform")          \
  X(kaiming_normal, 2, "fan_in", "truncated_normal")
// clang-format on
#define TESSERA_DEFINE(name, scale, mode, distribution)                          \
  inline Initializer name(const FanAxes& axes = {}, DType dtype = DType::kF32) { \
    return variance_scaling(scale, mode, distribution, axes, dtype);             \
  }
TESSERA_NN_SCALED(TESSERA_DEFINE)
#undef TESSERA_DEFINE

}  // namespace tessera::nn::initializers
