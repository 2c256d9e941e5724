// The table of special functions and of the points at which they are computed. rows_test.cc runs
// its rows in the reference evaluator, cut_test.cc on two devices, and dump.cc prints them for
// scripts/record_special.py.
#include "tests/special/rows.h"

#include <cmath>
#include <limits>
#include <utility>

#include "client/tessera.h"

namespace tessera::special_rows {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Args = std::vector<Array>;
using Points = std::vector<double>;

Points Join(Points a, const Points& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
// Returns n points from `from` to `to` that grow by a constant factor, with both signs if `both`.
Points Scaled(double from, double to, int n, bool both = false) {
  Points out;
  for (int i = 0; i < n; ++i) {
    const double x = from * std::pow(to / from, i / (n - 1.0));
    out.push_back(x);
    if (both) out.push_back(-x);
  }
  return out;
}
Points Even(double from, double to, int n) {
  Points out;
  for (int i = 0; i < n; ++i) out.push_back(from + (to - from) * i / (n - 1));
  return out;
}
// Returns the points of the Cartesian product of the arguments, one column for each argument.
Columns Cross(const Points& a, const Points& b) {
  Columns out(2);
  for (double x : a)
    for (double y : b) {
      out[0].push_back(x);
      out[1].push_back(y);
    }
  return out;
}
Columns Cross(const Points& a, const Points& b, const Points& c) {
  Columns out(3);
  for (double x : a)
    for (double y : b)
      for (double z : c) {
        out[0].push_back(x);
        out[1].push_back(y);
        out[2].push_back(z);
      }
  return out;
}

// Lists the rows with their points: edges such as 0, infinities and NaN, and numbers from the whole
// range, so that each of the formulas of the function is used. If the reason for a larger tolerance
// is known, it is given beside the tolerance.
std::vector<Row> MakeRows() {
  const Points edges = {0, -0.0, kInf, -kInf, kNaN, 1, -1, 2, -2, 0.5, -0.5};
  const Points all = Join(edges, Scaled(1e-6, 80, 25, true));
  const Points unit =
      Join({0, 1, 0.5, kNaN, -0.25, 1.5}, Join(Scaled(1e-8, 0.4, 12), Even(0.05, 0.98, 24)));
  const Points shapes = {1e-3, 0.1, 0.5, 1, 1.75, 4, 11, 60};
  const Points sizes = Join({0, kInf, -1, kNaN}, Scaled(1e-4, 150, 14));
  std::vector<Row> rows;
  const auto unary = [&](std::string name, Array (*f)(const Arg&), const Points& points,
                         bool derivative = true) -> Row& {
    rows.push_back({.name = name,
                    .python = "jsp." + name + "(x[0])",
                    .f = [f](const Args& x) { return f(x[0]); },
                    .points = {points},
                    .derivatives = derivative ? std::vector<int>{0} : std::vector<int>{}});
    return rows.back();
  };
  const auto binary = [&](std::string name, std::string python, Array (*f)(const Arg&, const Arg&),
                          Columns points, std::vector<int> derivatives) -> Row& {
    rows.push_back({.name = std::move(name),
                    .python = std::move(python),
                    .f = [f](const Args& x) { return f(x[0], x[1]); },
                    .points = std::move(points),
                    .derivatives = std::move(derivatives)});
    return rows.back();
  };
  unary("gamma", special::gamma, Join(edges, Scaled(0.01, 30, 25, true)));
  {
    Row& row = unary("gammaln", special::gammaln, all);
    row.scale = 1;
    row.ulps32 = 17;
  }
  {
    Row& row = unary("loggamma", special::loggamma, all);
    row.scale = 1;
    row.ulps32 = 7;
  }
  unary("gammasgn", special::gammasgn, all, false);
  // The points stop at -2.5, because further below 0 JAX's derivative of digamma is inexact.
  unary("digamma", special::digamma, Join({-0.25, -0.5, -1.75, -2.5}, Scaled(1e-6, 80, 25)))
      .ulps32 = 7;
  {
    Row& row = unary("factorial", special::factorial,
                     Join({0, 1, 2, 3, 4, 5, 10, 20, 30, -1, kNaN}, Even(0.25, 25, 12)));
    row.ulps64 = 64;
    row.ulps32 = 42;  // in exp(gammaln(x + 1)), the error of the exponent grows by the exponent
  }
  unary("erf", special::erf, all);
  unary("erfc", special::erfc, Join(edges, Scaled(1e-6, 9, 25, true))).ulps32 = 9;  // exp(-x x)
  unary("erfcx", special::erfcx,
        Join({0, 1, -1, kInf, kNaN}, Join(Scaled(1e-6, 1e4, 30), Even(-4, -0.1, 10))))
      .derivative_scale = 1;
  unary("erfinv", special::erfinv, Join({0, 1, -1, 1.5, kNaN}, Even(-0.99, 0.99, 41))).ulps64 = 64;
  {
    Row& row = unary("ndtr", special::ndtr, Join(edges, Scaled(1e-4, 12, 25, true)));
    row.ulps32 = 66;  // from exp(-x x / 2)
  }
  unary("ndtri", special::ndtri, unit);
  {
    Row& row = unary(
        "log_ndtr", [](const Arg& x) { return special::log_ndtr(x); },
        Join({0, kNaN}, Scaled(1e-4, 60, 25, true)));
    row.ulps32 = 59;  // from exp(-x x / 2) for large x
    row.wrong_in_f32 = {
        {"log_ndtr(3.752924)",
         "below 5 it is log(ndtr(x)), and f32 rounds ndtr(x) to within 2^-24 of 1"}};
  }
  unary("logit", special::logit, unit).ulps32 = 21;  // error of the log of nearly 1
  unary("expit", special::expit, all);
  unary("entr", special::entr, all);
  unary("i0", special::i0, all).derivative_scale = 1;
  unary("i0e", special::i0e, all);
  unary("i1", special::i1, all);
  unary("i1e", special::i1e, all);
  unary("expi", special::expi, Join({0, kInf, kNaN, -1}, Scaled(0.02, 80, 25, true)));
  unary("exp1", special::exp1, Join({0, kInf, kNaN, 1}, Scaled(0.02, 200, 30)));
  unary("spence", special::spence, Join({0, 1, 2, -1, kNaN, 0.5, 1.5}, Scaled(1e-4, 100, 30)));
  rows.push_back({.name = "multigammaln",
                  .python = "jsp.multigammaln(x[0], 3)",
                  .f = [](const Args& x) { return special::multigammaln(x[0], 3); },
                  .points = {Scaled(1.1, 100, 20)},
                  .derivatives = {0},
                  .ulps32 = 13});
  const std::string overflows = "the backward recurrence from order 40 exceeds the range of f32";
  rows.push_back(
      {.name = "bessel_jn",
       .python = "jsp.bessel_jn(x[0], v=3, n_iter=40)[3]",
       .f =
           [](const Args& x) {
             const Array orders = special::bessel_jn(x[0], 3, 40);
             return orders[3];
           },
       .points = {Even(0.5, 20, 25)},
       .derivatives = {0},
       .ulps32 = 6,
       .wrong_in_f32 = {{"bessel_jn(0.500000)", overflows}, {"bessel_jn(1.312500)", overflows}},
       .ulps_derivative = 128});
  binary("polygamma", "lax.polygamma(x[0], x[1])", special::polygamma,
         Cross({0, 1, 2, 3, 7, -1, 1.5}, Join({0, -1, -2.5, kInf, kNaN}, Scaled(0.01, 80, 14))),
         {1});
  binary("zeta", "jsp.zeta(x[0], x[1])", special::zeta,
         Cross({1, 1.1, 2, 3.5, 8, kNaN}, Join({0, -1, kInf}, Scaled(0.05, 60, 12))), {0, 1});
  binary("gammainc", "jsp.gammainc(x[0], x[1])", special::gammainc,
         Cross(Join(shapes, {0, -1, kNaN}), sizes), {0, 1})
      .ulps_derivative = 256;
  {
    Row& row = binary("gammaincc", "jsp.gammaincc(x[0], x[1])", special::gammaincc,
                      Cross(Join(shapes, {0, -1, kNaN}), sizes), {0, 1});
    row.scale = 1;  // computed as 1 - gammainc in part of the range
    row.ulps_derivative = 256;
  }
  Row& tail = binary("gammaincc_tail", "jsp.gammaincc(x[0], x[1])", special::gammaincc,
                     Cross({0.001, 0.1, 0.5, 1, 1.75, 4}, Scaled(6, 300, 12)), {1});
  tail.ulps64 = 128;
  tail.ulps_derivative = 256;
  binary("zeta_lax", "lax.zeta(x[0], x[1])", lax::zeta, Cross({0.5, 2, 3}, {-1, -1.5, -2.5, 0, 4}),
         {})
      .ulps32 = 13;  // adds powers of opposite signs
  binary("igamma_grad_a", "lax.igamma_grad_a(x[0], x[1])", lax::igamma_grad_a, Cross(shapes, sizes),
         {})
      .ulps64 = 256;
  binary("random_gamma_grad", "lax.random_gamma_grad(x[0], x[1])", lax::random_gamma_grad,
         Cross(shapes, sizes), {})
      .ulps64 = 256;
  {
    Row& row = binary("beta", "jsp.beta(x[0], x[1])", special::beta,
                      Cross(shapes, Scaled(0.05, 80, 10)), {0, 1});
    row.ulps64 = 128;
    row.ulps_derivative = 2048;
  }
  {
    Row& row = binary("betaln", "jsp.betaln(x[0], x[1])", special::betaln,
                      Cross(shapes, Scaled(0.05, 1e4, 12)), {0, 1});
    row.scale = 1;
    row.ulps32 = 16;  // computes a difference of gammaln
  }
  binary("poch", "jsp.poch(x[0], x[1])", special::poch,
         Cross({0.3, 1, 2.5, 9}, {0, 0.5, 1, 3, 6.25}), {0, 1});
  binary("xlogy", "jsp.xlogy(x[0], x[1])", special::xlogy,
         Cross({0, 0.5, -2, kNaN}, {0, 0.25, 1, 3, -1, kNaN}), {0, 1});
  binary("xlog1py", "jsp.xlog1py(x[0], x[1])", special::xlog1py,
         Cross({0, 0.5, -2, kNaN}, {0, 0.25, -1, 3, -2, kNaN}), {0, 1});
  binary("rel_entr", "jsp.rel_entr(x[0], x[1])", special::rel_entr,
         Cross({0, 0.5, 2, -1}, {0, 0.25, 1, 3, -1}), {0, 1});
  binary("kl_div", "jsp.kl_div(x[0], x[1])", special::kl_div,
         Cross({0, 0.5, 2, -1}, {0, 0.25, 1, 3, -1}), {0, 1});
  binary("boxcox", "jsp.boxcox(x[0], x[1])", special::boxcox,
         Cross({0.1, 0.5, 1, 3, 20}, {0, 0.5, -1, 2}), {0, 1});
  binary("boxcox1p", "jsp.boxcox1p(x[0], x[1])", special::boxcox1p,
         Cross({0.1, 0.5, 1, 3, 20}, {0, 0.5, -1, 2}), {0, 1});
  binary("comb", "jsp.comb(x[0], x[1])",
         [](const Arg& n, const Arg& k) { return special::comb(n, k); },
         Cross({0, 1, 5, 10.5, 30, -1}, {0, 1, 2, 4.5, 7}), {0, 1})
      .ulps32 = 48;  // computes exp of a difference of gammaln
  binary("expn", "jsp.expn(x[0], x[1])", special::expn,
         Cross({0, 1, 2, 3, 10, 6000, -1}, Join({0, -1, kNaN}, Scaled(0.02, 60, 14))), {});
  rows.push_back({.name = "betainc",
                  .python = "jsp.betainc(x[0], x[1], x[2])",
                  .f = [](const Args& x) { return special::betainc(x[0], x[1], x[2]); },
                  .points = Cross({0.2, 1, 3.5, 30, 0, kInf}, {0.5, 2, 12, 0},
                                  {0, 0.01, 0.3, 0.5, 0.9, 0.999, 1, -0.1, kNaN}),
                  .derivatives = {2},
                  .ulps64 = 512,
                  .ulps_derivative = 256});
  return rows;
}

}  // namespace

const std::vector<Row>& Rows() {
  static const std::vector<Row> kRows = MakeRows();
  return kRows;
}

}  // namespace tessera::special_rows
