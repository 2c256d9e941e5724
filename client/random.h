// Random numbers from keys, as in jax.random with its default generator, threefry2x32 with
// partitionable counters. They do not depend on the sharding of the result. Reference: Salmon et
// al. 2011.
//
// A key is a u32[2] array. Each use of a key gives the same numbers: split it for each use.
//
// `shape` is the shape of the result. Where it is optional, the default is the shape to which the
// parameters broadcast; they must broadcast to a given shape. Parameters are numbers or arrays,
// whose dtype must be promotable to `dtype`, the dtype of the result. Unless a function says
// otherwise, `dtype` is a float of 16 bits or more. Samples have derivatives with respect to their
// parameters if they have them in JAX.
//
// bits, uniform, randint, permutation and bernoulli, and functions that select elements by their
// numbers, equal JAX's to the bit. Other functions compute from the same bits by the same formulas,
// and differ by a few units in the last place. A sampler that rejects, or a choice among close
// numbers, may therefore differ once in a great many samples. docs/from_jax.md has the figures.
//
// bits, uniform, randint, bernoulli and normal take the sharding of the result on the Explicit axes
// of the mesh in context (`out_sharding`), and each device draws the numbers of its own shard. To
// shard the samples of another function, call reshard on them.
//
// Errors: TYPE_ERROR for an argument that is no key, and for a parameter that would lose digits;
// VALUE_ERROR for a shape, a dtype, a mode or an axis that does not fit; LIMIT_EXCEEDED for 2^32 or
// more samples of one key.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "client/array.h"
#include "client/mesh.h"

