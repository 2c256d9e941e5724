// Rows about vmap: mapped dims, sizes, names of axes, and vmap of control flow, collectives and
// other transforms. A row is a program in Python, whose results in JAX are recorded, and its twin:
// the same program in C++ with the SDK. semantics_test.cc runs the twins and compares their results
// with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "vmap/...". The first rows are about mapped dims and sizes. The sections after them
// are about vmap of other transforms and about names of axes.
void AddVmap(Table& t) {
  t.Gives("vmap/maps_the_leading_dim", R"py(
out = vmap(lambda x: see(x * 2))(ar(2, 3)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = vmap([&](Array x) { return see(x * 2); })(Ar({2, 3}));
        return std::pair(y, see.types());
      });
  t.Gives("vmap/in_axes_of_each", R"py(
out = vmap(lambda x, y: x + y, in_axes=(0, 1))(ar(2, 3), ar(3, 2))
)py")
      .Twin([] {
        return vmap([](Array x, Array y) { return x + y; }, {0, 1})(Ar({2, 3}), Ar({3, 2}));
      });
  t.Gives("vmap/in_axes_none", R"py(
out = vmap(lambda x, y: x * y, in_axes=(0, None))(ar(2), ar(3))
)py")
      .Twin([] {
        return vmap([](Array x, Array y) { return x * y; }, {0, None})(Ar({2}), Ar({3}));
      });
  t.Gives("vmap/in_axes_negative", R"py(
out = vmap(lambda x: jnp.sum(x), in_axes=-1)(ar(2, 3))
)py")
      .Twin([] {
        return vmap([](Array x) { return sum(x); }, -1)(Ar({2, 3}));
      });
  t.Gives("vmap/in_axes_prefix", R"py(
out = vmap(lambda p, y: p['a'] + p['b'] * y, in_axes=({'a': 0, 'b': None}, None))(
    {'a': ar(2), 'b': jnp.float32(3)}, jnp.float32(2))
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return vmap([](Map p, Array y) { return p["a"] + p["b"] * y; },
                    {Prefix<int>::Named({{"a", 0}, {"b", None}}), None})(
            Map{{"a", Ar({2})}, {"b", scalar(3.0f)}}, scalar(2.0f));
      });
  t.Gives("vmap/in_axes_of_a_whole_tree", R"py(
out = vmap(lambda p: p[0] + p[1])((ar(2), ar(2)))
)py")
      .Twin([] {
        return vmap([](std::pair<Array, Array> p) { return p.first + p.second; })(
            std::pair(Ar({2}), Ar({2})));
      });
  t.Gives("vmap/out_axes", R"py(
out = vmap(lambda x: x * 2, out_axes=1)(ar(2, 3))
)py")
      .Twin([] {
        return vmap([](Array x) { return x * 2; }, 0, 1)(Ar({2, 3}));
      });
  t.Gives("vmap/out_axes_negative", R"py(
out = vmap(lambda x: x * 2, out_axes=-1)(ar(2, 3))
)py")
      .Twin([] {
        return vmap([](Array x) { return x * 2; }, 0, -1)(Ar({2, 3}));
      });
  t.Gives("vmap/out_axes_of_each", R"py(
out = vmap(lambda x: (x, x), out_axes=(0, 1))(ar(2, 3))
)py")
      .Twin([] {
        return vmap([](Array x) { return std::pair(x, x); }, 0, {0, 1})(Ar({2, 3}));
      });
  t.Gives("vmap/out_axes_none", R"py(
out = vmap(lambda x, y: (x, y * 2), in_axes=(0, None), out_axes=(0, None))(ar(2), ar(3))
)py")
      .Twin([] {
        return vmap([](Array x, Array y) { return std::pair(x, y * 2); }, {0, None}, {0, None})(
            Ar({2}), Ar({3}));
      });
  t.Gives("vmap/unmapped_result_is_repeated", R"py(
out = vmap(lambda x: jnp.float32(7))(ar(3))
)py")
      .Twin([] { return vmap([](Array) { return full({}, 7); })(Ar({3})); });
  t.Gives("vmap/axis_size", R"py(
out = vmap(lambda: jnp.float32(7), axis_size=3)()
)py")
      .Twin([] { return vmap([] { return full({}, 7); }, {}, 0, {.axis_size = 3})(); });
  t.Gives("vmap/nested", R"py(
out = vmap(vmap(lambda x, y: x * y, (0, None)), (None, 0))(ar(2), ar(3))
)py")
      .Twin([] {
        return vmap(vmap([](Array x, Array y) { return x * y; }, {0, None}), {None, 0})(Ar({2}),
                                                                                        Ar({3}));
      });
  t.Gives("vmap/of_no_rows", R"py(
out = vmap(lambda x: x * 2)(ar(0, 3))
)py")
      .Twin([] {
        return vmap([](Array x) { return x * 2; })(zeros({0, 3}));
      });
  t.Fails("vmap/sizes_that_differ", "vmap got inconsistent sizes for array axes to be mapped", R"py(
vmap(lambda x, y: x)(ar(2), ar(3))
)py")
      .Twin([] { vmap([](Array x, Array) { return x; })(Ar({2}), Ar({3})); });
  t.Fails("vmap/nothing_mapped", "vmap must have at least one non-None value in in_axes", R"py(
vmap(lambda x: x, in_axes=None)(ar(2))
)py")
      .Twin([] { vmap([](Array x) { return x; }, None)(Ar({2})); });
  t.Fails("vmap/axis_out_of_range", "rank should be at least", R"py(
vmap(lambda x: x, in_axes=2)(ar(2, 3))
)py")
      .Twin([] {
        vmap([](Array x) { return x; }, 2)(Ar({2, 3}));
      });
  t.Fails("vmap/scalar_is_mapped", "rank", R"py(
vmap(lambda x: x)(jnp.float32(1))
)py")
      .Twin([] { vmap([](Array x) { return x; })(scalar(1.0f)); });
  t.Fails("vmap/in_axes_are_no_prefix", "vmap in_axes", R"py(
vmap(lambda p: p[0], in_axes=((0, 0, 0),))((ar(2), ar(2)))
)py")
      .Twin([] {
        vmap([](std::pair<Array, Array> p) { return p.first; },
             {{0, 0, 0}})(std::pair(Ar({2}), Ar({2})));
      });
  t.Fails("vmap/out_axes_are_no_prefix", "vmap out_axes", R"py(
vmap(lambda x: (x, x), out_axes=(0, 0, 0))(ar(2))
)py")
      .Twin([] {
        vmap([](Array x) { return std::pair(x, x); }, 0, {0, 0, 0})(Ar({2}));
      });
  t.Fails("vmap/out_axes_none_of_a_mapped_result", "out_axes", R"py(
vmap(lambda x: x, out_axes=None)(ar(2))
)py")
      .Twin([] { vmap([](Array x) { return x; }, 0, None)(Ar({2})); });
  t.Fails("vmap/axis_size_that_does_not_match", "", R"py(
vmap(lambda x: x, axis_size=3)(ar(2))
)py")
      .Twin([] { vmap([](Array x) { return x; }, 0, 0, {.axis_size = 3})(Ar({2})); });
  t.Fails("vmap/in_axes_are_no_integers", "", R"py(
vmap(lambda x: x, in_axes='a')(ar(2))
)py")
      .DoesNotCompile();
  // ---- vmap of other transforms. ----
  t.Gives("vmap/of_grad", R"py(
out = vmap(grad(lambda x: jnp.sum(x * x)))(ar(2, 3))
)py")
      .Twin([] {
        return vmap(grad([](Array x) { return sum(x * x); }))(Ar({2, 3}));
      });
  t.Gives("vmap/per_example_gradients", R"py(
out = vmap(grad(lambda w, x: jnp.dot(w, x) ** 2), (None, 0))(ar(3), ar(2, 3))
)py")
      .Twin([] {
        return vmap(grad([](Array w, Array x) { return square(dot(w, x)); }), {None, 0})(
            Ar({3}), Ar({2, 3}));
      });
  t.Gives("vmap/grad_of_vmap", R"py(
out = grad(lambda x: jnp.sum(vmap(lambda r: r * r)(x)))(ar(2, 3))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(vmap([](Array r) { return r * r; })(x)); })(
            Ar({2, 3}));
      });
  t.Gives("vmap/jvp_of_vmap", R"py(
out = jvp(vmap(lambda r: jnp.sum(r * r)), (ar(2, 3),), (jnp.ones((2, 3), jnp.float32),))
)py")
      .Twin([] {
        return jvp(vmap([](Array r) { return sum(r * r); }), std::tuple(Ar({2, 3})),
                   std::tuple(ones({2, 3})));
      });
  t.Gives("vmap/of_jit", R"py(
out = vmap(jit(lambda x: x + 1))(ar(3))
)py")
      .Twin([] { return vmap(jit([](Array x) { return x + 1; }))(Ar({3})); });
  t.Gives("vmap/cond_becomes_a_selection", R"py(
out = vmap(lambda p, x: lax.cond(p, lambda v: v * 2, lambda v: -v, x))(jnp.array([True, False]), ar(2) + 1)
)py")
      .Twin([] {
        return vmap([](Array p, Array x) {
          return cond(
              p, [](Array v) { return v * 2; }, [](Array v) { return -v; }, x);
        })(equal(arange(2), 0), Ar({2}) + 1);
      });
  t.Gives("vmap/cond_of_one_predicate", R"py(
out = vmap(lambda p, x: lax.cond(p, lambda v: v * 2, lambda v: -v, x), (None, 0))(True, ar(2) + 1)
)py")
      .Twin([] {
        return vmap(
            [](Array p, Array x) {
              return cond(
                  p, [](Array v) { return v * 2; }, [](Array v) { return -v; }, x);
            },
            {None, 0})(scalar(true), Ar({2}) + 1);
      });
  t.Gives("vmap/switch", R"py(
out = vmap(lambda i, x: lax.switch(i, [lambda v: v, lambda v: 10 * v, lambda v: 100 * v], x))(
    jnp.array([2, 0, 1]), ar(3) + 1)
)py")
      .Twin([] {
        return vmap([](Array i, Array x) {
          return switch_(i,
                         std::tuple([](Array v) { return v; }, [](Array v) { return 10 * v; },
                                    [](Array v) { return 100 * v; }),
                         x);
        })(array<int32_t>({2, 0, 1}), Ar({3}) + 1);
      });
  t.Gives("vmap/while_loop_of_other_trip_counts", R"py(
out = vmap(lambda n: lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 2), (n, jnp.int32(1)))[1])(ints(4))
)py")
      .Twin([] {
        using C = std::pair<Array, Array>;
        return vmap([](Array n) {
          return while_loop([](C c) { return c.first < 4; },
                            [](C c) { return C(c.first + 1, c.second * 2); },
                            C(n, full({}, 1, kS32)))
              .second;
        })(Ints({4}));
      });
  t.Gives("vmap/scan", R"py(
out = vmap(lambda x: lax.scan(lambda c, v: (c + v, c), jnp.float32(0), x))(ar(2, 3))
)py")
      .Twin([] {
        return vmap([](Array x) {
          return scan([](Array c, Array v) { return std::pair(c + v, c); }, zeros({}), x);
        })(Ar({2, 3}));
      });
  t.Gives("vmap/scan_of_an_unmapped_carry", R"py(
out = vmap(lambda s: lax.scan(lambda c, v: (c + v * s, None), jnp.float32(0), ar(3))[0])(ar(2))
)py")
      .Twin([] {
        return vmap([](Array s) {
          return scan([&](Array c, Array v) { return std::pair(c + v * s, None); }, zeros({}),
                      Ar({3}))
              .first;
        })(Ar({2}));
      });
  t.Gives("vmap/gather_and_scatter", R"py(
out = vmap(lambda r, i: r.at[i].set(r[i] * 10))(ar(2, 3), jnp.array([0, 2]))
)py")
      .Twin([] {
        return vmap([](Array r, Array i) { return r.at(i).set(r[i] * 10); })(
            Ar({2, 3}), array<int32_t>({0, 2}));
      });
  t.Gives("vmap/dynamic_slice", R"py(
out = vmap(lambda r, i: lax.dynamic_slice(r, (i,), (2,)))(ar(2, 4), jnp.array([0, 2]))
)py")
      .Twin([] {
        return vmap([](Array r, Array i) { return lax::dynamic_slice(r, {i}, {2}); })(
            Ar({2, 4}), array<int32_t>({0, 2}));
      });
  t.Gives("vmap/random", R"py(
out = vmap(lambda k: jax.random.bits(k, (2,), jnp.uint32))(jax.random.split(jax.random.key(0), 3))
)py")
      .Twin([] {
        return vmap([](Array k) { return random::bits(k, {2}); })(random::split(random::key(0), 3));
      });
  t.Gives("vmap/matmul_and_solve", R"py(
a = jnp.eye(2, dtype=jnp.float32) * jnp.array([[[2.]], [[4.]]], jnp.float32)
out = vmap(jnp.linalg.solve)(a, ar(2, 2))
)py")
      .Twin([] {
        const Array a = eye(2) * array<float>({2, 4}, {2, 1, 1});
        return vmap([](Array m, Array b) { return linalg::solve(m, b); })(a, Ar({2, 2}));
      });
  // ---- Names of axes. ----
  t.Gives("vmap/psum_over_its_axis", R"py(
out = vmap(lambda x: lax.psum(x, 'b'), axis_name='b')(ints(3))
)py")
      .Twin([] {
        return vmap([](Array x) { return lax::psum(x, "b"); }, 0, 0, {.axis_name = "b"})(Ints({3}));
      });
  t.Gives("vmap/psum_of_what_is_not_mapped", R"py(
out = vmap(lambda x: lax.psum(jnp.int32(2), 'b') + x, axis_name='b')(ints(3))
)py")
      .Twin([] {
        const auto f = [](Array x) { return lax::psum(scalar(int32_t{2}), "b") + x; };
        return vmap(f, 0, 0, {.axis_name = "b"})(Ints({3}));
      });
  t.Gives("vmap/pmean_pmax_pmin", R"py(
out = vmap(lambda x: (lax.pmean(x, 'b'), lax.pmax(x, 'b'), lax.pmin(x, 'b')), axis_name='b')(ar(4))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return std::tuple(lax::pmean(x, "b"), lax::pmax(x, "b"), lax::pmin(x, "b"));
        };
        return vmap(f, 0, 0, {.axis_name = "b"})(Ar({4}));
      });
  t.Gives("vmap/axis_index_and_size", R"py(
out = vmap(lambda x: (lax.axis_index('b'), x * lax.axis_size('b')), axis_name='b')(ints(3))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return std::pair(lax::axis_index("b"), x * lax::axis_size("b"));
        };
        return vmap(f, 0, 0, {.axis_name = "b"})(Ints({3}));
      });
  t.Gives("vmap/all_gather_over_its_axis", R"py(
out = vmap(lambda x: lax.all_gather(x, 'b'), axis_name='b')(ints(2, 2))
)py")
      .Twin([] {
        return vmap([](Array x) { return lax::all_gather(x, "b"); }, 0, 0,
                    {.axis_name = "b"})(Ints({2, 2}));
      });
  t.Gives("vmap/all_gather_tiled_over_its_axis", R"py(
out = vmap(lambda x: lax.all_gather(x, 'b', tiled=True), axis_name='b')(ints(2, 2))
)py")
      .Twin([] {
        return vmap([](Array x) { return lax::all_gather(x, "b", 0, /*tiled=*/true); }, 0, 0,
                    {.axis_name = "b"})(Ints({2, 2}));
      });
  t.Gives("vmap/ppermute_over_its_axis", R"py(
out = vmap(lambda x: lax.ppermute(x, 'b', [(0, 1), (1, 2), (2, 0)]), axis_name='b')(ints(3))
)py")
      .Twin([] {
        return vmap(
            [](Array x) {
              return lax::ppermute(x, "b", {{0, 1}, {1, 2}, {2, 0}});
            },
            0, 0, {.axis_name = "b"})(Ints({3}));
      });
  t.Gives("vmap/all_to_all_over_its_axis", R"py(
out = vmap(lambda x: lax.all_to_all(x, 'b', 0, 0), axis_name='b')(ints(3, 3))
)py")
      .Twin([] {
        return vmap([](Array x) { return lax::all_to_all(x, "b", 0, 0); }, 0, 0,
                    {.axis_name = "b"})(Ints({3, 3}));
      });
  t.Gives("vmap/psum_scatter_over_its_axis", R"py(
out = vmap(lambda x: lax.psum_scatter(x, 'b'), axis_name='b')(ints(3, 3))
)py")
      .Twin([] {
        return vmap([](Array x) { return lax::psum_scatter(x, "b"); }, 0, 0,
                    {.axis_name = "b"})(Ints({3, 3}));
      });
  t.Gives("vmap/psum_over_two_of_its_axes", R"py(
f = lambda x: lax.psum(x, ('a', 'b'))
out = vmap(vmap(f, axis_name='b'), axis_name='a')(ints(2, 3))
)py")
      .Twin([] {
        const auto f = vmap(
            [](Array x) {
              return lax::psum(x, {"a", "b"});
            },
            0, 0, {.axis_name = "b"});
        return vmap(f, 0, 0, {.axis_name = "a"})(Ints({2, 3}));
      });
  t.Gives("vmap/grad_of_psum_over_its_axis", R"py(
out = grad(lambda x: jnp.sum(vmap(lambda v: v * lax.psum(v, 'b'), axis_name='b')(x)))(ar(3))
)py")
      .Twin([] {
        const auto f =
            vmap([](Array v) { return v * lax::psum(v, "b"); }, 0, 0, {.axis_name = "b"});
        return grad([&](Array x) { return sum(f(x)); })(Ar({3}));
      });
  t.Gives("vmap/grad_inside_of_psum_over_its_axis", R"py(
out = vmap(grad(lambda v: lax.psum(v * v, 'b')), axis_name='b')(ar(3))
)py")
      .Twin([] {
        return vmap(grad([](Array v) { return lax::psum(v * v, "b"); }), 0, 0,
                    {.axis_name = "b"})(Ar({3}));
      });
  t.Gives("vmap/axis_name_in_shard_map", R"py(
f = lambda x: vmap(lambda v: lax.psum(v, ('b', 'i')), axis_name='b')(x)
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P(), check_vma=False)(ints(4, 2))
)py")
      .Twin([] {
        const auto f = vmap(
            [](Array v) {
              return lax::psum(v, {"b", "i"});
            },
            0, 0, {.axis_name = "b"});
        return shard_map(f, Auto({{"i", 2}}), {P("i")}, P(), kUnchecked)(Ints({4, 2}));
      })
      .Note("checked, 0.10.2 takes the axis of vmap for one of another state");
  t.Fails("vmap/another_name", "unbound axis name: q", R"py(
vmap(lambda x: lax.psum(x, 'q'), axis_name='b')(ints(3))
)py")
      .Twin([] {
        vmap([](Array x) { return lax::psum(x, "q"); }, 0, 0, {.axis_name = "b"})(Ints({3}));
      });
  t.Gives("vmap/ragged_trees_of_rows", R"py(
out = vmap(lambda p: jnp.sum(p['a']) + p['b'])({'a': ar(2, 3), 'b': ar(2)})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return vmap([](Map p) { return sum(p["a"]) + p["b"]; })(
            Map{{"a", Ar({2, 3})}, {"b", Ar({2})}});
      });
}

}  // namespace tessera::semantics
