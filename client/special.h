// Special functions with the names of jax.scipy.special, element by element. Operands are promoted
// and broadcast as in numpy.h. Integers compute as floats: 64-bit ones as f64, others as f32. f16
// and bf16 compute in f32, some functions of f32 compute in f64, and the result is rounded once.
//
// Values and derivatives are those of JAX, also second derivatives. An operand without a derivative
// throws NOT_IMPLEMENTED when the function is differentiated by it. gammainc and gammaincc have
// second derivatives by x and then a or x; by a they have only the first derivative. Some operands
// have no derivative, such as n of polygamma and expn.
//
// Errors: TYPE_ERROR for complex numbers; VALUE_ERROR for an order or a number of terms out of
// range.
#pragma once
#include <cstdint>

#include "client/array.h"
#include "client/nn.h"

namespace tessera::special {

using nn::log_softmax, nn::logsumexp, nn::softmax;

// ---- Gamma and beta functions. ------------------------------------------------------------------

Array gamma(const Arg& x);
Array gammaln(const Arg& x);   // log |gamma(x)|
Array loggamma(const Arg& x);  // NaN below 0
Array gammasgn(const Arg& x);  // sign of gamma(x); NaN at the poles below 0
Array digamma(const Arg& x);
Array polygamma(const Arg& n, const Arg& x);  // has a derivative by x only
Array gammainc(const Arg& a, const Arg& x);   // regularized; has derivatives by a and x
Array gammaincc(const Arg& a, const Arg& x);
Array factorial(const Arg& n);
Array comb(const Arg& n, const Arg& k, bool repetition = false);
Array multigammaln(const Arg& a, int64_t d);
Array poch(const Arg& z, const Arg& m);
Array beta(const Arg& a, const Arg& b);
Array betaln(const Arg& a, const Arg& b);
Array betainc(const Arg& a, const Arg& b, const Arg& x);  // regularized; has a derivative by x only
// Hurwitz's zeta function. The derivatives have no closed form; they are those of a series.
Array zeta(const Arg& x, const Arg& q);

// ---- Error functions and the normal distribution. -----------------------------------------------

Array erf(const Arg& x);
Array erfc(const Arg& x);
Array erfcx(const Arg& x);  // exp(x^2) erfc(x)
Array erfinv(const Arg& x);
Array ndtr(const Arg& x);
Array ndtri(const Arg& p);
// Far below 0 it is computed by a series of `series_order` terms, at most 30.
Array log_ndtr(const Arg& x, int series_order = 3);

// ---- Logarithms, entropy. -----------------------------------------------------------------------

Array logit(const Arg& x);
Array expit(const Arg& x);
Array xlogy(const Arg& x, const Arg& y);  // x log y, or 0 if x is 0
Array xlog1py(const Arg& x, const Arg& y);
Array entr(const Arg& x);  // -x log x
Array rel_entr(const Arg& p, const Arg& q);
Array kl_div(const Arg& p, const Arg& q);
Array boxcox(const Arg& x, const Arg& lmbda);
Array boxcox1p(const Arg& x, const Arg& lmbda);

// ---- Bessel functions, integrals. ---------------------------------------------------------------

Array i0(const Arg& x);
Array i0e(const Arg& x);
Array i1(const Arg& x);
Array i1e(const Arg& x);
// Bessel functions of the first kind, of the orders 0 to v, along a new first dim. They are
// computed downwards by `n_iter` steps of a recurrence that starts with 0 and 1e-16.
Array bessel_jn(const Arg& z, int64_t v, int64_t n_iter = 50);
Array expi(const Arg& x);
Array exp1(const Arg& x);
Array expn(const Arg& n, const Arg& x);  // has a derivative by x only
Array spence(const Arg& x);

}  // namespace tessera::special