namespace tessera::random {

using Shape = std::optional<Dims>;

// Returns the key of a seed.
Array key(uint64_t seed, Site site = Site::Here());
Array split(const Arg& key, int64_t n = 2);      // n keys, u32[n,2]
Array fold_in(const Arg& key, const Arg& data);  // a key for the pair (key, data); data has 32 bits
// Random bits as u8, u16, u32 or u64.
Array bits(const Arg& key, Dims shape = {}, DType dtype = DType::kU32,
           const OutSharding& out_sharding = {});

// ---- Uniform numbers and choices. ---------------------------------------------------------------

// Numbers in [low, high). The bounds broadcast to the shape.
Array uniform(const Arg& key, Dims shape = {}, DType dtype = DType::kF32, const Arg& low = 0.0,
              const Arg& high = 1.0, const OutSharding& out_sharding = {});
// Integers of `dtype` in [low, high), or low if that is empty. They are biased as in JAX, by less
// than 2^-32. The bounds are integers that broadcast to the shape; high may be one more than the
// dtype holds.
Array randint(const Arg& key, Dims shape, const Arg& low, const Arg& high,
              DType dtype = DType::kS32, const OutSharding& out_sharding = {});
// Bools: whether a uniform number of p's dtype is below p, a float. With mode "high" the uniform
// number has more digits.
Array bernoulli(const Arg& key, const Arg& p = 0.5, Shape shape = {}, std::string_view mode = "low",
                const OutSharding& out_sharding = {});
// -1 or 1, in any dtype.
Array rademacher(const Arg& key, Dims shape = {}, DType dtype = DType::kS32);
// Returns x in a random order along an axis. A number x stands for the s32 numbers below it. All
// rows have the same order, or each has its own if `independent`.
Array permutation(const Arg& key, const Arg& x, int axis = 0, bool independent = false);
// Returns elements of `a`, chosen at random along an axis. A number `a` stands for the s32 numbers
// below it. In the result, `shape` takes the place of the axis. `p` is a vector of weights. With
// `replace` the weights need not add up to 1: they are scaled.
Array choice(const Arg& key, const Arg& a, Dims shape = {}, bool replace = true,
             const std::optional<Array>& p = std::nullopt, int axis = 0,
             std::string_view mode = "low");
// Returns indices (s32) along an axis, with probabilities proportional to exp(logits). `shape` ends
// with the logits' shape without the axis; by default it is only that. Without `replace`, the
// indices along the leading dims of `shape`, which the logits do not have, are distinct.
Array categorical(const Arg& key, const Arg& logits, int axis = -1, Shape shape = {},
                  bool replace = true, std::string_view mode = "low");
// Gumbel numbers. Mode "high" has more digits at the upper end than "low", "highest" the most.
Array gumbel(const Arg& key, Dims shape = {}, DType dtype = DType::kF32,
             std::string_view mode = "low");

// ---- Distributions of real numbers. -------------------------------------------------------------

// Normal numbers. The variances of the parts of a complex number add up to 1.
Array normal(const Arg& key, Dims shape = {}, DType dtype = DType::kF32,
             const OutSharding& out_sharding = {});
// Normal numbers between `lower` and `upper`.
Array truncated_normal(const Arg& key, const Arg& lower, const Arg& upper, Shape shape = {},
                       DType dtype = DType::kF32);
// Vectors along the last dim. mean is [..., n], cov [..., n, n]; `method` ("cholesky", "eigh" or
// "svd") finds a factor of cov. `shape` is the shape of the dims before n.
Array multivariate_normal(const Arg& key, const Arg& mean, const Arg& cov, Shape shape = {},
                          std::optional<DType> dtype = std::nullopt,
                          std::string_view method = "cholesky");
Array lognormal(const Arg& key, const Arg& sigma = 1.0, Shape shape = {},
                DType dtype = DType::kF32);
// Numbers with a density proportional to exp(-|x|^p).
Array generalized_normal(const Arg& key, const Arg& p, Dims shape = {}, DType dtype = DType::kF32);
// Uniform in the unit ball of the p-norm. The d dims of a vector come last.
Array ball(const Arg& key, int64_t d, const Arg& p = 2.0, Dims shape = {},
           DType dtype = DType::kF32);
// Matrices [..., n, m], where m is n by default. The rows or columns, whichever are fewer, are
// orthonormal.
Array orthogonal(const Arg& key, int64_t n, Dims shape = {}, DType dtype = DType::kF32,
                 std::optional<int64_t> m = std::nullopt);
Array exponential(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array laplace(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array logistic(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array cauchy(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
Array maxwell(const Arg& key, Dims shape = {}, DType dtype = DType::kF32);
// The shape of the parameters is appended to a given shape.
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

// ---- Samplers by rejection: gamma and distributions derived from it, counts. --------------------

// gamma and loggamma have derivatives with respect to `a`. loggamma returns the logarithms of
// gamma's samples; they are exact even where the sample itself would round to 0.
Array gamma(const Arg& key, const Arg& a, Shape shape = {}, DType dtype = DType::kF32);
Array loggamma(const Arg& key, const Arg& a, Shape shape = {}, DType dtype = DType::kF32);
Array beta(const Arg& key, const Arg& a, const Arg& b, Shape shape = {}, DType dtype = DType::kF32);
Array chisquare(const Arg& key, const Arg& df, Shape shape = {}, DType dtype = DType::kF32);
Array f(const Arg& key, const Arg& dfnum, const Arg& dfden, Shape shape = {},
        DType dtype = DType::kF32);
Array t(const Arg& key, const Arg& df, Shape shape = {}, DType dtype = DType::kF32);
// Vectors along the last dim. alpha is [..., n], and `shape` is the shape of the dims before n.
Array dirichlet(const Arg& key, const Arg& alpha, Shape shape = {}, DType dtype = DType::kF32);
// Counts, in an integer dtype.
Array geometric(const Arg& key, const Arg& p, Shape shape = {}, DType dtype = DType::kS32);
Array poisson(const Arg& key, const Arg& lam, Shape shape = {}, DType dtype = DType::kS32);
// Counts, as floats.
Array binomial(const Arg& key, const Arg& n, const Arg& p, Shape shape = {},
               DType dtype = DType::kF32);
// Returns how often each category occurs in n draws, as floats. The last dim of p has the
// probabilities of the categories.
Array multinomial(const Arg& key, const Arg& n, const Arg& p, Shape shape = {},
                  DType dtype = DType::kF32);

}  // namespace tessera::random
