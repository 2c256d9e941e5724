// Rows about control flow: loops, branches and scans. A row is a program in Python, whose results
// in JAX are recorded, and its twin: the same program in C++ with the SDK. semantics_test.cc runs
// the twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "control/...". Each section covers results, derivatives and errors of one kind
// of control flow.
void AddControlFlow(Table& t) {
  // ---- scan. ----
  t.Gives("control/scan", R"py(
out = lax.scan(lambda c, x: (c + x, c * x), jnp.float32(0), ar(4))
)py")
      .Twin([] {
        return scan([](Array c, Array x) { return std::pair(c + x, c * x); }, zeros({}), Ar({4}));
      });
  t.Gives("control/scan_of_trees", R"py(
f = lambda c, x: ({'s': c['s'] + x[0], 'n': c['n'] + 1}, (x[1] * 2,))
out = lax.scan(f, {'s': jnp.float32(0), 'n': jnp.int32(0)}, (ar(3), ar(3, 2)))
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        const auto f = [](Map c, std::pair<Array, Array> x) {
          return std::pair(Map{{"s", c["s"] + x.first}, {"n", c["n"] + 1}},
                           std::tuple(x.second * 2));
        };
        return scan(f, Map{{"s", zeros({})}, {"n", full({}, 0, kS32)}},
                    std::pair(Ar({3}), Ar({3, 2})));
      });
  t.Gives("control/scan_without_xs", R"py(
out = lax.scan(lambda c, _: (c * 2, c), jnp.int32(1), None, length=5)
)py")
      .Twin([] {
        return scan([](Array c, NoneType) { return std::pair(c * 2, c); }, scalar<int32_t>(1), None,
                    {.length = 5});
      });
  t.Gives("control/scan_without_ys", R"py(
out = lax.scan(lambda c, x: (c + x, None), jnp.float32(0), ar(4))
)py")
      .Twin([] {
        return scan([](Array c, Array x) { return std::pair(c + x, None); }, zeros({}), Ar({4}));
      });
  t.Gives("control/scan_reverse", R"py(
out = lax.scan(lambda c, x: (c + x, c), jnp.float32(0), ar(4), reverse=True)
)py")
      .Twin([] {
        return scan([](Array c, Array x) { return std::pair(c + x, c); }, zeros({}), Ar({4}),
                    {.length = -1, .reverse = true});
      });
  t.Gives("control/scan_unroll_does_not_change_values", R"py(
out = lax.scan(lambda c, x: (c * 2 + x, c), jnp.float32(0), ar(5), unroll=2)
)py")
      .Twin([] {
        return scan([](Array c, Array x) { return std::pair(c * 2 + x, c); }, zeros({}), Ar({5}),
                    {.unroll = 2});
      });
  t.Gives("control/scan_of_no_rows", R"py(
out = lax.scan(lambda c, x: (c + x, c), jnp.float32(3), ar(0))
)py")
      .Twin([] {
        return scan([](Array c, Array x) { return std::pair(c + x, c); }, scalar(3.0f), zeros({0}));
      });
  t.Gives("control/scan_of_one_body_runs_once", R"py(
def f(c, x):
    return see(c) + x, None
lax.scan(f, jnp.float32(0), ar(4))
out = len(seen) >= 1
)py")
      .Twin([] {
        Seen see;
        scan([&](Array c, Array x) { return std::pair(see(c) + x, None); }, zeros({}), Ar({4}));
        return !see.types().empty();
      });
  t.Gives("control/scan_weak_carry_is_strengthened", R"py(
out = lax.scan(lambda c, x: (c + x, c), 0., ar(3))
)py")
      .Twin([] {
        return scan([](Array c, Array x) { return std::pair(c + x, c); }, Weak(0.0), Ar({3}));
      });
  t.Gives("control/scan_grad", R"py(
f = lambda c, xs: lax.scan(lambda c, x: (c * x, c), c, xs)[0]
out = grad(f, (0, 1))(jnp.float32(2), ar(3) + 1)
)py")
      .Twin([] {
        const auto f = [](Array c, Array xs) {
          return scan([](Array a, Array x) { return std::pair(a * x, a); }, c, xs).first;
        };
        return grad<0, 1>(f)(scalar(2.0f), Ar({3}) + 1);
      });
  t.Gives("control/scan_grad_of_ys", R"py(
f = lambda xs: jnp.sum(lax.scan(lambda c, x: (c + x, c * x), jnp.float32(1), xs)[1])
out = grad(f)(ar(4))
)py")
      .Twin([] {
        const auto f = [](Array xs) {
          return sum(
              scan([](Array c, Array x) { return std::pair(c + x, c * x); }, ones({}), xs).second);
        };
        return grad(f)(Ar({4}));
      });
  t.Gives("control/scan_grad_by_a_closure", R"py(
f = lambda w: lax.scan(lambda c, x: (c + w * x, None), jnp.float32(0), ar(4))[0]
out = grad(f)(jnp.float32(2))
)py")
      .Twin([] {
        const auto f = [](Array w) {
          return scan([&](Array c, Array x) { return std::pair(c + w * x, None); }, zeros({}),
                      Ar({4}))
              .first;
        };
        return grad(f)(scalar(2.0f));
      });
  t.Gives("control/scan_jvp", R"py(
f = lambda xs: lax.scan(lambda c, x: (c * x, c), jnp.float32(1), xs)
out = jvp(f, (ar(3) + 1,), (jnp.ones(3, jnp.float32),))
)py")
      .Twin([] {
        const auto f = [](Array xs) {
          return scan([](Array c, Array x) { return std::pair(c * x, c); }, ones({}), xs);
        };
        return jvp(f, std::tuple(Ar({3}) + 1), std::tuple(ones({3})));
      });
  t.Gives("control/scan_of_checkpoint", R"py(
step = jax.checkpoint(lambda c, x: (c * x * x, None))
out = grad(lambda xs: lax.scan(step, jnp.float32(1), xs)[0])(ar(3) + 1)
)py")
      .Twin([] {
        const auto step = checkpoint([](Array c, Array x) { return std::pair(c * x * x, None); });
        return grad([&](Array xs) { return scan(step, ones({}), xs).first; })(Ar({3}) + 1);
      });
  t.Gives("control/scan_nested", R"py(
inner = lambda c, r: (lax.scan(lambda a, v: (a + v, None), c, r)[0], None)
out = lax.scan(inner, jnp.float32(0), ar(2, 3))[0]
)py")
      .Twin([] {
        const auto inner = [](Array c, Array r) {
          return std::pair(
              scan([](Array a, Array v) { return std::pair(a + v, None); }, c, r).first, None);
        };
        return scan(inner, zeros({}), Ar({2, 3})).first;
      });
  t.Fails("control/scan_carry_of_another_dtype",
          "carry input and carry output must have equal types", R"py(
lax.scan(lambda c, x: (c + x, None), jnp.int32(0), ar(3))
)py")
      .Twin([] {
        scan([](Array c, Array x) { return std::pair(c + x, None); }, scalar<int32_t>(0), Ar({3}));
      });
  t.Fails("control/scan_carry_of_another_shape",
          "carry input and carry output must have equal types", R"py(
lax.scan(lambda c, x: (jnp.stack([c, x]), None), jnp.float32(0), ar(3))
)py")
      .Twin([] {
        scan([](Array c, Array x) { return std::pair(stack({c, x}), None); }, zeros({}), Ar({3}));
      });
  t.Fails("control/scan_carry_of_another_tree", "must have the same pytree structure", R"py(
lax.scan(lambda c, x: ([c[0]], None), [jnp.float32(0), jnp.float32(0)], ar(3))
)py")
      .Twin([] {
        using List = std::vector<Array>;
        scan([](List c, Array) { return std::pair(List{c[0]}, None); }, List{zeros({}), zeros({})},
             Ar({3}));
      });
  t.Fails("control/scan_xs_of_other_lengths", "different leading axis sizes", R"py(
lax.scan(lambda c, x: (c, None), jnp.float32(0), (ar(3), ar(4)))
)py")
      .Twin([] {
        scan([](Array c, std::pair<Array, Array>) { return std::pair(c, None); }, zeros({}),
             std::pair(Ar({3}), Ar({4})));
      });
  t.Fails("control/scan_length_that_does_not_match", "length", R"py(
lax.scan(lambda c, x: (c, None), jnp.float32(0), ar(3), length=4)
)py")
      .Twin([] {
        scan([](Array c, Array) { return std::pair(c, None); }, zeros({}), Ar({3}), {.length = 4});
      });
  t.Fails("control/scan_without_a_length", "length", R"py(
lax.scan(lambda c, x: (c, None), jnp.float32(0), None)
)py")
      .Twin([] { scan([](Array c, NoneType) { return std::pair(c, None); }, zeros({}), None); });
  t.Fails("control/scan_body_that_returns_no_pair", "pair", R"py(
lax.scan(lambda c, x: c, jnp.float32(0), ar(3))
)py")
      .DoesNotCompile();
  t.Fails("control/scan_of_a_scalar", "", R"py(
lax.scan(lambda c, x: (c, None), jnp.float32(0), jnp.float32(1))
)py")
      .Twin([] { scan([](Array c, Array) { return std::pair(c, None); }, zeros({}), ones({})); });
  // ---- while_loop and fori_loop. ----
  t.Gives("control/while_loop", R"py(
out = lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (jnp.int32(0), jnp.float32(1)))
)py")
      .Twin([] {
        using C = std::pair<Array, Array>;
        return while_loop([](C c) { return c.first < 5; },
                          [](C c) { return C(c.first + 1, c.second * 2); },
                          C(scalar<int32_t>(0), ones({})));
      });
  t.Gives("control/while_loop_that_does_not_run", R"py(
out = lax.while_loop(lambda c: c < 0, lambda c: c + 1, jnp.int32(3))
)py")
      .Twin([] {
        return while_loop([](Array c) { return c < 0; }, [](Array c) { return c + 1; },
                          scalar<int32_t>(3));
      });
  t.Gives("control/while_loop_captures", R"py(
n = jnp.int32(4)
out = lax.while_loop(lambda c: c < n, lambda c: c + 1, jnp.int32(0))
)py")
      .Twin([] {
        const Array n = scalar<int32_t>(4);
        return while_loop([&](Array c) { return c < n; }, [](Array c) { return c + 1; },
                          scalar<int32_t>(0));
      });
  t.Gives("control/while_loop_jvp", R"py(
f = lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, jnp.float32(1)))[1]
out = jvp(f, (jnp.float32(2),), (jnp.float32(1),))
)py")
      .Twin([] {
        using C = std::pair<Array, Array>;
        const auto f = [](Array x) {
          return while_loop([](C c) { return c.first < 3; },
                            [&](C c) { return C(c.first + 1, c.second * x); },
                            C(full({}, 0, kS32), ones({})))
              .second;
        };
        return jvp(f, std::tuple(scalar(2.0f)), std::tuple(ones({})));
      });
  t.Fails("control/while_loop_grad",
          "Reverse-mode differentiation does not work for lax.while_loop", R"py(
f = lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, jnp.float32(1)))[1]
grad(f)(jnp.float32(2))
)py")
      .Twin([] {
        using C = std::pair<Array, Array>;
        const auto f = [](Array x) {
          return while_loop([](C c) { return c.first < 3; },
                            [&](C c) { return C(c.first + 1, c.second * x); },
                            C(full({}, 0, kS32), ones({})))
              .second;
        };
        grad(f)(scalar(2.0f));
      });
  t.Fails("control/while_loop_condition_is_no_bool", "cond_fun must return a boolean scalar", R"py(
lax.while_loop(lambda c: c, lambda c: c + 1, jnp.int32(0))
)py")
      .Twin([] {
        while_loop([](Array c) { return c; }, [](Array c) { return c + 1; }, scalar<int32_t>(0));
      });
  t.Fails("control/while_loop_condition_is_a_vector", "cond_fun must return a boolean scalar", R"py(
lax.while_loop(lambda c: c < 3, lambda c: c + 1, ints(2))
)py")
      .Twin([] {
        while_loop([](Array c) { return c < 3; }, [](Array c) { return c + 1; }, Ints({2}));
      });
  t.Fails("control/while_loop_carry_of_another_dtype", "equal types", R"py(
lax.while_loop(lambda c: c < 3, lambda c: c + 0.5, jnp.int32(0))
)py")
      .Twin([] {
        while_loop([](Array c) { return c < 3; }, [](Array c) { return c + 0.5; },
                   scalar<int32_t>(0));
      });
  t.Fails("control/while_loop_carry_of_another_shape", "equal types", R"py(
lax.while_loop(lambda c: c[0] < 3, lambda c: jnp.concatenate([c, c]), ints(1))
)py")
      .Twin([] {
        while_loop([](Array c) { return c[0] < 3; },
                   [](Array c) {
                     return concatenate({c, c});
                   },
                   Ints({1}));
      });
  t.Gives("control/fori_loop", R"py(
out = lax.fori_loop(0, 5, lambda i, v: v + i, jnp.int32(0))
)py")
      .Twin([] {
        return fori_loop(
            0, 5, [](Array i, Array v) { return v + i; }, scalar<int32_t>(0));
      });
  t.Gives("control/fori_loop_bounds_from_below_zero", R"py(
out = lax.fori_loop(-2, 3, lambda i, v: v * 10 + i, jnp.int32(0))
)py")
      .Twin([] {
        return fori_loop(
            -2, 3, [](Array i, Array v) { return v * 10 + i; }, scalar<int32_t>(0));
      });
  t.Gives("control/fori_loop_of_no_turns", R"py(
out = lax.fori_loop(5, 2, lambda i, v: v + 1, jnp.float32(7))
)py")
      .Twin([] {
        return fori_loop(
            5, 2, [](Array, Array v) { return v + 1; }, scalar(7.0f));
      });
  t.Gives("control/fori_loop_of_a_traced_bound", R"py(
out = jit(lambda n: lax.fori_loop(0, n, lambda i, v: v * 2, jnp.float32(1)))(jnp.int32(4))
)py")
      .Twin([] {
        return jit([](Array n) {
          return fori_loop(
              0, n, [](Array, Array v) { return v * 2; }, ones({}));
        })(scalar<int32_t>(4));
      });
  t.Gives("control/fori_loop_index_dtype", R"py(
lax.fori_loop(0, 2, lambda i, v: v + see(i), jnp.int32(0))
out = seen[0]
)py")
      .Twin([] {
        Seen see;
        fori_loop(
            0, 2, [&](Array i, Array v) { return v + see(i); }, scalar<int32_t>(0));
        return see.types()[0];
      });
  t.Gives("control/fori_loop_index_dtype_of_its_bounds", R"py(
lax.fori_loop(jnp.int8(0), jnp.int8(2), lambda i, v: v + see(i), jnp.int8(0))
out = seen[0]
)py")
      .Twin([] {
        Seen see;
        fori_loop(
            scalar<int8_t>(0), scalar<int8_t>(2), [&](Array i, Array v) { return v + see(i); },
            scalar<int8_t>(0));
        return see.types()[0];
      });
  t.Gives("control/fori_loop_grad_of_static_bounds", R"py(
out = grad(lambda x: lax.fori_loop(0, 3, lambda i, v: v * x, jnp.float32(1)))(jnp.float32(2))
)py")
      .Twin([] {
        return grad([](Array x) {
          return fori_loop(
              0, 3, [&](Array, Array v) { return v * x; }, ones({}));
        })(scalar(2.0f));
      });
  t.Fails("control/fori_loop_grad_of_a_traced_bound", "Reverse-mode differentiation does not work",
          R"py(
f = lambda x, n: lax.fori_loop(0, n, lambda i, v: v * x, jnp.float32(1))
jit(grad(f))(jnp.float32(2), jnp.int32(3))
)py")
      .Twin([] {
        const auto f = [](Array x, Array n) {
          return fori_loop(
              0, n, [&](Array, Array v) { return v * x; }, ones({}));
        };
        jit(grad(f))(scalar(2.0f), scalar<int32_t>(3));
      });
  t.Fails("control/fori_loop_of_a_float_bound", "", R"py(
lax.fori_loop(0, 2.5, lambda i, v: v + 1, jnp.float32(0))
)py")
      .Twin([] {
        fori_loop(
            0, 2.5, [](Array, Array v) { return v + 1; }, zeros({}));
      });
  t.Fails("control/fori_loop_carry_of_another_dtype", "equal types", R"py(
lax.fori_loop(0, 3, lambda i, v: v + 0.5, jnp.int32(0))
)py")
      .Twin([] {
        fori_loop(
            0, 3, [](Array, Array v) { return v + 0.5; }, scalar<int32_t>(0));
      });
  // ---- cond and switch. ----
  t.Gives("control/cond", R"py(
f = lambda p, x: lax.cond(p, lambda v: v + 1, lambda v: v - 1, x)
out = f(True, ar(2)), f(jnp.bool_(False), ar(2))
)py")
      .Twin([] {
        const auto f = [](const Arg& p, Array x) {
          return cond(
              p, [](Array v) { return v + 1; }, [](Array v) { return v - 1; }, x);
        };
        const Array first = f(true, Ar({2}));
        return std::pair(first, f(scalar(false), Ar({2})));
      });
  t.Gives("control/cond_of_a_number", R"py(
f = lambda p, x: lax.cond(p, lambda v: v + 1, lambda v: v - 1, x)
out = f(3, ar(2)), f(jnp.float32(0), ar(2))
)py")
      .Twin([] {
        const auto f = [](const Arg& p, Array x) {
          return cond(
              p, [](Array v) { return v + 1; }, [](Array v) { return v - 1; }, x);
        };
        const Array first = f(3, Ar({2}));
        return std::pair(first, f(zeros({}), Ar({2})));
      });
  t.Gives("control/cond_of_trees", R"py(
out = lax.cond(True, lambda p: {'a': p[0], 'b': p[1]}, lambda p: {'a': p[1], 'b': p[0]}, (ar(2), -ar(2)))
)py")
      .Twin([] {
        using Two = std::pair<Array, Array>;
        return cond(
            true, [](Two p) { return Two(p.first, p.second); },
            [](Two p) { return Two(p.second, p.first); }, Two(Ar({2}), -Ar({2})));
      });
  t.Gives("control/cond_captures", R"py(
w = ar(2)
out = lax.cond(False, lambda: w, lambda: w * 2)
)py")
      .Twin([] {
        const Array w = Ar({2});
        return cond(
            false, [&] { return w; }, [&] { return w * 2; });
      });
  t.Gives("control/cond_grad", R"py(
f = lambda x: lax.cond(x > 1, lambda v: v * v, lambda v: -v, x)
out = grad(f)(jnp.float32(3)), grad(f)(jnp.float32(0))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return cond(
              x > 1, [](Array v) { return v * v; }, [](Array v) { return -v; }, x);
        };
        const Array first = grad(f)(scalar(3.0f));
        return std::pair(first, grad(f)(scalar(0.0f)));
      });
  t.Gives("control/cond_jvp", R"py(
f = lambda x: lax.cond(x > 1, lambda v: v * v, lambda v: -v, x)
out = jvp(f, (jnp.float32(3),), (jnp.float32(1),))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return cond(
              x > 1, [](Array v) { return v * v; }, [](Array v) { return -v; }, x);
        };
        return jvp(f, std::tuple(scalar(3.0f)), std::tuple(ones({})));
      });
  t.Fails("control/cond_of_another_dtype", "branches must have equal output types", R"py(
lax.cond(True, lambda: jnp.float32(1), lambda: jnp.int32(1))
)py")
      .Twin([] {
        cond(
            true, [] { return ones({}); }, [] { return full({}, 1, kS32); });
      });
  t.Fails("control/cond_of_another_shape", "branches must have equal output types", R"py(
lax.cond(True, lambda: ar(2), lambda: ar(3))
)py")
      .Twin([] {
        cond(
            true, [] { return Ar({2}); }, [] { return Ar({3}); });
      });
  t.Fails("control/cond_of_another_tree", "must have the same pytree structure", R"py(
lax.cond(True, lambda: [ar(2)], lambda: [ar(2), ar(2)])
)py")
      .Twin([] {
        using List = std::vector<Array>;
        cond(
            true, [] { return List{Ar({2})}; },
            [] {
              return List{Ar({2}), Ar({2})};
            });
      });
  t.Fails("control/cond_of_a_vector_predicate", "Pred must be a scalar", R"py(
lax.cond(jnp.array([True, False]), lambda: 1., lambda: 2.)
)py")
      .Twin([] {
        cond(
            equal(arange(2), 0), [] { return ones({}); }, [] { return zeros({}); });
      });
  t.Gives("control/cond_of_weak_and_strong", R"py(
out = lax.cond(True, lambda: 1., lambda: jnp.float32(2))
)py")
      .Twin([] {
        const Array one = Weak(1.0);
        return cond(
            true, [&] { return one; }, [] { return scalar(2.0f); });
      });
  t.Gives("control/switch", R"py(
f = lambda i: lax.switch(i, [lambda v: v, lambda v: v * 10, lambda v: v * 100], jnp.float32(2))
out = f(0), f(1), f(jnp.int32(2))
)py")
      .Twin([] {
        const auto f = [](const Arg& i) {
          return switch_(i,
                         std::tuple([](Array v) { return v; }, [](Array v) { return v * 10; },
                                    [](Array v) { return v * 100; }),
                         scalar(2.0f));
        };
        const Array a = f(0), b = f(1);
        return std::tuple(a, b, f(scalar<int32_t>(2)));
      });
  t.Gives("control/switch_clamps_its_index", R"py(
f = lambda i: lax.switch(i, [lambda v: v, lambda v: v * 10], jnp.float32(2))
out = f(-3), f(7)
)py")
      .Twin([] {
        const auto f = [](const Arg& i) {
          return switch_(i, std::tuple([](Array v) { return v; }, [](Array v) { return v * 10; }),
                         scalar(2.0f));
        };
        const Array first = f(-3);
        return std::pair(first, f(7));
      });
  t.Gives("control/switch_of_one", R"py(
out = lax.switch(5, [lambda v: v * 3], jnp.float32(2))
)py")
      .Twin([] { return switch_(5, std::tuple([](Array v) { return v * 3; }), scalar(2.0f)); });
  t.Fails("control/switch_of_none", "Empty branch sequence", R"py(
lax.switch(0, [], jnp.float32(2))
)py")
      .DoesNotCompile();
  t.Fails("control/switch_of_a_float_index", "Index type must be an integer", R"py(
lax.switch(jnp.float32(1), [lambda: 1., lambda: 2.])
)py")
      .Twin(
          [] { switch_(ones({}), std::tuple([] { return ones({}); }, [] { return zeros({}); })); });
  t.Fails("control/switch_of_other_types", "branches must have equal output types", R"py(
lax.switch(0, [lambda: ar(2), lambda: ar(2), lambda: ar(3)])
)py")
      .Twin([] {
        switch_(0,
                std::tuple([] { return Ar({2}); }, [] { return Ar({2}); }, [] { return Ar({3}); }));
      });
  t.Gives("control/switch_grad", R"py(
f = lambda i, x: lax.switch(i, [lambda v: v, lambda v: v * v], x)
out = grad(f, 1)(1, jnp.float32(3))
)py")
      .Twin([] {
        const auto f = [](const Array& i, Array x) {
          return switch_(i, std::tuple([](Array v) { return v; }, [](Array v) { return v * v; }),
                         x);
        };
        return grad<1>(f)(scalar<int32_t>(1), scalar(3.0f));
      });
  // ---- Others. ----
  t.Gives("control/map", R"py(
out = lax.map(lambda x: x * 2, ar(3, 2))
)py")
      .Twin([] {
        return lax::map([](Array x) { return x * 2; }, Ar({3, 2}));
      });
  t.Gives("control/map_of_trees", R"py(
out = lax.map(lambda p: {'s': p[0] + p[1]}, (ar(3), ar(3)))
)py")
      .Twin([] {
        using Two = std::pair<Array, Array>;
        using Map = std::map<std::string, Array>;
        return lax::map(
            [](Two p) {
              return Map{{"s", p.first + p.second}};
            },
            Two(Ar({3}), Ar({3})));
      });
  t.Gives("control/map_batch_size", R"py(
out = lax.map(lambda x: x * x, ar(5), batch_size=2)
)py")
      .Twin([] { return lax::map([](Array x) { return x * x; }, Ar({5}), {.batch_size = 2}); });
  t.Gives("control/map_grad", R"py(
out = grad(lambda x: jnp.sum(lax.map(lambda v: v * v, x)))(ar(3))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(lax::map([](Array v) { return v * v; }, x)); })(
            Ar({3}));
      });
  t.Gives("control/associative_scan", R"py(
out = lax.associative_scan(jnp.add, ints(6))
)py")
      .Twin([] { return associative_scan([](Array a, Array b) { return a + b; }, Ints({6})); });
  t.Gives("control/associative_scan_reverse", R"py(
out = lax.associative_scan(jnp.add, ints(5), reverse=True)
)py")
      .Twin([] {
        return associative_scan([](Array a, Array b) { return a + b; }, Ints({5}),
                                /*reverse=*/true);
      });
  t.Gives("control/associative_scan_of_another_axis", R"py(
out = lax.associative_scan(jnp.maximum, ints(2, 3) % 4, axis=1)
)py")
      .Twin([] {
        return associative_scan([](Array a, Array b) { return maximum(a, b); },
                                remainder(Ints({2, 3}), 4), /*reverse=*/false, /*axis=*/1);
      });
  t.Gives("control/associative_scan_of_trees", R"py(
f = lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1])
out = lax.associative_scan(f, (ints(4) + 1, ints(4)))
)py")
      .Twin([] {
        using Two = std::pair<Array, Array>;
        const auto f = [](Two l, Two r) {
          return Two(l.first * r.first, l.second * r.first + r.second);
        };
        return associative_scan(f, Two(Ints({4}) + 1, Ints({4})));
      });
  t.Gives("control/associative_scan_grad", R"py(
out = grad(lambda x: jnp.sum(lax.associative_scan(jnp.multiply, x)))(ar(4) + 1)
)py")
      .Twin([] {
        return grad([](Array x) {
          return sum(associative_scan([](Array a, Array b) { return a * b; }, x));
        })(Ar({4}) + 1);
      });
  t.Fails("control/associative_scan_of_other_sizes", "", R"py(
lax.associative_scan(lambda l, r: (l[0] + r[0], l[1] + r[1]), (ints(4), ints(3)))
)py")
      .Twin([] {
        using Two = std::pair<Array, Array>;
        associative_scan([](Two l, Two r) { return Two(l.first + r.first, l.second + r.second); },
                         Two(Ints({4}), Ints({3})));
      });
}

}  // namespace tessera::semantics
