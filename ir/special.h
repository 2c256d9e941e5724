// Special functions with the names of jax.lax, composed of other ops. Stateless; thread-safe.
//
// Operands are floats of one dtype, and of one shape or scalars. f16 and bf16 are computed in f32.
// Values and derivatives are those of JAX, because the functions use JAX's algorithms. A derivative
// that JAX lacks throws NOT_IMPLEMENTED. All functions throw StatusException.
#pragma once
#include "ir/builder.h"

namespace tessera::ir {

// Hurwitz's zeta function, the sum of (q + k)^-x. It has no derivatives, as in JAX.
Value Zeta(Value x, Value q);
// The derivative of order m of digamma; m is a whole number. It has derivatives with respect to x.
Value Polygamma(Value m, Value x);
// The regularized incomplete gamma functions, lower and upper, with derivatives for both operands.
Value Igamma(Value a, Value x);
Value Igammac(Value a, Value x);
// The derivative of igamma with respect to a, and the derivative of a sample x of Gamma(a, 1) with
// respect to a. Neither has derivatives.
Value IgammaGradA(Value a, Value x);
Value RandomGammaGrad(Value a, Value x);
// The regularized incomplete beta function. It has derivatives with respect to x.
Value RegularizedIncompleteBeta(Value a, Value b, Value x);
// exp(-|x|) times the modified Bessel functions of the first kind, of orders 0 and 1.
Value BesselI0e(Value x);
Value BesselI1e(Value x);

}  // namespace tessera::ir
