// Special functions with the names of jax.lax, composed of other ops. Stateless; thread-safe.
//
// Operands are floats of one dtype, of one shape or scalars; f16 and bf16 compute in f32. They
// have JAX's values, by its algorithms, and its derivatives: what has none in JAX has none here,
// and differentiating it throws NOT_IMPLEMENTED. All throw StatusException.
#pragma once
#include "ir/builder.h"

namespace tessera::ir {

// Hurwitz's zeta function, the sum of (q + k)^-x. No derivatives, as in JAX.
Value Zeta(Value x, Value q);
// The derivative of digamma of order m, a whole number. It has derivatives with respect to x.
Value Polygamma(Value m, Value x);
// The regularized incomplete gamma functions, lower and upper, with both derivatives.
Value Igamma(Value a, Value x);
Value Igammac(Value a, Value x);
// The derivative of igamma with respect to a; and that of a sample x of Gamma(a, 1). They have no
// derivatives.
Value IgammaGradA(Value a, Value x);
Value RandomGammaGrad(Value a, Value x);
// The regularized incomplete beta function. It has derivatives with respect to x.
Value RegularizedIncompleteBeta(Value a, Value b, Value x);
// exp(-|x|) times the modified Bessel functions of the first kind, of orders 0 and 1.
Value BesselI0e(Value x);
Value BesselI1e(Value x);

}  // namespace tessera::ir
