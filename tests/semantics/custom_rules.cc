// Rows about functions with custom derivative rules. A row is a program in Python, whose results in
// JAX are recorded, and its twin: the same program in C++ with the SDK. semantics_test.cc runs the
// twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "custom/...". Many rules are deliberately not the derivative of their function,
// so that a result shows whether the rule was used.
void AddCustomRules(Table& t) {
  t.Gives("custom/jvp_rule_is_used", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), 10 * p[0] * t[0]))
out = f(ar(3)), jvp(f, (ar(3),), (jnp.ones(3, jnp.float32),)), grad(lambda x: jnp.sum(f(x)))(ar(3))
)py")
      .Twin([] {
        const auto f = custom_jvp([](const Array& x) { return x * x; },
                                  [](const auto& p, const auto& t) {
                                    const Array& x = std::get<0>(p);
                                    return std::pair(x * x, 10 * x * std::get<0>(t));
                                  });
        const Array y = f(Ar({3}));
        const auto both = jvp(f, std::tuple(Ar({3})), std::tuple(ones({3})));
        return std::tuple(y, both, grad([&](Array x) { return sum(f(x)); })(Ar({3})));
      });
  t.Gives("custom/jvp_rule_under_vmap", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), 10 * p[0] * t[0]))
out = vmap(grad(f))(ar(3))
)py")
      .Twin([] {
        const auto f = custom_jvp([](const Array& x) { return x * x; },
                                  [](const auto& p, const auto& t) {
                                    const Array& x = std::get<0>(p);
                                    return std::pair(x * x, 10 * x * std::get<0>(t));
                                  });
        return vmap(grad(f))(Ar({3}));
      });
  t.Gives("custom/jvp_of_two_arguments", R"py(
@jax.custom_jvp
def f(x, y):
    return x * y
f.defjvp(lambda p, t: (f(*p), p[1] * t[0] + 7 * t[1]))
out = grad(lambda x, y: jnp.sum(f(x, y)), (0, 1))(ar(2), ar(2) + 1)
)py")
      .Twin([] {
        const auto f = custom_jvp([](const Array& x, const Array& y) { return x * y; },
                                  [](const auto& p, const auto& t) {
                                    const auto& [x, y] = p;
                                    const auto& [dx, dy] = t;
                                    return std::pair(x * y, y * dx + 7 * dy);
                                  });
        return grad<0, 1>([&](Array x, Array y) { return sum(f(x, y)); })(Ar({2}), Ar({2}) + 1);
      });
  t.Gives("custom/jvp_second_derivative_differentiates_the_rule", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), p[0] * p[0] * p[0] * t[0]))
out = grad(grad(f))(jnp.float32(2))
)py")
      .Twin([] {
        const auto f = custom_jvp([](const Array& x) { return x * x; },
                                  [](const auto& p, const auto& t) {
                                    const Array& x = std::get<0>(p);
                                    return std::pair(x * x, x * x * x * std::get<0>(t));
                                  });
        return grad(grad(f))(scalar(2.0f));
      });
  t.Gives("custom/jvp_nondiff_argnums", R"py(
from functools import partial
@partial(jax.custom_jvp, nondiff_argnums=(0,))
def app(n, x):
    return n * x
app.defjvp(lambda n, p, t: (app(n, p[0]), 100 * n * t[0]))
out = grad(lambda x: app(3, x))(jnp.float32(2))
)py")
      .Twin([] {
        const auto app = custom_jvp([](int n, const Array& x) { return n * x; },
                                    [](const auto& p, const auto& t) {
                                      const auto& [n, x] = p;
                                      return std::pair(n * x, 100 * n * std::get<1>(t));
                                    });
        return grad([&](Array x) { return app(3, x); })(scalar(2.0f));
      });
  t.Gives("custom/jvp_defjvps", R"py(
@jax.custom_jvp
def f(x, y):
    return x * y
f.defjvps(lambda t, ans, x, y: 2 * t, lambda t, ans, x, y: 3 * t)
out = grad(f, (0, 1))(jnp.float32(5), jnp.float32(7))
)py")
      .Twin([] {
        const auto f = custom_jvp([](Array x, Array y) { return x * y; },
                                  [](const auto& primals, const auto& tangents) {
                                    const auto& [x, y] = primals;
                                    const auto& [dx, dy] = tangents;
                                    return std::pair(x * y, 2 * dx + 3 * dy);
                                  });
        return grad<0, 1>(f)(scalar(5.0f), scalar(7.0f));
      })
      .Note("the twin has one rule, the sum of the two");
  t.Fails("custom/jvp_without_a_rule", "No JVP defined for custom_jvp function", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f(ar(3))
)py")
      .DoesNotCompile();
  t.Fails("custom/jvp_rule_of_another_structure", "must produce a pair", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: f(p[0]))
