// jax.nn: activations as formulas, softmax and attention from ops and numpy functions, initializers
// from random.h. Activations with rules of their own have JAX's derivatives where formulas would
// give NaN.
#include "client/nn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
#include "client/numpy/reductions.h"
#include "client/random.h"
#include "client/sharding.h"
#include "ir/formula.h"
#include "ir/ops.h"

namespace tessera::nn {
namespace {

using internal::ApplyArgs;
using internal::BroadcastBack;
using internal::MeanOf;
using internal::NormalizeAxes;
using internal::NormalizeAxis;
using internal::Operands;
using internal::RankOf;
using internal::Reduce;
using internal::ThrowError;
using internal::ToInexact;
using internal::UnaryInexact;
using ir::Value;
using F = ir::Formula;
using Vs = std::vector<Value>;

// ---- The formulas. ------------------------------------------------------------------------------

// Returns f(x), with slope(x) as its derivative.
F WithDerivative(const F& x, const std::function<F(const F&)>& f,
                 const std::function<F(const F&)>& slope) {
  return ir::WithTangent(
      {*x}, [&](ir::Values v) { return *f(v[0]); },
      [&](ir::Values v, Value, ir::Values d) { return *(slope(v[0]) * F(d[0])); });
}

namespace formulas {

F identity(const F& x) { return x; }
// A NaN stays NaN, and the derivative at 0 is 0.
F relu(const F& x) { return ir::Where(x <= 0, ir::Like(x, 0), x); }
F hard_tanh(const F& x) {
  return ir::Where(x > 1, ir::Like(x, 1), ir::Where(x < -1, ir::Like(x, -1), x));
}
F sigmoid(const F& x) { return ir::Logistic(x); }
F silu(const F& x) { return x * ir::Logistic(x); }
// log(1 + exp(x)). The derivative of this formula would not exist at 0, so it is given as
// `sigmoid`.
F softplus(const F& x) {
  return WithDerivative(
      x, [](const F& v) { return ir::Max(v, 0) + ir::Log1p(ir::Exp(-ir::Abs(v))); }, sigmoid);
}
F log_sigmoid(const F& x) { return -softplus(-x); }
F mish(const F& x) { return x * ir::Apply(ir::Tanh, softplus(x)); }
F soft_sign(const F& x) { return x / (ir::Abs(x) + 1); }
F elu(const F& x, const F& alpha) {
  const F positive = x > 0;
  return ir::Where(positive, x, alpha * ir::Expm1(ir::Where(positive, ir::Like(x, 0), x)));
}
F selu(const F& x) {
  return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717);
}
F celu(const F& x, const F& alpha) {
  return ir::Max(x, 0) + alpha * ir::Expm1(ir::Min(x, 0) / alpha);
}
F leaky_relu(const F& x, const F& negative_slope) {
  return ir::Where(x >= 0, x, negative_slope * x);
}
F squareplus(const F& x, const F& b) { return (x + ir::Sqrt(ir::Square(x) + b)) / 2; }
F relu6(const F& x) { return ir::Where(x >= 6, ir::Like(x, 6), relu(x)); }
F hard_sigmoid(const F& x) { return relu6(x + 3) / 6; }
F hard_silu(const F& x) { return x * hard_sigmoid(x); }
F sparse_plus(const F& x) {
  return ir::Where(x <= -1, ir::Like(x, 0), ir::Where(x >= 1, x, ir::Square(x + 1) / 4));
}
F sparse_sigmoid(const F& x) { return 0.5 * ir::Min(ir::Max(x + 1, 0), 2); }
F log1mexp(const F& x) {
  return WithDerivative(
      x,
      [](const F& v) {
        return ir::Where(v < std::log(2), ir::Log(-ir::Expm1(-v)), ir::Log1p(-ir::Exp(-v)));
      },
      [](const F& v) { return 1 / ir::Expm1(v); });
}

}  // namespace formulas

// Applies f without changing the operand's dtype.
Array ApplyKeepingDType(std::string_view name, const Arg& x, F (*f)(const F&)) {
  return ApplyArgs(name, {x}, Operands::kPromote, [&](ir::Builder&, Vs v) { return *f(v[0]); });
}

}  // namespace

