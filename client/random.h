// Random numbers from keys: those of jax.random with its default generator, threefry2x32 with
// partitionable counters, independent of the sharding of the result. Reference: Salmon et al. 2011.
//
// A key is a u32[2] array. Each use of a key gives the same numbers: split it for each use.
//
// `shape` is that of the result. Where it is optional it is by default that to which the parameters
// broadcast; they must broadcast to one that is given. Parameters are numbers or arrays, whose
// dtype must promote to `dtype`, the result's: a float of 16 bits or more, unless something else is
// said. Samples have derivatives with respect to their parameters where they have them in JAX.
//
// bits, uniform, randint, permutation, bernoulli and what selects by them are JAX's to the bit;
// others are computed from the same bits by the same formulas, and differ by a few units in the
// last place; so that a sampler that rejects, or a choice among close ones, may differ once in a
// great many samples. docs/from_jax.md has the numbers.
//
// Numbers do not depend on where they lie. bits, uniform, randint, bernoulli and normal take the
// sharding of the result on the Explicit axes of the mesh in context, and each device draws its
// own; the samples of others are moved by reshard.
//
// Errors: TYPE_ERROR for what is no key, and for a parameter that would lose digits; VALUE_ERROR
// for a shape, a dtype, a mode or an axis that does not fit; LIMIT_EXCEEDED for 2^32 samples of one
// key.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "client/array.h"
#include "client/mesh.h"

