// Distributions of real numbers that are formulas of uniform and of normal numbers. Most go through
// Sampled (random_draws.h), which checks the key and the parameters.
#include <algorithm>
#include <cmath>
#include <limits>

#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/lib/random_draws.h"
#include "client/linalg.h"
#include "client/numpy.h"
#include "client/random.h"

namespace tessera::random {
namespace {

using internal::ArraysOf;
using internal::CheckedKey;
using internal::CheckFloat;
using internal::Child;
using internal::KeyWordsOf;
using internal::Sampled;
using internal::SamplerArgs;
using internal::SampleShape;
using internal::ShapeOf;
using ir::Value;
using tessera::internal::Apply1;
using tessera::internal::BroadcastShapes;
using tessera::internal::BroadcastTo;
using tessera::internal::ThrowError;
using F = ir::Formula;
using Vs = std::vector<Value>;

// Returns the distance from 1 to the next number.
double Epsilon(DType dtype) {
  return dtype == DType::kF64   ? 0x1p-52
         : dtype == DType::kF32 ? 0x1p-23
         : dtype == DType::kF16 ? 0x1p-10
                                : 0x1p-7;
}
double LeastNormal(DType dtype) {
  return dtype == DType::kF64   ? std::numeric_limits<double>::min()
         : dtype == DType::kF16 ? 0x1p-14
                                : static_cast<double>(std::numeric_limits<float>::min());
}
F NormalOf(const SamplerArgs& d) { return internal::Normal(d.key, d.shape, d.dtype, d.site); }
F ExponentialOf(const SamplerArgs& d) {
  return internal::Exponential(d.key, d.shape, d.dtype, d.site);
}
SamplerArgs WithKey(const SamplerArgs& d, const internal::KeyWords& key) {
  SamplerArgs out = d;
  out.key = key;
  return out;
}

// Returns the norms of normal vectors with 3 dims.
F MaxwellOf(const SamplerArgs& d) {
  Dims three = d.shape;
  three.push_back(3);
  const Value x = internal::Normal(d.key, three, d.dtype, d.site);
  return ir::Sqrt(F(ir::ReduceSum(x * x, {x.rank() - 1})));
}

}  // namespace

Array normal(const Arg& k, Dims shape, DType dtype, const OutSharding& out_sharding) {
  const Array& key = CheckedKey("normal", k);
  if (dtype != DType::kC64 && dtype != DType::kC128) CheckFloat("normal", dtype, k.site);
  return Apply1("random_normal", k.site, {key}, [&](ir::Builder&, Vs v) {
    internal::KeyWords words = KeyWordsOf(v[0]);
    words.out_sharding = out_sharding;
    return internal::Normal(words, shape, dtype, k.site);
  });
}

Array truncated_normal(const Arg& k, const Arg& lower, const Arg& upper, Shape shape, DType dtype) {
  return Sampled("truncated_normal", k, shape, {lower, upper}, dtype, [](const SamplerArgs& d) {
    const double root = std::sqrt(2.0);
    const F from = ir::Erf(d[0] / root), to = ir::Erf(d[1] / root);
    const Value low = *from;
    const F u = internal::Uniform(d.key, d.shape, d.dtype, low, *to, d.site);
    const F x = root * ir::ErfInv(u);
    // Clamp to the open interval: rounding may have moved a number to an end of it.
    const F least =
        ir::Nextafter(F(ir::StopGradient(*d[0])), std::numeric_limits<double>::infinity());
    const F most =
        ir::Nextafter(F(ir::StopGradient(*d[1])), -std::numeric_limits<double>::infinity());
    return ir::Min(ir::Max(x, least), most);
  });
}

// Multiplies normal vectors by a factor of the covariance. mean and cov compute in their common
// dtype, while the normal numbers have `dtype`.
Array multivariate_normal(const Arg& k, const Arg& mean, const Arg& cov, Shape shape,
                          std::optional<DType> dtype, std::string_view method) {
  const Array& key = CheckedKey("multivariate_normal", k);
  if (method != "cholesky" && method != "eigh" && method != "svd")
    ThrowError(ErrorKind::kValueError, k.site, "random::multivariate_normal: method is '",
               ToAbsl(method), "'; expected svd, eigh or cholesky");
  if (mean.kind != Arg::kArray || mean.array->rank() < 1)
    ThrowError(ErrorKind::kValueError, k.site,
               "random::multivariate_normal requires a mean of at least 1 dim");
  const int64_t n = mean.array->dim(-1);
  if (cov.kind != Arg::kArray || cov.array->rank() < 2 || cov.array->dim(-1) != n ||
      cov.array->dim(-2) != n)
    ThrowError(ErrorKind::kValueError, k.site,
               "random::multivariate_normal requires a covariance of shape [..., n, n] for n = ", n,
               ", got ", cov.kind == Arg::kArray ? cov.array->type().ToString() : "a number");
  DType compute_dtype = tessera::internal::CommonDType({mean, cov});
  if (!ir::IsFloat(compute_dtype))
    compute_dtype =
        compute_dtype == DType::kS64 || compute_dtype == DType::kU64 ? DType::kF64 : DType::kF32;
  const DType drawn_dtype = dtype.value_or(compute_dtype);
  CheckFloat("multivariate_normal", drawn_dtype, k.site);
  const Dims& m = mean.array->shape();
  const Dims& c = cov.array->shape();
  Dims out = SampleShape("multivariate_normal", shape,
                         {Dims(m.begin(), m.end() - 1), Dims(c.begin(), c.end() - 2)}, k.site);
  out.push_back(n);
  return tessera::internal::InProgram(
      "random_multivariate_normal", k.site, ArraysOf(key, {mean, cov}), [&] {
        const Array center = mean.array->astype(compute_dtype, k.site);
        const Array covariance = cov.array->astype(compute_dtype, k.site);
        Array factor;
        if (method == "cholesky") {
          factor = linalg::cholesky(covariance, /*upper=*/false, k.site);
        } else if (method == "eigh") {
          const auto [values, vectors] = linalg::eigh(covariance, true, k.site);
          factor = Arg(vectors, k.site) * sqrt(Arg(expand_dims(values, -2), k.site));
        } else {
          const linalg::Svd parts = linalg::svd(covariance, /*full_matrices=*/true, k.site);
          factor = Arg(parts.u, k.site) * sqrt(Arg(expand_dims(parts.s, -2), k.site));
        }
        const Array x = normal(k, out, drawn_dtype);
        const Array products = matmul(Arg(factor, k.site), Arg(expand_dims(x, -1), k.site));
        return std::vector<Array>{Arg(center, k.site) + squeeze(products, -1)};
      })[0];
}

Array lognormal(const Arg& k, const Arg& sigma, Shape shape, DType dtype) {
  return Sampled("lognormal", k, shape, {sigma}, dtype,
                 [](const SamplerArgs& d) { return ir::Exp(NormalOf(d) * d[0]); });
}

Array exponential(const Arg& k, Dims shape, DType dtype) {
  return Sampled("exponential", k, shape, {}, dtype, ExponentialOf);
}
Array laplace(const Arg& k, Dims shape, DType dtype) {
  return Sampled("laplace", k, shape, {}, dtype, [](const SamplerArgs& d) {
    const F u = d.uniform(-1 + Epsilon(d.dtype) / 2, 1);
    return ir::Sign(u) * ir::Log1p(-ir::Abs(u));
  });
}
Array logistic(const Arg& k, Dims shape, DType dtype) {
  return Sampled("logistic", k, shape, {}, dtype, [](const SamplerArgs& d) {
    const F u = d.uniform(LeastNormal(d.dtype), 1);
    return ir::Log(u) - ir::Log1p(-u);
  });
}
Array cauchy(const Arg& k, Dims shape, DType dtype) {
  return Sampled("cauchy", k, shape, {}, dtype, [](const SamplerArgs& d) {
    const F u = d.uniform(Epsilon(d.dtype), 1);
    return ir::Tan(M_PI * (u - 0.5));
  });
}
Array maxwell(const Arg& k, Dims shape, DType dtype) {
  return Sampled("maxwell", k, shape, {}, dtype, MaxwellOf);
}
Array double_sided_maxwell(const Arg& k, const Arg& loc, const Arg& scale, Dims shape,
                           DType dtype) {
  const Dims params =
      BroadcastShapes("double_sided_maxwell", {ShapeOf(loc), ShapeOf(scale)}, k.site);
  Dims out = shape.empty() ? params : shape;
  out.insert(out.end(), params.begin(), params.end());
  return Sampled("double_sided_maxwell", k, out, {loc, scale}, dtype, [](const SamplerArgs& d) {
    const F size = MaxwellOf(WithKey(d, Child(d.key, 0)));
    const F sign = internal::Signs(Child(d.key, 1), d.shape, d.dtype, d.site);
    return sign * size * d[1] + d[0];
  });
}
Array pareto(const Arg& k, const Arg& b, Shape shape, DType dtype) {
  return Sampled("pareto", k, shape, {b}, dtype,
                 [](const SamplerArgs& d) { return ir::Exp(ExponentialOf(d) / d[0]); });
}
Array rayleigh(const Arg& k, const Arg& scale, Shape shape, DType dtype) {
  return Sampled("rayleigh", k, shape, {scale}, dtype, [](const SamplerArgs& d) {
    const F u = d.uniform();
    return d[0] * ir::Sqrt(ir::Log(u) * -2);
  });
}
Array triangular(const Arg& k, const Arg& left, const Arg& mode, const Arg& right, Shape shape,
                 DType dtype) {
  return Sampled("triangular", k, shape, {left, mode, right}, dtype, [](const SamplerArgs& d) {
    const F &from = d[0], &peak = d[1], &to = d[2];
    const F at_peak = (peak - from) / (to - from);
    const F u = d.uniform();
    const F below = from + ir::Sqrt(u * (to - from) * (peak - from));
    const F above = to - ir::Sqrt((1 - u) * (to - from) * (to - peak));
    return ir::Where(u < at_peak, below, above);
  });
}
Array wald(const Arg& k, const Arg& mean, Shape shape, DType dtype) {
  return Sampled("wald", k, shape, {mean}, dtype, [](const SamplerArgs& d) {
    const F v = NormalOf(WithKey(d, Child(d.key, 0)));
    const F z = WithKey(d, Child(d.key, 1)).uniform();
    const F& mean_in = d[0];
    const F y = ir::Square(v);
    const F mean_square = ir::Square(mean_in);
    const F root = ir::Sqrt(4 * mean_in * y + mean_square * ir::Square(y));
    const F x = mean_in + mean_square * y / 2 - mean_in / 2 * root;
    return ir::Where(z <= mean_in / (mean_in + x), x, mean_square / x);
  });
}
Array weibull_min(const Arg& k, const Arg& scale, const Arg& concentration, Dims shape,
                  DType dtype) {
  const Array& key = CheckedKey("weibull_min", k);
  CheckFloat("weibull_min", dtype, k.site);
  const Dims out =
      BroadcastShapes("weibull_min", {shape, ShapeOf(scale), ShapeOf(concentration)}, k.site);
  return Apply1("random_weibull_min", k.site, ArraysOf(key, {scale, concentration}),
                [&](ir::Builder& b, Vs v) {
                  const F u = internal::Uniform(KeyWordsOf(v[0]), shape, dtype, 0, 1, k.site);
                  const F quantile = BroadcastTo(*-ir::Log1p(-u), out);
                  size_t next = 1;
                  const F size = BroadcastTo(internal::NextParam(b, scale, dtype, v, &next), out);
                  const F power =
                      BroadcastTo(internal::NextParam(b, concentration, dtype, v, &next), out);
                  return *(ir::Pow(quantile, 1 / power) * size);
                });
}

Array orthogonal(const Arg& k, int64_t n, Dims shape, DType dtype, std::optional<int64_t> m) {
  const Array& key = CheckedKey("orthogonal", k);
  CheckFloat("orthogonal", dtype, k.site);
  const int64_t columns = m.value_or(n);
  if (n < 0 || columns < 0)
    ThrowError(ErrorKind::kValueError, k.site, "random::orthogonal: sizes of 0 or more are ",
               "expected, got ", n, " and ", columns);
  Dims full = shape;
  full.push_back(std::max(n, columns));
  full.push_back(std::min(n, columns));
  return Apply1("random_orthogonal", k.site, {key}, [&](ir::Builder&, Vs v) {
    const Value z = internal::Normal(KeyWordsOf(v[0]), full, dtype, k.site);
    const auto [q, r] = ir::Qr(z);
    const int rank = r.rank();
    // Multiplying by the signs of r's diagonal makes the distribution of q uniform.
    const Value row = ir::Iota(r.builder(), DType::kS32, r.shape(), rank - 2);
    const Value column = ir::Iota(r.builder(), DType::kS32, r.shape(), rank - 1);
    const F diagonal = ir::Where(F(row) == F(column), F(r), 0);
    const Value sums = ir::ReduceSum(*diagonal, {rank - 2});
    const Value signs = ir::Sign(sums);
    Dims wide = q.shape();
    const Value x = ir::Mul(q, BroadcastTo(ir::ExpandDims(signs, {rank - 2}), wide));
    return n < columns ? ir::MoveDim(x, rank - 1, rank - 2) : x;
  });
}

}  // namespace tessera::random