#define TESSERA_DEFINE(name)                                                   \
  Array name(const Arg& x) {                                                   \
    return UnaryInexact(#name, x, [](Value v) { return *formulas::name(v); }); \
  }
TESSERA_NN_UNARY(TESSERA_DEFINE)
#undef TESSERA_DEFINE
#define TESSERA_DEFINE(name, parameter, value)                       \
  Array name(const Arg& x, const Arg& parameter) {                   \
    return ApplyArgs(                                                \
        #name, {x, parameter}, Operands::kPromote,                   \
        [](ir::Builder&, Vs v) {                                     \
          const Vs in = ir::MatchVarying(std::move(v));              \
          return *formulas::name(in[0], in[1]);                      \
        },                                                           \
        internal::InexactOf(internal::CommonDType({x, parameter}))); \
  }
TESSERA_NN_WITH_PARAMETER(TESSERA_DEFINE)
#undef TESSERA_DEFINE

Array identity(const Arg& x) { return ApplyKeepingDType("identity", x, formulas::identity); }
Array relu(const Arg& x) { return ApplyKeepingDType("relu", x, formulas::relu); }
Array hard_tanh(const Arg& x) { return ApplyKeepingDType("hard_tanh", x, formulas::hard_tanh); }
Array gelu(const Arg& x, bool approximate) {
  return UnaryInexact("gelu", x, [&](Value v) {
    const F y = v;
    if (!approximate) return *(0.5 * y * ir::Erfc(-y * std::sqrt(0.5)));
    const F inner = std::sqrt(2 / M_PI) * (y + 0.044715 * y * y * y);
    return *(0.5 * y * (1 + ir::Apply(ir::Tanh, inner)));
  });
}
Array glu(const Arg& x, int axis) {
  const int d = NormalizeAxis("glu", axis, RankOf(x), x.site);
  const int64_t size = x.array->shape()[d];
  if (size % 2 != 0) {
    ThrowError(ErrorKind::kValueError, x.site, "glu: axis size must be divisible by 2, axis ", axis,
               " of ", x.array->type().ToString(), " has ", size);
  }
  return UnaryInexact("glu", x, [&](Value v) {
    Dims from(v.rank(), 0), to = v.shape();
    to[d] = size / 2;
    const Value first = ir::Slice(v, from, to);
    from[d] = size / 2;
    to[d] = size;
    const Value second = ir::Slice(v, from, to);
    return first * ir::Logistic(second);
  });
}

// ---- Functions of rows of numbers. --------------------------------------------------------------

namespace {

// Returns the maximum, or 0 where the maximum is not finite. The result has no derivative.
Value SafeMax(Value x, const std::vector<int64_t>& axes) {
  const Value m = ir::StopGradient(ir::ReduceMax(x, axes));
  return ir::Select(ir::IsFinite(m), m, ir::FullLike(m, 0));
}
Value LogSumExp(Value v, const std::vector<int64_t>& d) {
  v = ToInexact(v);
  const Value m = SafeMax(v, d);
  return ir::Log(ir::ReduceSum(ir::Exp(v - BroadcastBack(m, v, d)), d)) + m;
}

}  // namespace

Array logsumexp(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("logsumexp", x, axes, keepdims, LogSumExp);
}
Array logmeanexp(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("logmeanexp", x, axes, keepdims, [](Value v, const std::vector<int64_t>& d) {
    const Value sum = LogSumExp(v, d);
    const auto count = static_cast<double>(internal::NumReduced(v.shape(), d));
    return sum - ir::FullLike(sum, std::log(count));
  });
}
Array softmax(const Arg& x, int axis) {
  const int64_t d = NormalizeAxis("softmax", axis, RankOf(x), x.site);
  return UnaryInexact("softmax", x, [&](Value v) {
    const Value e = ir::Exp(v - BroadcastBack(SafeMax(v, {d}), v, {d}));
    return e / BroadcastBack(ir::ReduceSum(e, {d}), e, {d});
  });
}
Array log_softmax(const Arg& x, int axis) {
  const int64_t d = NormalizeAxis("log_softmax", axis, RankOf(x), x.site);
  return UnaryInexact("log_softmax", x, [&](Value v) {
    const Value shifted = v - BroadcastBack(SafeMax(v, {d}), v, {d});
    return shifted - BroadcastBack(ir::Log(ir::ReduceSum(ir::Exp(shifted), {d})), v, {d});
  });
}
Array standardize(const Arg& x, const Axes& axes, double epsilon) {
  const std::vector<int64_t> dims = NormalizeAxes("standardize", axes, RankOf(x), x.site);
  return UnaryInexact("standardize", x, [&](Value v) {
    const Value average = MeanOf(v, dims);
    const Value mean_of_squares = MeanOf(ir::Square(v), dims);
    const Value difference = mean_of_squares - ir::Square(average);
    const Value variance = ir::Max(difference, ir::FullLike(difference, 0));
    const Value scale = ir::Rsqrt(variance + ir::FullLike(variance, epsilon));
    const Value centered = v - BroadcastBack(average, v, dims);
    return centered * BroadcastBack(scale, v, dims);
  });
}
Array one_hot(const Arg& x, int64_t classes, DType dtype, int axis,
              const OutSharding& out_sharding) {
  const int new_axis = NormalizeAxis("one_hot", axis, RankOf(x) + 1, x.site);
  return ApplyArgs("one_hot", {x}, Operands::kPromote, [&](ir::Builder& b, Vs v) {
    Dims shape = v[0].shape();
    shape.insert(shape.begin() + new_axis, classes);
    std::vector<int64_t> kept(shape.size());
    std::iota(kept.begin(), kept.end(), 0);
    kept.erase(kept.begin() + new_axis);
    const Value repeated = ir::BroadcastInDim(v[0], shape, kept);
    const Value is_one = ir::Compare(repeated, ir::Iota(b, v[0].dtype(), shape, new_axis), "EQ");
    return internal::Resharded("one_hot", ir::Convert(is_one, dtype), out_sharding, x.site);
  });
}

// ---- Attention. ---------------------------------------------------------------------------------

namespace {

// The operands of dot_product_attention. All have a batch.
struct Attention {
  Array query, key, value;  // [batch, length, heads, size]
  AttentionOptions options;
  Site site;

  int64_t batch() const { return key.dim(0); }
  int64_t length() const { return query.dim(1); }
  int64_t key_length() const { return key.dim(1); }
  int64_t heads() const { return query.dim(2); }
  int64_t key_heads() const { return key.dim(2); }
  int64_t size() const { return key.dim(3); }
};

void CheckOperand(const Attention& a, std::string_view name, const Array& x, const Dims& want,
                  std::optional<DType> dtype) {
  const auto fits = [&] {
    if (x.rank() != static_cast<int>(want.size())) return false;
    for (size_t d = 0; d < want.size(); ++d)
      if (want[d] != -1 && want[d] != x.shape()[d]) return false;
    return !dtype || x.dtype() == *dtype;
  };
  if (fits()) return;
  std::string expected = dtype ? std::string(ir::DTypeName(*dtype)) : "an array of ";
  const char* separator = "[";
  for (const int64_t n : want) {
    absl::StrAppend(&expected, separator, n == -1 ? "any" : absl::StrCat(n));
    separator = ",";
  }
  ThrowError(ErrorKind::kValueError, a.site, "dot_product_attention: ", ToAbsl(name), " is ",
             x.type().ToString(), "; ", expected, "] is expected");
}

// Throws unless all operands fit the shapes of the keys, before anything is multiplied. The errors
// then name the operand that the user gave.
void CheckAttention(const Attention& a) {
  const DType dtype = a.key.dtype();
  if (!ir::IsFloat(dtype)) {
    ThrowError(ErrorKind::kValueError, a.site, "dot_product_attention: key is ",
               a.key.type().ToString(), "; floats are expected");
  }
  CheckOperand(a, "value", a.value, a.key.shape(), dtype);
  CheckOperand(a, "query", a.query, {a.batch(), -1, -1, a.size()}, dtype);
  if (a.heads() % a.key_heads() != 0) {
    ThrowError(ErrorKind::kValueError, a.site,
               "dot_product_attention: the number of query heads must be a multiple of key/value "
               "heads, but got ",
               a.heads(), " vs ", a.key_heads());
  }
  const auto check_score_operand = [&](std::string_view name, const std::optional<Array>& x,
                                       std::optional<DType> want) {
    if (!x) return;
    Dims shape = {a.batch(), a.heads(), a.length(), a.key_length()};
    for (int d = 0; d < 4 && x->rank() == 4; ++d)
      if (x->dim(d) == 1) shape[d] = 1;
    CheckOperand(a, name, *x, shape, want);
  };
  check_score_operand("bias", a.options.bias, std::nullopt);
  check_score_operand("mask", a.options.mask, DType::kBool);
  for (const auto& [name, x] :
       {std::pair("query_seq_lengths", &a.options.query_seq_lengths),
        std::pair("key_value_seq_lengths", &a.options.key_value_seq_lengths)})
    if (*x) CheckOperand(a, name, **x, {a.batch()}, DType::kS32);
}

// Returns which keys each query sees, as bools [batch or 1, 1 or heads, length, key_length], or
// nullopt if every query sees all keys.
std::optional<Array> VisibleKeys(const Attention& a) {
  std::optional<Array> visible = a.options.mask;
  const auto require = [&](const Array& x) { visible = visible ? logical_and(*visible, x) : x; };
  const Array row = reshape(arange(a.length()), {1, 1, a.length(), 1});
  const Array column = reshape(arange(a.key_length()), {1, 1, 1, a.key_length()});
  if (a.options.is_causal) require(row >= column);
  if (a.options.local_window_size) {
    const auto [left, right] = *a.options.local_window_size;
    require(row <= column + left);
    require(row >= column - right);
  }
  if (const auto& lengths = a.options.query_seq_lengths)
    require(row < reshape(*lengths, {a.batch(), 1, 1, 1}));
  if (const auto& lengths = a.options.key_value_seq_lengths)
    require(column < reshape(*lengths, {a.batch(), 1, 1, 1}));
  return visible;
}

// Computes softmax(query key^T) value for groups of heads that share a key, as one contraction for
// all. The score of a key that a query does not see becomes a large negative number instead of
// -infinity, so that a query that sees no key has finite weights.
Array Attend(const Attention& a) {
  const int64_t group = a.heads() / a.key_heads();
  // These shapes are [batch, key heads, length, group, size] and [batch, key heads, key length,
  // size].
  const Array query = transpose(
      reshape(a.query, {a.batch(), a.length(), a.key_heads(), group, a.size()}), {0, 2, 1, 3, 4});
  const DType accumulate_dtype = a.key.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  lax::DotOptions score_options;
  score_options.preferred_element_type = accumulate_dtype;
  lax::DotDimensions dims;
  dims.lhs_batch = {0, 1};
  dims.rhs_batch = {0, 2};
  dims.lhs_contract = {4};
  dims.rhs_contract = {3};
  // The scores are [batch, key heads, length, group, key length], then [batch, heads, length, key
  // length].
  Array scores = lax::dot_general(query, a.key, dims, score_options);
  scores = reshape(transpose(scores, {0, 1, 3, 2, 4}),
                   {a.batch(), a.heads(), a.length(), a.key_length()});
  scores = scores * a.options.scale.value_or(1 / std::sqrt(static_cast<double>(a.size())));
  if (a.options.bias) scores = (scores + *a.options.bias).astype(accumulate_dtype);
  if (const std::optional<Array> visible = VisibleKeys(a)) {
    const double low = -0.7 * static_cast<double>(std::numeric_limits<float>::max());
    scores = where(*visible, scores, low);
  }
  const Array weights = softmax(scores.astype(DType::kF32)).astype(a.key.dtype());
  const Array grouped =
      reshape(weights, {a.batch(), a.key_heads(), group, a.length(), a.key_length()});
  dims.lhs_contract = {4};
  dims.rhs_contract = {1};
  // The result is [batch, key heads, group, length, size], then [batch, length, heads, size].
  const Array out = transpose(lax::dot_general(grouped, a.value, dims), {0, 3, 1, 2, 4});
  const Array result = reshape(out, {a.batch(), a.length(), a.heads(), a.size()});
  if (!a.options.query_seq_lengths) return result;
  const Array row = reshape(arange(a.length()), {1, a.length()});
  const Array is_counted = row < reshape(*a.options.query_seq_lengths, {a.batch(), 1});
  return result * reshape(is_counted, {a.batch(), a.length(), 1, 1}).astype(a.key.dtype());
}

}  // namespace

// Gives operands without a batch a batch of size 1, so that Attend has one case only. Everything is
// traced as one program.
Array dot_product_attention(const Arg& query, const Arg& key, const Arg& value,
                            const AttentionOptions& options) {
  const Site site = internal::SiteOf({query, key, value});
  std::vector<Array> inputs;
  for (const Arg* x : {&query, &key, &value}) {
    if (x->kind != Arg::kArray || (x->array->rank() != 3 && x->array->rank() != 4)) {
      ThrowError(ErrorKind::kValueError, site,
                 "dot_product_attention: query, key and value must have 3 dims or 4, got ",
                 x->kind == Arg::kArray ? x->array->type().ToString() : "a number");
    }
    inputs.push_back(*x->array);
  }
  for (const auto* x :
       {&options.bias, &options.mask, &options.query_seq_lengths, &options.key_value_seq_lengths})
    if (*x) inputs.push_back(**x);
  const Dims shape = query.array->shape();
  return internal::InProgram("dot_product_attention", site, inputs, [&] {
    const auto with_batch = [](const Array& x) {
      Dims dims = x.shape();
      dims.insert(dims.begin(), std::max(0, 4 - x.rank()), 1);
      return reshape(x, dims);
    };
    Attention a{with_batch(*query.array), with_batch(*key.array), with_batch(*value.array), options,
                site};
    if (options.bias) a.options.bias = with_batch(*options.bias);
    if (options.mask) a.options.mask = with_batch(*options.mask);
    CheckAttention(a);
    return std::vector<Array>{reshape(Attend(a), shape)};
  })[0];
}

}  // namespace tessera::nn