jvp(f, (ar(3),), (ar(3),))
)py")
      .DoesNotCompile();
  t.Fails("custom/jvp_tangent_of_another_shape", "tangent", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), jnp.sum(t[0])))
jvp(f, (ar(3),), (ar(3),))
)py",
          "Custom JVP rule must produce")
      .Twin([] {
        const auto f = custom_jvp([](const Array& x) { return x * x; },
                                  [](const auto& p, const auto& t) {
                                    const Array& x = std::get<0>(p);
                                    return std::pair(x * x, sum(std::get<0>(t)));
                                  });
        jvp(f, std::tuple(Ar({3})), std::tuple(Ar({3})));
      });
  t.Gives("custom/vjp_rules_are_used", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
out = f(ar(3)), grad(lambda x: jnp.sum(f(x)))(ar(3))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x) { return x * x; },
                       [](const Array& x) { return std::pair(x * x, x); },
                       [](const Array& x, const Array& ct) { return std::tuple(10 * x * ct); });
        const Array y = f(Ar({3}));
        return std::pair(y, grad([&](Array x) { return sum(f(x)); })(Ar({3})));
      });
  t.Gives("custom/vjp_fwd_may_give_another_value", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (x * x + 1, x), lambda x, ct: (x * ct,))
out = jax.value_and_grad(f)(jnp.float32(3)), f(jnp.float32(3))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x) { return x * x; },
                       [](const Array& x) { return std::pair(x * x + 1, x); },
                       [](const Array& x, const Array& ct) { return std::tuple(x * ct); });
        const auto both = value_and_grad(f)(scalar(3.0f));
        return std::pair(both, f(scalar(3.0f)));
      });
  t.Gives("custom/vjp_residuals_are_any_tree", R"py(
@jax.custom_vjp
def f(x, y):
    return x * y
f.defvjp(lambda x, y: (f(x, y), {'x': x, 'y': (y,)}), lambda r, ct: (r['y'][0] * ct, 2 * r['x'] * ct))
out = grad(lambda x, y: jnp.sum(f(x, y)), (0, 1))(ar(2), ar(2) + 1)
)py")
      .Twin([] {
        using Residuals = std::pair<Array, std::tuple<Array>>;
        const auto f = custom_vjp(
            [](const Array& x, const Array& y) { return x * y; },
            [](const Array& x, const Array& y) { return std::pair(x * y, Residuals(x, y)); },
            [](const Residuals& r, const Array& ct) {
              return std::tuple(std::get<0>(r.second) * ct, 2 * r.first * ct);
            });
        return grad<0, 1>([&](Array x, Array y) { return sum(f(x, y)); })(Ar({2}), Ar({2}) + 1);
      });
  t.Gives("custom/vjp_none_is_zero", R"py(
@jax.custom_vjp
def f(x, y):
    return x * y
f.defvjp(lambda x, y: (f(x, y), y), lambda y, ct: (y * ct, None))
out = grad(f, (0, 1))(jnp.float32(2), jnp.float32(3))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x, const Array& y) { return x * y; },
                       [](const Array& x, const Array& y) { return std::pair(x * y, y); },
                       [](const Array& y, const Array& ct) { return std::tuple(y * ct, Array()); });
        return grad<0, 1>(f)(scalar(2.0f), scalar(3.0f));
      });
  t.Gives("custom/vjp_under_vmap", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
out = vmap(grad(f))(ar(3))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x) { return x * x; },
                       [](const Array& x) { return std::pair(x * x, x); },
                       [](const Array& x, const Array& ct) { return std::tuple(10 * x * ct); });
        return vmap(grad(f))(Ar({3}));
      });
  t.Gives("custom/vjp_under_jit", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
out = jit(grad(lambda x: jnp.sum(f(x))))(ar(3))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x) { return x * x; },
                       [](const Array& x) { return std::pair(x * x, x); },
                       [](const Array& x, const Array& ct) { return std::tuple(10 * x * ct); });
        return jit(grad([&](Array x) { return sum(f(x)); }))(Ar({3}));
      });
  t.Gives("custom/vjp_of_an_integer_argument", R"py(
@jax.custom_vjp
def f(x, i):
    return x * i
f.defvjp(lambda x, i: (f(x, i), i), lambda i, ct: (100 * ct, None))
out = grad(lambda x: f(x, jnp.int32(2)))(jnp.float32(3))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x, const Array& i) { return x * i; },
                       [](const Array& x, const Array& i) { return std::pair(x * i, i); },
                       [](const Array&, const Array& ct) { return std::tuple(100 * ct, Array()); });
        return grad([&](Array x) { return f(x, scalar<int32_t>(2)); })(scalar(3.0f));
      });
  t.Gives("custom/vjp_nondiff_argnums", R"py(
from functools import partial
@partial(jax.custom_vjp, nondiff_argnums=(1,))
def f(x, n):
    return x * n
f.defvjp(lambda x, n: (f(x, n), None), lambda n, r, ct: (n * 100 * ct,))
out = grad(lambda x: f(x, 3))(jnp.float32(2))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x, int n) { return x * n; },
                       [](const Array& x, int n) { return std::pair(x * n, n); },
                       [](int n, const Array& ct) { return std::tuple(n * 100 * ct, n); });
        return grad([&](Array x) { return f(x, 3); })(scalar(2.0f));
      });
  t.Fails("custom/vjp_forward_mode", "(jvp) to a custom_vjp function", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
jvp(f, (ar(3),), (ar(3),))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x) { return x * x; },
                       [](const Array& x) { return std::pair(x * x, x); },
                       [](const Array& x, const Array& ct) { return std::tuple(10 * x * ct); });
        jvp(f, std::tuple(Ar({3})), std::tuple(Ar({3})));
      });
  t.Fails("custom/vjp_without_rules", "No VJP defined for custom_vjp function", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f(ar(3))
)py")
      .DoesNotCompile();
  t.Fails("custom/vjp_cotangent_of_another_shape", "bwd rule", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (jnp.sum(ct),))