namespace tessera::random {

using Shape = std::optional<Dims>;

Array key(uint64_t seed, Site site = Site::Here());
Array split(const Arg& key, int64_t n = 2);      // u32[n,2]
Array fold_in(const Arg& key, const Arg& data);  // a key for (key, data); data 32 bits
// u8, u16, u32 or u64.
Array bits(const Arg& key, Dims shape = {}, DType dtype = DType::kU32,
           const OutSharding& out_sharding = {});

// ---- Uniform numbers and choices. ---------------------------------------------------------------

// In [low, high). The bounds broadcast to the shape.
Array uniform(const Arg& key, Dims shape = {}, DType dtype = DType::kF32, const Arg& low = 0.0,
              const Arg& high = 1.0, const OutSharding& out_sharding = {});
// Integers of `dtype` in [low, high); low where that is empty. As JAX biased, by less than 2^-32.
// The bounds are integers that broadcast to the shape; high may be one more than the dtype holds.
Array randint(const Arg& key, Dims shape, const Arg& low, const Arg& high,
              DType dtype = DType::kS32, const OutSharding& out_sharding = {});
// Whether a uniform number of p's dtype is below p, a float; of mode "high" one of more digits.
Array bernoulli(const Arg& key, const Arg& p = 0.5, Shape shape = {}, std::string_view mode = "low",
                const OutSharding& out_sharding = {});
// -1 or 1, of any dtype.
Array rademacher(const Arg& key, Dims shape = {}, DType dtype = DType::kS32);
// x, or the s32 below a number, in a random order along an axis: all rows in the same, or each by
// itself.
Array permutation(const Arg& key, const Arg& x, int axis = 0, bool independent = false);
// Elements of `a` along an axis, or of the s32 below a number: `shape` takes the place of the axis.
// With weights `p`, a vector; those of a choice with `replace` add up to 1 or are scaled so.
Array choice(const Arg& key, const Arg& a, Dims shape = {}, bool replace = true,
             const std::optional<Array>& p = std::nullopt, int axis = 0,
             std::string_view mode = "low");
// Indices (s32) along an axis, with probabilities proportional to exp(logits). `shape` ends with
// that of the logits without the axis, which is the default. Without `replace` the indices that the
// dims before have are distinct.
Array categorical(const Arg& key, const Arg& logits, int axis = -1, Shape shape = {},
                  bool replace = true, std::string_view mode = "low");
// Of mode "low", or "high" with more digits at the upper end, or "highest".
Array gumbel(const Arg& key, Dims shape = {}, DType dtype = DType::kF32,
             std::string_view mode = "low");

// ---- Distributions of real numbers. -------------------------------------------------------------

// Complex numbers, too: of parts whose variances add up to 1.
Array normal(const Arg& key, Dims shape = {}, DType dtype = DType::kF32,
             const OutSharding& out_sharding = {});
// Between `lower` and `upper`.
Array truncated_normal(const Arg& key, const Arg& lower, const Arg& upper, Shape shape = {},
                       DType dtype = DType::kF32);
// Vectors of the last dim: mean is [..., n], cov [..., n, n], of which a factor is found by
// `method`, "cholesky", "eigh" or "svd". The shape is that of the dims before n.
Array multivariate_normal(const Arg& key, const Arg& mean, const Arg& cov, Shape shape = {},
                          std::optional<DType> dtype = std::nullopt,
                          std::string_view method = "cholesky");
Array lognormal(const Arg& key, const Arg& sigma = 1.0, Shape shape = {},
                DType dtype = DType::kF32);
// Of density proportional to exp(-|x|^p).
Array generalized_normal(const Arg& key, const Arg& p, Dims shape = {}, DType dtype = DType::kF32);
// Uniform in the ball of the p-norm of d dims, which come last.
Array ball(const Arg& key, int64_t d, const Arg& p = 2.0, Dims shape = {},
           DType dtype = DType::kF32);
// Matrices [..., n, m], m being n by default, whose rows or columns, the fewer, are orthonormal.
Array orthogonal(const Arg& key, int64_t n, Dims shape = {}, DType dtype = DType::kF32,
                 std::optional<int64_t> m = std::nullopt);
Array exponential(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array laplace(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array logistic(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array cauchy(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array maxwell(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
// The shape of the parameters is appended to one that is given.
Array double_sided_maxwell(const Arg& key, const Arg& loc, const Arg& scale, Dims shape = {},
                           DType dtype = DType::kF32);
Array pareto(const Arg& key, const Arg& b, Shape shape = {}, DType dtype = DType::kF32);
Array rayleigh(const Arg& key, const Arg& scale, Shape shape = {}, DType dtype = DType::kF32);
Array triangular(const Arg& key, const Arg& left, const Arg& mode, const Arg& right,
                 Shape shape = {}, DType dtype = DType::kF32);
Array wald(const Arg& key, const Arg& mean, Shape shape = {}, DType dtype = DType::kF32);
// The parameters broadcast with the shape.
Array weibull_min(const Arg& key, const Arg& scale, const Arg& concentration, Dims shape = {},
                  DType dtype = DType::kF32);

// ---- By rejection: gamma and what is made of it, counts. ----------------------------------------

// Samples have derivatives with respect to `a`. The logarithm is exact where a sample is 0.
Array gamma(const Arg& key, const Arg& a, Shape shape = {}, DType dtype = DType::kF32);
Array loggamma(const Arg& key, const Arg& a, Shape shape = {}, DType dtype = DType::kF32);
Array beta(const Arg& key, const Arg& a, const Arg& b, Shape shape = {}, DType dtype = DType::kF32);
Array chisquare(const Arg& key, const Arg& df, Shape shape = {}, DType dtype = DType::kF32);
Array f(const Arg& key, const Arg& dfnum, const Arg& dfden, Shape shape = {},
        DType dtype = DType::kF32);
Array t(const Arg& key, const Arg& df, Shape shape = {}, DType dtype = DType::kF32);
// Vectors of the last dim: alpha is [..., n], and the shape that of the dims before n.
Array dirichlet(const Arg& key, const Arg& alpha, Shape shape = {}, DType dtype = DType::kF32);
// Counts of an integer dtype.
Array geometric(const Arg& key, const Arg& p, Shape shape = {}, DType dtype = DType::kS32);
Array poisson(const Arg& key, const Arg& lam, Shape shape = {}, DType dtype = DType::kS32);
// Counts as floats.
Array binomial(const Arg& key, const Arg& n, const Arg& p, Shape shape = {},
               DType dtype = DType::kF32);
// How often each of the categories of the last dim of p comes in n draws, as floats.
Array multinomial(const Arg& key, const Arg& n, const Arg& p, Shape shape = {},
                  DType dtype = DType::kF32);

}  // namespace tessera::random