// ---- Initializers. ------------------------------------------------------------------------------

namespace tessera::nn::initializers {

namespace {

struct Fans {
  double in, out;
};
Fans FansOf(const Dims& shape, const FanAxes& axes, const Site& site) {
  const int rank = static_cast<int>(shape.size());
  const bool by_default = axes.in_axis.list == std::vector<int64_t>{-2};
  if (by_default && rank <= 1) {
    internal::ThrowError(ErrorKind::kValueError, site, "Can't compute input and output sizes of a ",
                         rank,
                         "-dimensional weights tensor with default in_axis. Must be at least 2D or "
                         "specify in_axis explicitly");
  }
  const auto size_of = [&](const Axes& a) {
    const std::vector<int64_t> dims = internal::NormalizeAxes("variance_scaling", a, rank, site);
    return static_cast<double>(internal::NumReduced(shape, dims));
  };
  double all = 1;
  for (const int64_t n : shape) all *= static_cast<double>(n);
  const double in = size_of(axes.in_axis), out = size_of(axes.out_axis);
  const double field = all / in / out / size_of(axes.batch_axis);
  return {in * field, out * field};
}
double Denominator(const Fans& fans, std::string_view mode, const Site& site) {
  if (mode == "fan_in") return fans.in;
  if (mode == "fan_out") return fans.out;
  if (mode == "fan_avg") return (fans.in + fans.out) / 2;
  if (mode == "fan_geo_avg") return std::sqrt(fans.in * fans.out);
  internal::ThrowError(ErrorKind::kValueError, site,
                       "invalid mode for variance scaling initializer: ", ToAbsl(mode),
                       "; fan_in, fan_out, fan_avg or fan_geo_avg is expected");
}

// Rounds the number to the dtype, because jax.nn computes with the rounded number.
double Rounded(double x, DType dtype) { return ir::Array::Scalar(dtype, x).At(0); }

}  // namespace

Array zeros(const Arg& key, const Dims& shape, DType dtype) {
  return tessera::zeros(shape, dtype, key.site);
}
Array ones(const Arg& key, const Dims& shape, DType dtype) {
  return tessera::ones(shape, dtype, key.site);
}
Initializer constant(double value, DType dtype) {
  return {[=](const Arg& key, const Dims& shape, DType d) {
            return tessera::full(shape, value, d, key.site);
          },
          dtype};
}
Initializer uniform(double scale, DType dtype) {
  return {[=](const Arg& key, const Dims& shape, DType d) {
            return random::uniform(key, shape, d) * scale;
          },
          dtype};
}
Initializer normal(double stddev, DType dtype) {
  return {[=](const Arg& key, const Dims& shape, DType d) {
            return random::normal(key, shape, d) * stddev;
          },
          dtype};
}
Initializer truncated_normal(double stddev, DType dtype, double lower, double upper) {
  return {[=](const Arg& key, const Dims& shape, DType d) {
            return random::truncated_normal(key, lower, upper, shape, d) * stddev;
          },
          dtype};
}
Initializer orthogonal(double scale, int column_axis, DType dtype) {
  return {[=](const Arg& key, const Dims& shape, DType d) {
            const int rank = static_cast<int>(shape.size());
            if (rank < 2) {
              internal::ThrowError(ErrorKind::kValueError, key.site,
                                   "orthogonal initializer requires at least a 2D shape, got ",
                                   rank, " dims");
            }
            const int axis = internal::NormalizeAxis("orthogonal", column_axis, rank, key.site);
            const int64_t all = internal::NumReduced(
                shape, internal::NormalizeAxes("orthogonal", {}, rank, key.site));
            if (all == 0) return tessera::zeros(shape, d, key.site);
            const int64_t columns = shape[axis];
            Dims moved_shape = shape;
            moved_shape.erase(moved_shape.begin() + axis);
            moved_shape.push_back(columns);
            std::vector<int64_t> order(rank);
            std::iota(order.begin(), order.end(), 0);
            order.pop_back();
            order.insert(order.begin() + axis, rank - 1);
            const Array q = random::orthogonal(key, all / columns, {}, d, columns);
            return transpose(reshape(q, moved_shape), order) * scale;
          },
          dtype};
}
// jax.nn rounds the variance and the standard deviation to the dtype in turn, and so does this
// function, so that a key gives JAX's weights.
Initializer variance_scaling(double scale, std::string_view mode, std::string_view distribution,
                             const FanAxes& axes, DType dtype) {
  return {[=, mode = std::string(mode), distribution = std::string(distribution)](
              const Arg& key, const Dims& shape, DType d) {
            if (!ir::IsFloat(d)) {
              internal::ThrowError(ErrorKind::kTypeError, key.site, "variance_scaling: dtype ",
                                   ToAbsl(ir::DTypeName(d)), "; a float is expected");
            }
            const double n = Denominator(FansOf(shape, axes, key.site), mode, key.site);
            const double variance = Rounded(scale / n, d);
            if (distribution == "normal")
              return random::normal(key, shape, d) * std::sqrt(variance);
            if (distribution == "uniform")
              return random::uniform(key, shape, d, -1.0, 1.0) * std::sqrt(3 * variance);
            if (distribution != "truncated_normal") {
              internal::ThrowError(
                  ErrorKind::kValueError, key.site,
                  "invalid distribution for variance scaling initializer: ", distribution,
                  "; truncated_normal, normal or uniform is expected");
            }
            // The standard deviation of standard normal numbers that are truncated to [-2, 2].
            constexpr double kTruncatedStddev = .87962566103423978;
            const double stddev = Rounded(std::sqrt(variance), d) / Rounded(kTruncatedStddev, d);
            return random::truncated_normal(key, -2.0, 2.0, shape, d) * stddev;
          },
          dtype};
}

}  // namespace tessera::nn::initializers