grad(lambda x: jnp.sum(f(x)))(ar(3))
)py")
      .Twin([] {
        const auto f =
            custom_vjp([](const Array& x) { return x * x; },
                       [](const Array& x) { return std::pair(x * x, x); },
                       [](const Array&, const Array& ct) { return std::tuple(sum(ct)); });
        grad([&](Array x) { return sum(f(x)); })(Ar({3}));
      });
  t.Fails("custom/vjp_cotangents_of_another_structure",
          "Custom VJP bwd rule must produce an output with the same", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct, ct))
grad(lambda x: jnp.sum(f(x)))(ar(3))
)py")
      .Twin([] {
        using List = std::vector<Array>;
        const auto f = custom_vjp([](const List& x) { return x[0] * x[0]; },
                                  [](const List& x) { return std::pair(x[0] * x[0], x[0]); },
                                  [](const Array&, const Array& ct) {
                                    return std::tuple(List{ct, ct});
                                  });
        grad([&](List x) { return sum(f(x)); })(List{Ar({3})});
      });
  t.Fails("custom/vjp_closes_over_what_is_differentiated", "", R"py(
def outer(w):
    @jax.custom_vjp
    def f(x):
        return x * w
    f.defvjp(lambda x: (f(x), None), lambda r, ct: (ct,))
    return f(jnp.float32(3))
grad(outer)(jnp.float32(2))
)py")
      .Twin([] {
        const auto outer = [](Array w) {
          const auto f = custom_vjp([w](const Array& x) { return x * w; },
                                    [w](const Array& x) { return std::pair(x * w, None); },
                                    [](NoneType, const Array& ct) { return std::tuple(ct); });
          return f(scalar(3.0f));
        };
        grad(outer)(scalar(2.0f));
      });
  // ---- Solvers. ----
  t.Gives("custom/linear_solve", R"py(
d = jnp.array([2., 4.])
out = lax.custom_linear_solve(lambda x: d * x, jnp.array([6., 4.]), lambda mv, b: b / d)
)py")
      .Twin([] {
        const Array d = array<float>({2, 4});
        return lax::custom_linear_solve([&](const Array& x) { return d * x; }, array<float>({6, 4}),
                                        [&](const auto&, const Array& b) { return b / d; });
      });
  t.Gives("custom/linear_solve_grad_by_b", R"py(
d = jnp.array([2., 4.])
f = lambda b: jnp.sum(lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d, symmetric=True))
out = grad(f)(jnp.array([6., 4.]))
)py")
      .Twin([] {
        const Array d = array<float>({2, 4});
        const auto f = [&](Array b) {
          return sum(lax::custom_linear_solve([&](const Array& x) { return d * x; }, b,
                                              [&](const auto&, const Array& v) { return v / d; },
                                              {}, {.symmetric = true}));
        };
        return grad(f)(array<float>({6, 4}));
      });
  t.Gives("custom/linear_solve_grad_by_the_matrix", R"py(
b = jnp.array([6., 4.])
f = lambda d: jnp.sum(lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d, lambda vm, b: b / d))
out = grad(f)(jnp.array([2., 4.]))
)py")
      .Twin([] {
        const Array b = array<float>({6, 4});
        const auto f = [&](Array d) {
          const auto solve = [&](const auto&, const Array& v) { return v / d; };
          return sum(
              lax::custom_linear_solve([&](const Array& x) { return d * x; }, b, solve, solve));
        };
        return grad(f)(array<float>({2, 4}));
      });
  t.Gives("custom/linear_solve_jvp", R"py(
d = jnp.array([2., 4.])
f = lambda b: lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d)
out = jvp(f, (jnp.array([6., 4.]),), (jnp.array([2., 8.]),))
)py")
      .Twin([] {
        const Array d = array<float>({2, 4});
        const auto f = [&](Array b) {
          return lax::custom_linear_solve([&](const Array& x) { return d * x; }, b,
                                          [&](const auto&, const Array& v) { return v / d; });
        };
        return jvp(f, std::tuple(array<float>({6, 4})), std::tuple(array<float>({2, 8})));
      });
  t.Fails("custom/linear_solve_without_its_transpose",
          "transpose_solve required for backwards mode", R"py(
d = jnp.array([2., 4.])
grad(lambda b: jnp.sum(lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d)))(jnp.array([6., 4.]))
)py")
      .Twin([] {
        const Array d = array<float>({2, 4});
        grad([&](Array b) {
          return sum(lax::custom_linear_solve([&](const Array& x) { return d * x; }, b,
                                              [&](const auto&, const Array& v) { return v / d; }));
        })(array<float>({6, 4}));
      });
  t.Fails("custom/linear_solve_of_another_shape", "b", R"py(
lax.custom_linear_solve(lambda x: jnp.sum(x), ar(2), lambda mv, b: b)
)py")
      .Twin([] {
        lax::custom_linear_solve([](const Array& x) { return sum(x); }, Ar({2}),
                                 [](const auto&, const Array& b) { return b; });
      });
  t.Gives("custom/root", R"py(
solve = lambda f, x: jnp.float32(2)
tangent = lambda g, y: y / g(jnp.float32(1))
f = lambda a: lax.custom_root(lambda x: x * x - a, jnp.float32(1), solve, tangent)
out = f(jnp.float32(4)), grad(f)(jnp.float32(4))
)py")
      .Twin([] {
        const auto solve = [](const auto&, const Array&) { return scalar(2.0f); };
        const auto tangent = [](const auto& g, const Array& y) { return y / g(scalar(1.0f)); };
        const auto f = [&](Array a) {
          return lax::custom_root([&](const Array& x) { return x * x - a; }, scalar(1.0f), solve,
                                  tangent);
        };
        return std::pair(f(scalar(4.0f)), grad(f)(scalar(4.0f)));
      });
  // ---- closure_convert. ----
  t.Gives("custom/closure_convert_through_a_rule", R"py(
from functools import partial
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def at(f, x, *hoisted):
    return f(x, *hoisted)
def fwd(f, x, *hoisted):
    return f(x, *hoisted), (x, hoisted)
def bwd(f, res, ct):
    x, hoisted = res
    _, pull = vjp(f, x, *hoisted)
    return tuple(10 * c for c in pull(ct))
at.defvjp(fwd, bwd)
def loss(a):
    g, hoisted = jax.closure_convert(lambda x: a * x * jnp.sin(a), jnp.float32(3))
    return at(g, jnp.float32(3), *hoisted)
out = loss(jnp.float32(2)), grad(loss)(jnp.float32(2)), jit(grad(loss))(jnp.float32(2))
)py")
      .Twin([] {
        const auto loss = [](Array a) {
          const Array x = scalar(3.0f);
          const auto [g, hoisted] =
              closure_convert([a](const Array& v) { return a * v * sin(a); }, x);
          using Hoisted = std::vector<Array>;
          const auto at = [g = g](const Array& v, const Hoisted& h) { return g(v, h); };
          return custom_vjp(
              at,
              [at](const Array& v, const Hoisted& h) {
                return std::pair(at(v, h), std::pair(v, h));
              },
              [at](const std::pair<Array, Hoisted>& res, const Array& ct) {
                const auto pull = vjp(at, std::tuple(res.first, res.second)).second;
                return tree_map([](const Array& c) { return 10 * c; }, pull(ct));
              })(x, hoisted);
        };
        const Array two = scalar(2.0f);
        return std::tuple(loss(two), grad(loss)(two), jit(grad(loss))(two));
      })
      .Within(2);
  t.Gives("custom/closure_convert_hoists_what_is_traced", R"py(
def f(a, i):
    c = ar(2)
    g, hoisted = jax.closure_convert(lambda x: {'y': x * a + c[i] + jnp.sum(a)}, jnp.float32(1))
    return g(jnp.float32(5), *hoisted), g(jnp.float32(5), *[2 * h for h in hoisted])
out = jit(f)(ar(3), jnp.int32(1))
)py")
      .Twin([] {
        const auto f = [](Array a, Array i) {
          const Array c = Ar({2});
          using Tree = std::map<std::string, Array>;
          const auto [g, hoisted] = closure_convert(
              [&](const Array& x) {
                return Tree{{"y", x * a + c[i] + sum(a)}};
              },
              scalar(1.0f));
          const Array five = scalar(5.0f);
          std::vector<Array> twice;
          for (const Array& h : hoisted) twice.push_back(2 * h);
          return std::pair(g(five, hoisted), g(five, twice));
        };
        return jit(f)(Ar({3}), scalar<int32_t>(1));
      });
  t.Gives("custom/closure_convert_counts", R"py(
n = []
def count(x):
    def inner(y):
        n.append(len(hoisted(lambda z: z * y)))
        n.append(len(hoisted(lambda z: z * x * y)))
        return y * x
    n.append(len(hoisted(lambda z: z * x)))
    n.append(len(hoisted(lambda z: z * ar(2))))
    n.append(len(hoisted(lambda z: z * jnp.int32(2))))
    i = x.astype(jnp.int32)
    n.append(len(hoisted(lambda z: z * i)))
    n.append(len(hoisted(lambda z: z * x * (x + x) * x)))
    return grad(inner)(x)
hoisted = lambda f: jax.closure_convert(f, jnp.float32(1))[1]
jit(count)(jnp.float32(2))
out = n
)py")
      .Twin([] {
        std::vector<int64_t> n;
        const auto hoisted = [&n](const auto& f) {
          n.push_back(static_cast<int64_t>(closure_convert(f, scalar(1.0f)).second.size()));
        };
        jit([&](Array x) {
          hoisted([&](const Array& z) { return z * x; });
          hoisted([&](const Array& z) { return z * Ar({2}); });
          hoisted([&](const Array& z) { return z * 2; });
          const Array i = x.astype(kS32);
          hoisted([&](const Array& z) { return z * i; });
          hoisted([&](const Array& z) { return z * x * (x + x) * x; });
          return grad([&](Array y) {
            hoisted([&](const Array& z) { return z * y; });
            hoisted([&](const Array& z) { return z * x * y; });
            return y * x;
          })(x);
        })(scalar(2.0f));
        return n;
      });
  t.Gives("custom/closure_convert_outside_of_a_trace", R"py(
c = ar(3)
g, hoisted = jax.closure_convert(lambda x, y: x * c + y, ar(3), jnp.float32(0))
out = len(hoisted), g(ar(3), jnp.float32(1)), grad(lambda y: jnp.sum(g(ar(3), y)))(jnp.float32(1))
)py")
      .Twin([] {
        const Array c = Ar({3});
        const auto [g, hoisted] =
            closure_convert([&](const Array& x, const Array& y) { return x * c + y; },
                            std::tuple(Ar({3}), scalar(0.0f)));
        const auto f = [g = g](Array y) { return sum(g(Ar({3}), y, {})); };
        return std::tuple(static_cast<int64_t>(hoisted.size()), g(Ar({3}), scalar(1.0f), {}),
                          grad(f)(scalar(1.0f)));
      });
  t.Fails("custom/closure_convert_of_another_structure", "must have the same Pytree structure",
          R"py(
g, hoisted = jax.closure_convert(lambda xs: xs[0], [ar(3), ar(3)])
g([ar(3)])
)py")
      .Twin([] {
        const auto [g, hoisted] =
            closure_convert([](const std::vector<Array>& xs) { return xs[0]; },
                            std::vector<Array>{Ar({3}), Ar({3})});
        g({Ar({3})}, {});
      });
}

}  // namespace tessera::semantics
