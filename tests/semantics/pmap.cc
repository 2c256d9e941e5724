// Rows about pmap, which is vmap over devices. A row is a program in Python, whose results in JAX
// are recorded, and its twin: the same program in C++ with the SDK. semantics_test.cc runs the
// twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {
namespace {

// The name that JAX gives to the mapped axis if the program does not name it.
constexpr const char* kAxis = "_internal_pmap_axis_name";

}  // namespace

// Adds the rows "pmap/...". Most rows compare only the values of a result, not its sharding
// (Anywhere).
void AddPmap(Table& t) {
  t.Gives("pmap/maps_over_devices", R"py(
out = pmap(lambda x: x * 2)(ar(4, 3))
)py")
      .Twin([] {
        return pmap([](Array x) { return x * 2; })(Ar({4, 3}));
      })
      .Anywhere();
  t.Gives("pmap/body_lacks_the_mapped_dim", R"py(
pmap(lambda x: see(x))(ar(4, 3))
out = seen
)py")
      .Twin([] {
        Seen see;
        pmap([&](Array x) { return see(x); })(Ar({4, 3}));
        return see.types();
      });
  t.Gives("pmap/psum", R"py(
out = pmap(lambda x: x / lax.psum(x, 'i'), 'i')(jnp.array([0., 1., 3., 4.], jnp.float32))
)py")
      .Twin([] {
        return pmap([](Array x) { return x / lax::psum(x, "i"); }, "i")(array<float>({0, 1, 3, 4}));
      })
      .For("A24")
      .Anywhere();
  t.Gives("pmap/results_are_sharded_over_the_axis", R"py(
out = pmap(lambda x: x + 1, 'i')(ar(4))
)py")
      .Twin([] { return pmap([](Array x) { return x + 1; }, "i")(Ar({4})); });
  t.Gives("pmap/in_axes_none", R"py(
out = pmap(lambda x, y: (x + y, y * 2), in_axes=(0, None))(ar(2), jnp.float32(4))
)py")
      .Twin([] {
        const auto f = [](Array x, Array y) { return std::pair(x + y, y * 2); };
        return pmap(f, kAxis, {.in_axes = {0, None}})(Ar({2}), scalar(4.0f));
      })
      .For("A24")
      .Anywhere();
  t.Gives("pmap/in_axes_of_another_dim", R"py(
out = pmap(lambda x: x * 2, in_axes=1)(ar(3, 2))
)py")
      .Twin([] {
        return pmap([](Array x) { return x * 2; }, kAxis, {.in_axes = 1})(Ar({3, 2}));
      })
      .Anywhere();
  t.Gives("pmap/out_axes", R"py(
out = pmap(lambda x: x * 2, out_axes=1)(ar(2, 3))
)py")
      .Twin([] {
        return pmap([](Array x) { return x * 2; }, kAxis, {.out_axes = 1})(Ar({2, 3}));
      })
      .Anywhere();
  t.Gives("pmap/out_axes_none_takes_one_copy", R"py(
out = pmap(lambda x: lax.psum(x, 'i'), 'i', out_axes=None)(ar(4))
)py")
      .Twin([] {
        return pmap([](Array x) { return lax::psum(x, "i"); }, "i", {.out_axes = None})(Ar({4}));
      })
      .Anywhere();
  t.Gives("pmap/trees", R"py(
out = pmap(lambda p: {'s': p['a'] + p['b'][0]})({'a': ar(2), 'b': (ar(2, 3),)})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return pmap([](const std::pair<Array, std::tuple<Array>>& p) {
          return Map{{"s", p.first + std::get<0>(p.second)}};
        })(std::pair(Ar({2}), std::tuple(Ar({2, 3}))));
      })
      .Anywhere();
  t.Gives("pmap/axis_index_and_size", R"py(
out = pmap(lambda x: lax.axis_index('i') + lax.axis_size('i'), 'i')(ar(4))
)py")
      .Twin([] {
        return pmap([](Array) { return lax::axis_index("i") + lax::axis_size("i"); }, "i")(Ar({4}));
      })
      .Anywhere();
  t.Gives("pmap/ppermute", R"py(
out = pmap(lambda x: lax.ppermute(x, 'i', [(0, 1), (1, 2), (2, 3), (3, 0)]), 'i')(ar(4))
)py")
      .Twin([] {
        return pmap(
            [](Array x) {
              return lax::ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
            },
            "i")(Ar({4}));
      })
      .Anywhere();
  t.Gives("pmap/all_gather", R"py(
out = pmap(lambda x: lax.all_gather(x, 'i'), 'i')(ints(2))
)py")
      .Twin([] { return pmap([](Array x) { return lax::all_gather(x, "i"); }, "i")(Ints({2})); })
      .Anywhere();
  t.Gives("pmap/pmean_of_a_gradient", R"py(
out = pmap(lambda x: lax.pmean(grad(lambda w: w * w * x)(jnp.float32(3)), 'i'), 'i')(ar(4))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return lax::pmean(grad([&](Array w) { return w * w * x; })(scalar(3.0f)), "i");
        };
        return pmap(f, "i")(Ar({4}));
      })
      .Anywhere();
  t.Gives("pmap/grad_inside_of_psum_is_per_replica", R"py(
out = pmap(lambda p, x: grad(lambda p: lax.psum(p * x, 'i'))(p), 'i', in_axes=(None, 0))(jnp.float32(1), ar(4) + 1)
)py")
      .Twin([] {
        const auto f = [](Array p, Array x) {
          return grad([&](Array q) { return lax::psum(q * x, "i"); })(p);
        };
        return pmap(f, "i", {.in_axes = {None, 0}})(scalar(1.0f), Ar({4}) + 1);
      })
      .For("A24")
      .Anywhere();
  t.Gives("pmap/grad_through", R"py(
out = grad(lambda x: jnp.sum(pmap(lambda v: v * v)(x)))(ar(4))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(pmap([](Array v) { return v * v; })(x)); })(Ar({4}));
      })
      .Anywhere();
  t.Gives("pmap/grad_through_psum", R"py(
out = grad(lambda x: jnp.sum(pmap(lambda v: v * lax.psum(v, 'i'), 'i')(x)))(ar(4))
)py")
      .Twin([] {
        const auto f = pmap([](Array v) { return v * lax::psum(v, "i"); }, "i");
        return grad([&](Array x) { return sum(f(x)); })(Ar({4}));
      })
      .Anywhere();
  t.Gives("pmap/under_jit", R"py(
out = jit(lambda x: pmap(lambda v: v * 2)(x) + 1)(ar(4))
)py")
      .Twin([] {
        return jit([](Array x) { return pmap([](Array v) { return v * 2; })(x) + 1; })(Ar({4}));
      })
      .Anywhere();
  t.Gives("pmap/vmap_inside", R"py(
out = pmap(lambda x: vmap(lambda v: lax.psum(v, 'i'))(x), 'i')(ar(2, 3))
)py")
      .Twin([] {
        const auto f = [](Array x) { return vmap([](Array v) { return lax::psum(v, "i"); })(x); };
        return pmap(f, "i")(Ar({2, 3}));
      })
      .Anywhere();
  t.Gives("pmap/static_argument", R"py(
out = pmap(lambda x, n: x * n, static_broadcasted_argnums=1)(ar(2), 3)
)py")
      .Twin([] { return pmap([](Array x, int n) { return x * n; })(Ar({2}), 3); })
      .Anywhere();
  t.Gives("pmap/collectives_over_devices_and_vmap", R"py(
f = lambda x: lax.psum(x, ('i', 'j'))
out = pmap(vmap(f, axis_name='j'), 'i')(ints(2, 3))
)py")
      .Twin([] {
        const auto f = [](Array x) { return lax::psum(x, {"i", "j"}); };
        return pmap(vmap(f, 0, 0, {.axis_name = "j"}), "i")(Ints({2, 3}));
      })
      .Anywhere();
  t.Fails("pmap/nothing_mapped", "mapped axis", R"py(
pmap(lambda x: x, in_axes=None)(ar(2))
)py")
      .Twin([] { pmap([](Array x) { return x; }, kAxis, {.in_axes = None})(Ar({2})); });
  t.Fails("pmap/sizes_that_differ", "", R"py(
pmap(lambda x, y: x)(ar(2), ar(4))
)py")
      .Twin([] { pmap([](Array x, Array) { return x; })(Ar({2}), Ar({4})); });
  t.Fails("pmap/more_rows_than_devices", "", R"py(
pmap(lambda x: x)(ar(9))
)py")
      .Twin([] { pmap([](Array x) { return x; })(Ar({9})); })
      .For("A24");
  t.Fails("pmap/axis_size_that_does_not_match", "", R"py(
pmap(lambda x: x, axis_size=4)(ar(2))
)py")
      .Twin([] { pmap([](Array x) { return x; }, kAxis, {.axis_size = 4})(Ar({2})); });
  t.Fails("pmap/nested", "context mesh", R"py(
pmap(pmap(lambda x: x))(ar(2, 2))
)py")
      .Twin([] {
        pmap(pmap([](Array x) { return x; }))(Ar({2, 2}));
      })
      .For("A24");
  t.Fails("pmap/unknown_axis", "unbound axis name", R"py(
pmap(lambda x: lax.psum(x, 'j'), 'i')(ar(2))
)py")
      .Twin([] { pmap([](Array x) { return lax::psum(x, "j"); }, "i")(Ar({2})); })
      .For("A24");
  t.Fails("pmap/in_axes_are_no_prefix", "in_axes", R"py(
pmap(lambda p, y: y, in_axes=((0, 0, 0), 0))(((ar(2), ar(2)), ar(2)), ar(2))
)py")
      .Twin([] {
        using Two = std::pair<Array, Array>;
        const PmapOptions options = {.in_axes = {{0, 0, 0}, 0}};
        pmap([](std::pair<Two, Array>, Array y) { return y; }, kAxis, options)(
            std::pair(Two(Ar({2}), Ar({2})), Ar({2})), Ar({2}));
      })
      .For("A24");
  t.Fails("pmap/in_axes_are_no_numbers", "", R"py(
pmap(lambda x: x, in_axes='0')(ar(2))
)py")
      .DoesNotCompile();
}

}  // namespace tessera::semantics
