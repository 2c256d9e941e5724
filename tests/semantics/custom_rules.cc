// Functions with derivative rules of their own.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

void AddCustomRules(Table& t) {
  t.Gives("custom/jvp_rule_is_used", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), 10 * p[0] * t[0]))
out = f(ar(3)), jvp(f, (ar(3),), (jnp.ones(3, jnp.float32),)), grad(lambda x: jnp.sum(f(x)))(ar(3))
)py");
  t.Gives("custom/jvp_rule_under_vmap", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), 10 * p[0] * t[0]))
out = vmap(grad(f))(ar(3))
)py");
  t.Gives("custom/jvp_of_two_arguments", R"py(
@jax.custom_jvp
def f(x, y):
    return x * y
f.defjvp(lambda p, t: (f(*p), p[1] * t[0] + 7 * t[1]))
out = grad(lambda x, y: jnp.sum(f(x, y)), (0, 1))(ar(2), ar(2) + 1)
)py");
  t.Gives("custom/jvp_second_derivative_differentiates_the_rule", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), p[0] * p[0] * p[0] * t[0]))
out = grad(grad(f))(jnp.float32(2))
)py");
  t.Gives("custom/jvp_nondiff_argnums", R"py(
from functools import partial
@partial(jax.custom_jvp, nondiff_argnums=(0,))
def app(n, x):
    return n * x
app.defjvp(lambda n, p, t: (app(n, p[0]), 100 * n * t[0]))
out = grad(lambda x: app(3, x))(jnp.float32(2))
)py");
  t.Gives("custom/jvp_defjvps", R"py(
@jax.custom_jvp
def f(x, y):
    return x * y
f.defjvps(lambda t, ans, x, y: 2 * t, lambda t, ans, x, y: 3 * t)
out = grad(f, (0, 1))(jnp.float32(5), jnp.float32(7))
)py");
  t.Fails("custom/jvp_without_a_rule", "No JVP defined for custom_jvp function", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f(ar(3))
)py");
  t.Fails("custom/jvp_rule_of_another_structure", "must produce a pair", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: f(p[0]))
jvp(f, (ar(3),), (ar(3),))
)py");
  t.Fails("custom/jvp_tangent_of_another_shape", "tangent", R"py(
@jax.custom_jvp
def f(x):
    return x * x
f.defjvp(lambda p, t: (f(p[0]), jnp.sum(t[0])))
jvp(f, (ar(3),), (ar(3),))
)py",
          "Custom JVP rule must produce");
  t.Gives("custom/vjp_rules_are_used", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
out = f(ar(3)), grad(lambda x: jnp.sum(f(x)))(ar(3))
)py");
  t.Gives("custom/vjp_fwd_may_give_another_value", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (x * x + 1, x), lambda x, ct: (x * ct,))
out = jax.value_and_grad(f)(jnp.float32(3)), f(jnp.float32(3))
)py");
  t.Gives("custom/vjp_residuals_are_any_tree", R"py(
@jax.custom_vjp
def f(x, y):
    return x * y
f.defvjp(lambda x, y: (f(x, y), {'x': x, 'y': (y,)}), lambda r, ct: (r['y'][0] * ct, 2 * r['x'] * ct))
out = grad(lambda x, y: jnp.sum(f(x, y)), (0, 1))(ar(2), ar(2) + 1)
)py");
  t.Gives("custom/vjp_none_is_zero", R"py(
@jax.custom_vjp
def f(x, y):
    return x * y
f.defvjp(lambda x, y: (f(x, y), y), lambda y, ct: (y * ct, None))
out = grad(f, (0, 1))(jnp.float32(2), jnp.float32(3))
)py");
  t.Gives("custom/vjp_under_vmap", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
out = vmap(grad(f))(ar(3))
)py");
  t.Gives("custom/vjp_under_jit", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
out = jit(grad(lambda x: jnp.sum(f(x))))(ar(3))
)py");
  t.Gives("custom/vjp_of_an_integer_argument", R"py(
@jax.custom_vjp
def f(x, i):
    return x * i
f.defvjp(lambda x, i: (f(x, i), i), lambda i, ct: (100 * ct, None))
out = grad(lambda x: f(x, jnp.int32(2)))(jnp.float32(3))
)py");
  t.Gives("custom/vjp_nondiff_argnums", R"py(
from functools import partial
@partial(jax.custom_vjp, nondiff_argnums=(1,))
def f(x, n):
    return x * n
f.defvjp(lambda x, n: (f(x, n), None), lambda n, r, ct: (n * 100 * ct,))
out = grad(lambda x: f(x, 3))(jnp.float32(2))
)py");
  t.Fails("custom/vjp_forward_mode",
          "can't apply forward-mode autodiff (jvp) to a custom_vjp function", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
jvp(f, (ar(3),), (ar(3),))
)py");
  t.Fails("custom/vjp_without_rules", "No VJP defined for custom_vjp function", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f(ar(3))
)py");
  t.Fails("custom/vjp_cotangent_of_another_shape", "bwd rule", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (jnp.sum(ct),))
grad(lambda x: jnp.sum(f(x)))(ar(3))
)py");
  t.Fails("custom/vjp_cotangents_of_another_structure",
          "Custom VJP bwd rule must produce an output with the same", R"py(
@jax.custom_vjp
def f(x):
    return x * x
f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct, ct))
grad(lambda x: jnp.sum(f(x)))(ar(3))
)py");
  t.Fails("custom/vjp_closes_over_what_is_differentiated", "", R"py(
def outer(w):
    @jax.custom_vjp
    def f(x):
        return x * w
    f.defvjp(lambda x: (f(x), None), lambda r, ct: (ct,))
    return f(jnp.float32(3))
grad(outer)(jnp.float32(2))
)py");
  // ---- Solvers. ----
  t.Gives("custom/linear_solve", R"py(
d = jnp.array([2., 4.])
out = lax.custom_linear_solve(lambda x: d * x, jnp.array([6., 4.]), lambda mv, b: b / d)
)py");
  t.Gives("custom/linear_solve_grad_by_b", R"py(
d = jnp.array([2., 4.])
f = lambda b: jnp.sum(lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d, symmetric=True))
out = grad(f)(jnp.array([6., 4.]))
)py");
  t.Gives("custom/linear_solve_grad_by_the_matrix", R"py(
b = jnp.array([6., 4.])
f = lambda d: jnp.sum(lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d, lambda vm, b: b / d))
out = grad(f)(jnp.array([2., 4.]))
)py");
  t.Gives("custom/linear_solve_jvp", R"py(
d = jnp.array([2., 4.])
f = lambda b: lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d)
out = jvp(f, (jnp.array([6., 4.]),), (jnp.array([2., 8.]),))
)py");
  t.Fails("custom/linear_solve_without_its_transpose",
          "transpose_solve required for backwards mode", R"py(
d = jnp.array([2., 4.])
grad(lambda b: jnp.sum(lax.custom_linear_solve(lambda x: d * x, b, lambda mv, b: b / d)))(jnp.array([6., 4.]))
)py");
  t.Fails("custom/linear_solve_of_another_shape", "b", R"py(
lax.custom_linear_solve(lambda x: jnp.sum(x), ar(2), lambda mv, b: b)
)py");
  t.Gives("custom/root", R"py(
solve = lambda f, x: jnp.float32(2)
tangent = lambda g, y: y / g(jnp.float32(1))
f = lambda a: lax.custom_root(lambda x: x * x - a, jnp.float32(1), solve, tangent)
out = f(jnp.float32(4)), grad(f)(jnp.float32(4))
)py");
}

}  // namespace tessera::semantics
