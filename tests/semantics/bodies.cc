// Rows about the bodies of shard_map: control flow in them, bodies without a check of varying axes,
// shard_maps with only some axes Manual, and nesting. A row is a program in Python, whose results
// in JAX are recorded, and its twin: the same program in C++ with the SDK. semantics_test.cc runs
// the twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "body/...". A row that calls `see` also compares the types that the body sees.
void AddBodies(Table& t) {
  // ---- Control flow. ----
  t.Fails("body/scan_carry_that_begins_invarying",
          "carry input and carry output must have equal types", R"py(
def f(x):
    return lax.scan(lambda c, v: (c + v, None), jnp.zeros((), jnp.float32), x)[0].reshape(1)
shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py",
          "pcast(..., ('i',), to='varying')")
      .Twin([] {
        shard_map(
            [](Array x) {
              return scan([](Array c, Array v) { return std::pair(c + v, None); }, zeros({}), x)
                  .first.reshape({1});
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("body/scan_carry_once_cast", R"py(
def f(x):
    zero = lax.pcast(jnp.zeros((), jnp.float32), 'i', to='varying')
    return see(lax.scan(lambda c, v: (c + v, None), zero, x)[0]).reshape(1)
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x) {
              const Array zero = lax::pcast(zeros({}), "i", "varying");
              return see(scan([](Array c, Array v) { return std::pair(c + v, None); }, zero, x)
                             .first)
                  .reshape({1});
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("body/scan_carry_like_what_varies", R"py(
def f(x):
    return lax.scan(lambda c, v: (c + v, c), jnp.zeros_like(x[0]), x)[1]
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return scan([](Array c, Array v) { return std::pair(c + v, c); }, zeros_like(x[0]), x)
                  .second;
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("body/scan_results_follow_xs", R"py(
def f(x):
    c, ys = lax.scan(lambda c, v: (c + 1, v * 2), jnp.float32(0), x)
    see(c), see(ys)
    return ys
shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map(
            [&](Array x) {
              const auto out =
                  scan([](Array c, Array v) { return std::pair(c + 1, v * 2); }, zeros({}), x);
              see(out.first);
              return see(out.second);
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
        return see.types();
      });
  t.Fails("body/scan_that_swaps_its_carry", "carry input and carry output must have equal types",
          R"py(
def f(x, y):
    return lax.scan(lambda c, _: ((c[1], c[0]), None), (x, y), None, length=2)[0]
shard_map(f, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(ar(6), ar(3))
)py",
          "pcast(..., ('i',), to='varying')")
      .Twin([] {
        shard_map(
            [](Array x, Array y) {
              return scan([](std::pair<Array, Array> c,
                             NoneType) { return std::pair(std::pair(c.second, c.first), None); },
                          std::pair(x, y), None, {.length = 2})
                  .first;
            },
            Auto({{"i", 2}}), {P("i"), P()}, P("i"))(Ar({6}), Ar({3}));
      })
      .For("A09");
  t.Gives("body/scan_that_swaps_its_carry_once_cast", R"py(
def f(x, y):
    y = lax.pcast(y, 'i', to='varying')
    return lax.scan(lambda c, _: ((c[1], c[0]), None), (x, y), None, length=2)[0]
out = shard_map(f, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(ar(6), ar(3))
)py")
      .Twin([] {
        return shard_map(
            [](Array x, Array y) {
              y = lax::pcast(y, "i", "varying");
              return scan([](std::pair<Array, Array> c,
                             NoneType) { return std::pair(std::pair(c.second, c.first), None); },
                          std::pair(x, y), None, {.length = 2})
                  .first;
            },
            Auto({{"i", 2}}), {P("i"), P()}, P("i"))(Ar({6}), Ar({3}));
      })
      .For("A09");
  t.Gives("body/scan_with_a_collective", R"py(
def f(x):
    return lax.scan(lambda c, v: (c + lax.psum(v, 'i'), c), jnp.float32(0), x)[0]
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return scan([](Array c, Array v) { return std::pair(c + lax::psum(v, "i"), c); },
                          zeros({}), x)
                  .first;
            },
            Auto({{"i", 2}}), {P("i")}, P())(Ar({4}));
      });
  t.Fails("body/while_carry_that_begins_invarying", "must have equal types", R"py(
def f(x):
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + x), (0, jnp.zeros((2,), jnp.float32)))[1]
shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py",
          "pcast(..., ('i',), to='varying')")
      .Twin([] {
        shard_map(
            [](Array x) {
              using C = std::pair<Array, Array>;
              return while_loop([](C c) { return c.first < 2; },
                                [&](C c) { return C(c.first + 1, c.second + x); },
                                C(full({}, 0, kS32), zeros({2})))
                  .second;
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("body/while_carry_once_cast", R"py(
def f(x):
    zero = lax.pcast(jnp.zeros((2,), jnp.float32), 'i', to='varying')
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, zero))[1]
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              using C = std::pair<Array, Array>;
              const Array zero = lax::pcast(zeros({2}), "i", "varying");
              return while_loop([](C c) { return c.first < 3; },
                                [&](C c) { return C(c.first + 1, c.second + x); },
                                C(full({}, 0, kS32), zero))
                  .second;
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Fails("body/fori_carry_that_begins_invarying", "equal types", R"py(
def f(x):
    return lax.fori_loop(0, 3, lambda i, c: c + x, jnp.zeros((2,), jnp.float32))
shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py",
          "pcast(..., ('i',), to='varying')")
      .Twin([] {
        shard_map(
            [](Array x) {
              return fori_loop(
                  0, 3, [&](Array, Array c) { return c + x; }, zeros({2}));
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("body/fori_loop_with_a_collective", R"py(
def f(x):
    return lax.fori_loop(0, 3, lambda i, c: lax.ppermute(c, 'i', [(0, 1), (1, 0)]) + 1, x)
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return fori_loop(
                  0, 3,
                  [](Array, Array c) {
                    return lax::ppermute(c, "i", {{0, 1}, {1, 0}}) + 1;
                  },
                  x);
            },
            Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("body/while_of_a_varying_trip_count", R"py(
def f(n):
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (n[0], jnp.ones_like(n[0])))[1].reshape(1)
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ints(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array n) {
              using C = std::pair<Array, Array>;
              return while_loop([](C c) { return c.first < 5; },
                                [](C c) { return C(c.first + 1, c.second * 2); },
                                C(n[0], ones_like(n[0])))
                  .second.reshape({1});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"))(Ints({4}));
      });
  t.Fails("body/cond_branches_that_vary_otherwise", "branches must have equal output types", R"py(
def f(x, y):
    return lax.cond(True, lambda: x, lambda: y)
shard_map(f, mesh=auto(x=1, y=1), in_specs=(P('x'), P('y')), out_specs=P(('x', 'y')))(ar(2), ar(2))
)py",
          "pcast")
      .Twin([] {
        shard_map(
            [](Array x, Array y) {
              return cond(
                  true, [&] { return x; }, [&] { return y; });
            },
            Auto({{"x", 1}, {"y", 1}}), {P("x"), P("y")}, P({"x", "y"}))(Ar({2}), Ar({2}));
      })
      .For("A10");
  t.Fails("body/cond_of_varying_and_invarying", "branches must have equal output types", R"py(
def f(x):
    return lax.cond(True, lambda: x, lambda: jnp.zeros((2,), jnp.float32))
shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
)py",
          "pcast(..., ")
      .Twin([] {
        shard_map(
            [](Array x) {
              return cond(
                  true, [&] { return x; }, [] { return zeros({2}); });
            },
            Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
      })
      .Note("0.10.2 names an empty tuple of axes, of the branch that varies");
  t.Gives("body/cond_of_a_varying_predicate", R"py(
def f(x):
    return lax.cond(lax.axis_index('x') == 0, lambda v: v, lambda v: -v, x)
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return cond(
                  equal(lax::axis_index("x"), 0), [](Array v) { return v; },
                  [](Array v) { return -v; }, x);
            },
            Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
      });
  t.Gives("body/varying_predicate_does_not_vary_results", R"py(
def f(x):
    see(lax.cond(x[0] > 0, lambda: jnp.float32(1), lambda: jnp.float32(2)))
    return x
shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map(
            [&](Array x) {
              see(cond(
                  x[0] > 0, [] { return ones({}); }, [] { return full({}, 2); }));
              return x;
            },
            Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return see.types();
      })
      .Note("unsound, and what JAX does");
  t.Gives("body/switch_by_axis_index", R"py(
def f(x):
    return lax.switch(lax.axis_index('x'), [lambda v: v, lambda v: v * 10, lambda v: v * 100], x)
out = shard_map(f, mesh=auto(x=3), in_specs=P('x'), out_specs=P('x'))(ints(3) + 1)
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return switch_(lax::axis_index("x"),
                             std::tuple([](Array v) { return v; }, [](Array v) { return v * 10; },
                                        [](Array v) { return v * 100; }),
                             x);
            },
            Auto({{"x", 3}}), {P("x")}, P("x"))(Ints({3}) + 1);
      });
  t.Gives("body/map", R"py(
def f(x):
    return lax.map(lambda v: v * 2 + lax.axis_index('x').astype(jnp.float32), x)
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return lax::map([](Array v) { return v * 2 + lax::axis_index("x").astype(kF32); }, x);
        };
        return shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
      });
  t.Gives("body/associative_scan", R"py(
out = shard_map(lambda x: see(lax.associative_scan(jnp.add, x)), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(
    ints(8)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x) {
              return see(associative_scan([](Array a, Array b) { return a + b; }, x));
            },
            Auto({{"x", 2}}), {P("x")}, P("x"))(Ints({8}));
        return std::pair(y, see.types());
      });
  t.Gives("body/jit_inside", R"py(
g = jit(lambda v: see(v * 2))
out = shard_map(lambda x: g(x), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto g = jit([&](Array v) { return see(v * 2); });
        const Array y =
            shard_map([&](Array x) { return g(x); }, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("body/vmap_inside", R"py(
f = lambda x: vmap(lambda r: see(lax.psum(r, 'x')))(x)
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P())(ar(4, 3)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          return vmap([&](Array r) { return see(lax::psum(r, "x")); })(x);
        };
        const Array y = shard_map(f, Auto({{"x", 2}}), {P("x")}, P())(Ar({4, 3}));
        return std::pair(y, see.types());
      });
  t.Gives("body/vmap_inside_of_a_prefix", R"py(
f = lambda x, w: vmap(lambda r, w: jnp.sum(r * w), (0, None))(x, w)
out = shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(ar(4, 3), ar(3))
)py")
      .Twin([] {
        const auto f = [](Array x, Array w) {
          return vmap([](Array r, Array v) { return sum(r * v); }, {0, None})(x, w);
        };
        return shard_map(f, Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({4, 3}), Ar({3}));
      });
  // ---- check_vma=False. ----
  t.Gives("body/unchecked_repeated_psum", R"py(
f = lambda x: lax.psum(lax.psum(x, 'i'), 'i')
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P(), check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::psum(lax::psum(x, "i"), "i"); },
                         Auto({{"i", 4}}), {P("i")}, P(), kUnchecked)(Ar({4}));
      });
  t.Gives("body/unchecked_scan_carry", R"py(
def f(x):
    return lax.scan(lambda c, v: (c + v, None), jnp.zeros((), jnp.float32), x)[0].reshape(1)
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'), check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return scan([](Array c, Array v) { return std::pair(c + v, None); }, zeros({}), x)
                  .first.reshape({1});
            },
            Auto({{"i", 2}}), {P("i")}, P("i"), kUnchecked)(Ar({4}));
      });
  t.Gives("body/unchecked_all_gather_as_whole", R"py(
f = lambda x: lax.all_gather(x, 'i', tiled=True)
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P(), check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::all_gather(x, "i", 0, true); }, Auto({{"i", 2}}),
                         {P("i")}, P(), kUnchecked)(Ar({4}));
      });
  t.Gives("body/unchecked_promise_of_two_axes", R"py(
f = lambda b: 2 * b
out = shard_map(f, mesh=auto(x=2, y=2, z=2), in_specs=P('x', 'y', 'z'), out_specs=P('x'), check_vma=False)(
    ar(4, 2, 2))
)py")
      .Twin([] {
        return shard_map([](Array b) { return 2 * b; }, Auto({{"x", 2}, {"y", 2}, {"z", 2}}),
                         {P("x", "y", "z")}, P("x"), kUnchecked)(Ar({4, 2, 2}));
      })
      .For("A04")
      .Note("undefined in JAX's words: it takes the blocks of y=z=0");
  t.Gives("body/unchecked_cond_branches", R"py(
def f(x):
    return lax.cond(True, lambda: x, lambda: jnp.zeros((2,), jnp.float32))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'), check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return cond(
                  true, [&] { return x; }, [] { return zeros({2}); });
            },
            Auto({{"x", 2}}), {P("x")}, P("x"), kUnchecked)(Ar({4}));
      });
  t.Gives("body/unchecked_all_gather_to_invarying", R"py(
f = lambda x: lax.all_gather(x, 'i', tiled=True, to='invarying')
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P(), check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::all_gather(x, "i", 0, true, "invarying"); },
                         Auto({{"i", 2}}), {P("i")}, P(), kUnchecked)(Ar({4}));
      });
  // ---- Some axes manual. ----
  t.Gives("body/partial_over_auto", R"py(
f = lambda x: see(lax.psum(x, 'i'))
out = jit(shard_map(f, mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P(), axis_names={'i'}))(ar(4, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y =
            jit(shard_map([&](Array x) { return see(lax::psum(x, "i")); },
                          Auto({{"i", 2}, {"j", 2}}), {P("i")}, P(), Only({"i"})))(Ar({4, 2}));
        return std::pair(y, see.types());
      })
      .Anywhere();
  t.Gives("body/partial_sees_whole_auto_dims", R"py(
m = auto(i=2, j=2)
f = lambda x: see(x * 2)
out = jit(shard_map(f, mesh=m, in_specs=P('i'), out_specs=P('i'), axis_names={'i'}))(put(ar(4, 2), m, P('i', 'j'))), seen
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Auto({{"i", 2}, {"j", 2}});
        const Array y = jit(shard_map([&](Array x) { return see(x * 2); }, m, {P("i")}, P("i"),
                                      Only({"i"})))(put(Ar({4, 2}), m, P("i", "j")));
        return std::pair(y, see.types());
      })
      .Anywhere();
  t.Gives("body/partial_sees_explicit_types", R"py(
m = explicit(i=2, j=2)
with set_mesh(m):
    x = put(ar(4, 4), m, P('i', 'j'))
    y = jit(shard_map(lambda x: see(x * 2), in_specs=P('i'), out_specs=P('i'), axis_names={'i'}))(x)
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}, {"j", 2}});
        set_mesh context(m);
        const Array y = jit(shard_map([&](Array x) { return see(x * 2); }, Mesh{}, {P("i")}, P("i"),
                                      Only({"i"})))(put(Ar({4, 4}), m, P("i", "j")));
        return std::tuple(see.types(), y.type().ToString(), y);
      });
  t.Gives("body/partial_merges_axes_of_a_dim", R"py(
m = explicit(i=2, j=2)
with set_mesh(m):
    x = put(ar(8), m, P(('i', 'j')))
    y = jit(shard_map(lambda x: see(x * 2), in_specs=P('i'), out_specs=P('i'), axis_names={'i'}))(x)
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}, {"j", 2}});
        set_mesh context(m);
        const Array y = jit(shard_map([&](Array x) { return see(x * 2); }, Mesh{}, {P("i")}, P("i"),
                                      Only({"i"})))(put(Ar({8}), m, P({"i", "j"})));
        return std::tuple(see.types(), y.type().ToString(), y);
      });
  t.Gives("body/partial_axis_index", R"py(
f = lambda x: x + lax.axis_index('i')
out = jit(shard_map(f, mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P('i'), axis_names={'i'}))(ints(4))
)py")
      .Twin([] {
        return jit(shard_map([](Array x) { return x + lax::axis_index("i"); },
                             Auto({{"i", 2}, {"j", 2}}), {P("i")}, P("i"), Only({"i"})))(Ints({4}));
      })
      .Anywhere();
  t.Gives("body/partial_reduction_over_an_explicit_dim", R"py(
m = explicit(i=2, j=2)
with set_mesh(m):
    x = put(ar(4, 4), m, P('i', 'j'))
    y = jit(shard_map(lambda x: see(jnp.sum(x, 1)), in_specs=P('i'), out_specs=P('i'), axis_names={'i'}))(x)
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}, {"j", 2}});
        set_mesh context(m);
        const Array y = jit(shard_map([&](Array x) { return see(sum(x, 1)); }, Mesh{}, {P("i")},
                                      P("i"), Only({"i"})))(put(Ar({4, 4}), m, P("i", "j")));
        return std::tuple(see.types(), y.type().ToString(), y);
      });
  t.Fails("body/partial_promise", "require replication", R"py(
jit(shard_map(lambda x: x, mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P(), axis_names={'i'}))(ar(4))
)py")
      .Twin([] {
        jit(shard_map([](Array x) { return x; }, Auto({{"i", 2}, {"j", 2}}), {P("i")}, P(),
                      Only({"i"})))(Ar({4}));
      });
  t.Gives("body/partial_grad", R"py(
m = auto(i=2, j=2)
f = shard_map(lambda x: lax.psum(jnp.sum(x * x), 'i'), mesh=m, in_specs=P('i'), out_specs=P(), axis_names={'i'})
out = jit(grad(f))(ar(4, 2))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x) { return lax::psum(sum(x * x), "i"); },
                                 Auto({{"i", 2}, {"j", 2}}), {P("i")}, P(), Only({"i"}));
        return jit(grad(f))(Ar({4, 2}));
      })
      .Anywhere();
  // ---- Nesting. ----
  t.Gives("body/nested", R"py(
m = auto(i=2, j=2)
def outer(x):
    inner = shard_map(lambda y: see(lax.psum(y, 'j')), in_specs=P('j'), out_specs=P(), axis_names={'j'})
    return inner(see(x))
out = jit(shard_map(outer, mesh=m, in_specs=P('i'), out_specs=P('i'), axis_names={'i'}))(ar(8)), seen
)py")
      .Twin([] {
        Seen see;
        const auto outer = [&](Array x) {
          return shard_map([&](Array y) { return see(lax::psum(y, "j")); }, Mesh{}, {P("j")}, P(),
                           Only({"j"}))(see(x));
        };
        const Array y = jit(
            shard_map(outer, Auto({{"i", 2}, {"j", 2}}), {P("i")}, P("i"), Only({"i"})))(Ar({8}));
        return std::pair(y, see.types());
      })
      .Anywhere();
  t.Gives("body/nested_uses_both_axes", R"py(
m = auto(i=2, j=2)
def outer(x):
    inner = shard_map(lambda y: see(lax.psum(y, ('i', 'j'))), in_specs=P('j'), out_specs=P(), axis_names={'j'})
    return inner(x)
out = jit(shard_map(outer, mesh=m, in_specs=P('i'), out_specs=P(), axis_names={'i'}))(ar(8)), seen
)py")
      .Twin([] {
        Seen see;
        const auto outer = [&](Array x) {
          return shard_map(
              [&](Array y) {
                return see(lax::psum(y, {"i", "j"}));
              },
              Mesh{}, {P("j")}, P(), Only({"j"}))(x);
        };
        const Array y =
            jit(shard_map(outer, Auto({{"i", 2}, {"j", 2}}), {P("i")}, P(), Only({"i"})))(Ar({8}));
        return std::pair(y, see.types());
      })
      .Anywhere();
  t.Fails("body/nested_over_a_manual_axis", "", R"py(
m = auto(i=2)
def outer(x):
    return shard_map(lambda y: y, in_specs=P('i'), out_specs=P('i'))(x)
shard_map(outer, mesh=m, in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        const auto outer = [](Array x) {
          return shard_map([](Array y) { return y; }, Mesh{}, {P("i")}, P("i"))(x);
        };
        shard_map(outer, Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Fails("body/nested_with_another_mesh", "should match the mesh passed to shard_map", R"py(
def outer(x):
    return shard_map(lambda y: y, mesh=auto(j=2), in_specs=P('j'), out_specs=P('j'))(x)
shard_map(outer, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        const Mesh other = Auto({{"j", 2}});
        const auto outer = [&](Array x) {
          return shard_map([](Array y) { return y; }, other, {P("j")}, P("j"))(x);
        };
        shard_map(outer, Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("body/nested_grad", R"py(
m = auto(i=2, j=2)
def outer(x):
    inner = shard_map(lambda y: lax.psum(y * y, 'j'), in_specs=P('j'), out_specs=P(), axis_names={'j'})
    return lax.psum(jnp.sum(inner(x)), 'i')
out = jit(grad(shard_map(outer, mesh=m, in_specs=P('i'), out_specs=P(), axis_names={'i'})))(ar(8))
)py")
      .Twin([] {
        const auto outer = [](Array x) {
          const auto inner = shard_map([](Array y) { return lax::psum(y * y, "j"); }, Mesh{},
                                       {P("j")}, P(), Only({"j"}));
          return lax::psum(sum(inner(x)), "i");
        };
        return jit(grad(shard_map(outer, Auto({{"i", 2}, {"j", 2}}), {P("i")}, P(), Only({"i"}))))(
            Ar({8}));
      })
      .Anywhere();
  t.Fails("body/auto_axes_over_a_manual_axis", "Manual", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: auto_axes(lambda y: y, axes='i', out_sharding=P())(x)
    shard_map(f, in_specs=P('i'), out_specs=P('i'))(put(ar(4), m, P('i')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        const auto f = [](Array x) { return auto_axes([](Array y) { return y; }, {"i"}, P())(x); };
        shard_map(f, Mesh(), {P("i")}, P("i"))(put(Ar({4}), m, P("i")));
      });
}

}  // namespace tessera::semantics
