// Rows about collectives: their results, the types of the results, and the errors for wrong calls.
// A row is a program in Python, whose results in JAX are recorded, and its twin: the same program
// in C++ with the SDK. semantics_test.cc runs the twins and compares their results with the
// recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "collectives/...". Many rows also compare the type that the result has in the body
// of the shard_map.
void AddCollectives(Table& t) {
  // ---- psum and other reductions. ----
  t.Gives("collectives/psum", R"py(
out = shard_map(lambda x: see(lax.psum(x, 'i')), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ints(8)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::psum(x, "i")); }, Auto({{"i", 4}}),
                                  {P("i")}, P())(Ints({8}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/psum_of_invarying_multiplies", R"py(
out = shard_map(lambda x: see(lax.psum(x, 'i')), mesh=auto(i=4), in_specs=P(), out_specs=P())(ints(3)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::psum(x, "i")); }, Auto({{"i", 4}}),
                                  {P()}, P())(Ints({3}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/psum_twice", R"py(
out = shard_map(lambda x: lax.psum(lax.psum(x, 'i'), 'i'), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::psum(lax::psum(x, "i"), "i"); },
                         Auto({{"i", 4}}), {P("i")}, P())(Ar({4}));
      })
      .For("A03");
  t.Gives("collectives/psum_over_two_axes", R"py(
out = shard_map(lambda x: see(lax.psum(x, ('i', 'j'))), mesh=auto(i=2, j=2), in_specs=P('i', 'j'), out_specs=P())(
    ints(2, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x) {
              return see(lax::psum(x, {"i", "j"}));
            },
            Auto({{"i", 2}, {"j", 2}}), {P("i", "j")}, P())(Ints({2, 2}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/psum_over_one_of_two", R"py(
out = shard_map(lambda x: see(lax.psum(x, 'j')), mesh=auto(i=2, j=2), in_specs=P('i', 'j'), out_specs=P('i'))(
    ints(2, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::psum(x, "j")); },
                                  Auto({{"i", 2}, {"j", 2}}), {P("i", "j")}, P("i"))(Ints({2, 2}));
        return std::pair(y, see.types());
      });
  t.Fails("collectives/psum_of_mixed_states",
          "psum can only accept axis_name which corresponds to one of", R"py(
shard_map(lambda x: lax.psum(x, ('i', 'j')), mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        shard_map(
            [](Array x) {
              return lax::psum(x, {"i", "j"});
            },
            Auto({{"i", 2}, {"j", 2}}), {P("i")}, P())(Ar({4}));
      });
  t.Gives("collectives/psum_of_mixed_states_once_cast", R"py(
f = lambda x: lax.psum(lax.pcast(x, 'j', to='varying'), ('i', 'j'))
out = shard_map(f, mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return lax::psum(lax::pcast(x, "j", "varying"), {"i", "j"});
            },
            Auto({{"i", 2}, {"j", 2}}), {P("i")}, P())(Ar({4}));
      });
  t.Gives("collectives/psum_of_a_number", R"py(
def f(x):
    return x * lax.psum(1, 'i')
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ints(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return x * lax::psum(1, "i"); }, Auto({{"i", 4}}), {P("i")},
                         P("i"))(Ints({4}));
      });
  t.Gives("collectives/psum_of_bool_counts", R"py(
out = shard_map(lambda x: see(lax.psum(x > 1, 'i')), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ints(8)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::psum(x > 1, "i")); },
                                  Auto({{"i", 4}}), {P("i")}, P())(Ints({8}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/psum_of_a_tree", R"py(
out = shard_map(lambda x, y: lax.psum({'a': x, 'b': (y,)}, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())(
    ints(2), ar(4))
)py")
      .Twin([] {
        using Tree = std::pair<Array, std::tuple<Array>>;
        return shard_map([](Array x, Array y) { return lax::psum(Tree(x, std::tuple(y)), "i"); },
                         Auto({{"i", 2}}), P("i"), P())(Ints({2}), Ar({4}));
      });
  t.Gives("collectives/pmean", R"py(
out = shard_map(lambda x: see(lax.pmean(x, 'i')), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ar(8)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::pmean(x, "i")); },
                                  Auto({{"i", 4}}), {P("i")}, P())(Ar({8}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/pmean_of_integers_is_a_float", R"py(
out = shard_map(lambda x: lax.pmean(x, 'i'), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ints(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::pmean(x, "i"); }, Auto({{"i", 4}}), {P("i")},
                         P())(Ints({4}));
      });
  t.Gives("collectives/pmean_of_a_tree", R"py(
out = shard_map(lambda x: lax.pmean((x, 2 * x), 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::pmean(std::pair(x, 2 * x), "i"); },
                         Auto({{"i", 2}}), {P("i")}, P())(Ar({4}));
      });
  t.Gives("collectives/pmax_and_pmin", R"py(
f = lambda x: (see(lax.pmax(x, 'i')), see(lax.pmin(x, 'i')))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P())(jnp.array([3., -1., 7., 2.], jnp.float32)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          const Array high = see(lax::pmax(x, "i"));
          return std::pair(high, see(lax::pmin(x, "i")));
        };
        const auto out = shard_map(f, Auto({{"i", 4}}), {P("i")}, P())(array<float>({3, -1, 7, 2}));
        return std::pair(out, see.types());
      });
  t.Gives("collectives/pmax_of_invarying", R"py(
out = shard_map(lambda x: see(lax.pmax(x, 'i')), mesh=auto(i=4), in_specs=P(), out_specs=P())(ints(3)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::pmax(x, "i")); }, Auto({{"i", 4}}),
                                  {P()}, P())(Ints({3}));
        return std::pair(y, see.types());
      });
  t.Fails("collectives/pmax_has_no_derivative", "Differentiation rule for 'pmax'", R"py(
grad(lambda x: jnp.sum(shard_map(lambda b: lax.pmax(b, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())(x)))(
    ar(4))
)py",
          "not implemented")
      .Twin([] {
        const auto f =
            shard_map([](Array b) { return lax::pmax(b, "i"); }, Auto({{"i", 2}}), {P("i")}, P());
        grad([&](Array x) { return sum(f(x)); })(Ar({4}));
      });
  t.Fails("collectives/groups_of_psum", "", R"py(
shard_map(lambda x: lax.psum(x, 'i', axis_index_groups=[[0, 1], [2, 3]]), mesh=auto(i=4), in_specs=P('i'),
          out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        shard_map(
            [](Array x) {
              return lax::psum(x, "i", {{0, 1}, {2, 3}});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("collectives/groups_of_psum_unchecked", R"py(
out = shard_map(lambda x: lax.psum(x, 'i', axis_index_groups=[[0, 1], [2, 3]]), mesh=auto(i=4), in_specs=P('i'),
                out_specs=P('i'), check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return lax::psum(x, "i", {{0, 1}, {2, 3}});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"), kUnchecked)(Ar({4}));
      });
  // ---- Names of axes. ----
  t.Fails("collectives/psum_outside", "unbound axis name", R"py(
lax.psum(ar(2), 'i')
)py")
      .Twin([] { lax::psum(Ar({2}), "i"); })
      .For("A13");
  t.Fails("collectives/psum_over_an_unknown_axis", "Found an unbound axis name: q", R"py(
shard_map(lambda x: lax.psum(x, 'q'), mesh=auto(i=2), in_specs=P('i'), out_specs=P(), check_vma=False)(ar(2))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::psum(x, "q"); }, Auto({{"i", 2}}), {P("i")}, P(),
                  kUnchecked)(Ar({2}));
      })
      .Note("checked, an assertion of 0.10.2 fails first");
  t.Fails("collectives/all_gather_outside", "unbound axis name", R"py(
lax.all_gather(ar(2), 'i')
)py")
      .Twin([] { lax::all_gather(Ar({2}), "i"); });
  t.Fails("collectives/axis_index_outside", "unbound axis name", R"py(
lax.axis_index('i')
)py")
      .Twin([] { lax::axis_index("i"); });
  t.Fails("collectives/axis_size_outside", "unbound axis name", R"py(
lax.axis_size('i')
)py")
      .Twin([] { lax::axis_size("i"); });
  t.Fails("collectives/psum_over_an_auto_axis", "unbound axis name", R"py(
shard_map(lambda x: lax.psum(x, 'j'), mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P('i'), axis_names={'i'})(ar(2))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::psum(x, "j"); }, Auto({{"i", 2}, {"j", 2}}), {P("i")},
                  P("i"), Only({"i"}))(Ar({2}));
      });
  // ---- Positions along an axis: axis_index and axis_size. ----
  t.Gives("collectives/axis_index", R"py(
f = lambda: lax.axis_index('i').reshape(1)
out = shard_map(f, mesh=auto(i=4), in_specs=(), out_specs=P('i'))()
)py")
      .Twin([] {
        return shard_map([] { return lax::axis_index("i").reshape({1}); }, Auto({{"i", 4}}), {},
                         P("i"))();
      });
  t.Gives("collectives/axis_index_of_two_axes", R"py(
f = lambda: lax.axis_index(('i', 'j'))[None, None]
out = shard_map(f, mesh=auto(i=4, j=2), in_specs=(), out_specs=P('i', 'j'))()
)py")
      .Twin([] {
        return shard_map(
            [] {
              return lax::axis_index({"i", "j"}).reshape({1, 1});
            },
            Auto({{"i", 4}, {"j", 2}}), {}, P("i", "j"))();
      })
      .For("A13");
  t.Gives("collectives/axis_index_in_another_order", R"py(
f = lambda: lax.axis_index(('j', 'i'))[None, None]
out = shard_map(f, mesh=auto(i=4, j=2), in_specs=(), out_specs=P('i', 'j'))()
)py")
      .Twin([] {
        return shard_map(
            [] {
              return lax::axis_index({"j", "i"}).reshape({1, 1});
            },
            Auto({{"i", 4}, {"j", 2}}), {}, P("i", "j"))();
      });
  t.Gives("collectives/axis_size_is_static", R"py(
def f(x):
    return x + jnp.zeros((lax.axis_size('i'),), jnp.float32)
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4)), 
)py")
      .Twin([] {
        return shard_map([](Array x) { return x + zeros({lax::axis_size("i")}); }, Auto({{"i", 4}}),
                         {P("i")}, P("i"))(Ar({4}));
      })
      .For("A13");
  t.Gives("collectives/axis_size_of_two_axes", R"py(
sizes = []
def f(x):
    sizes.append(lax.axis_size(('i', 'j')))
    return x
shard_map(f, mesh=auto(i=4, j=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
out = sizes
)py")
      .Twin([] {
        std::vector<int64_t> sizes;
        shard_map(
            [&](Array x) {
              sizes.push_back(lax::axis_size({"i", "j"}));
              return x;
            },
            Auto({{"i", 4}, {"j", 2}}), {P("i")}, P("i"))(Ar({4}));
        return sizes;
      });
  // ---- all_gather. ----
  t.Gives("collectives/all_gather_stacks", R"py(
f = lambda x: see(lax.all_gather(x, 'i'))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::all_gather(x, "i")); },
                                  Auto({{"i", 2}}), {P("i")}, P("i"))(Ints({4}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/all_gather_tiled", R"py(
f = lambda x: see(lax.all_gather(x, 'i', tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::all_gather(x, "i", 0, true)); },
                                  Auto({{"i", 2}}), {P("i")}, P("i"))(Ints({4}));
        return std::pair(y, see.types());
      })
      .For("A11");
  t.Gives("collectives/all_gather_on_another_dim", R"py(
f = lambda x: see(lax.all_gather(x, 'i', axis=1))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4, 3)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::all_gather(x, "i", 1)); },
                                  Auto({{"i", 2}}), {P("i")}, P("i"))(Ints({4, 3}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/all_gather_tiled_on_another_dim", R"py(
f = lambda x: see(lax.all_gather(x, 'i', axis=1, tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4, 3)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::all_gather(x, "i", 1, true)); },
                                  Auto({{"i", 2}}), {P("i")}, P("i"))(Ints({4, 3}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/all_gather_to_invarying", R"py(
f = lambda x: see(lax.all_gather(x, 'i', tiled=True, to='invarying'))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y =
            shard_map([&](Array x) { return see(lax::all_gather(x, "i", 0, true, "invarying")); },
                      Auto({{"i", 4}}), {P("i")}, P())(Ar({4}));
        return std::pair(y, see.types());
      })
      .For("A11");
  t.Gives("collectives/all_gather_over_two_axes", R"py(
f = lambda x: see(lax.all_gather(x, ('i', 'j'), tiled=True))
out = shard_map(f, mesh=auto(i=2, j=2), in_specs=P(('i', 'j')), out_specs=P(('i', 'j')))(ints(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x) {
              return see(lax::all_gather(x, {"i", "j"}, 0, true));
            },
            Auto({{"i", 2}, {"j", 2}}), {P({"i", "j"})}, P({"i", "j"}))(Ints({4}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/all_gather_of_invarying", R"py(
f = lambda x: see(lax.all_gather(x, 'i'))
out = shard_map(f, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ints(2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::all_gather(x, "i")); },
                                  Auto({{"i", 2}}), {P()}, P("i"))(Ints({2}));
        return std::pair(y, see.types());
      });
  // ---- psum_scatter. ----
  t.Gives("collectives/psum_scatter_tiled", R"py(
f = lambda x: see(lax.psum_scatter(x, 'i', scatter_dimension=1, tiled=True))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4, 4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::psum_scatter(x, "i", 1, true)); },
                                  Auto({{"i", 4}}), {P("i")}, P("i"))(Ar({4, 4}));
        return std::pair(y, see.types());
      })
      .For("A11");
  t.Gives("collectives/psum_scatter_removes_the_dim", R"py(
f = lambda x: see(lax.psum_scatter(x[0], 'i'))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(2, 2, 3)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::psum_scatter(x[0], "i")); },
                                  Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({2, 2, 3}));
        return std::pair(y, see.types());
      });
  t.Fails("collectives/psum_scatter_of_an_indivisible_dim",
          "scatter dimension size 3 must be divisible by",
          R"py(
shard_map(lambda x: lax.psum_scatter(x, 'i', tiled=True), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(6))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::psum_scatter(x, "i", 0, true); }, Auto({{"i", 2}}),
                  {P("i")}, P("i"))(Ar({6}));
      });
  t.Fails("collectives/psum_scatter_of_another_size", "scatter dimension size 3 must match", R"py(
shard_map(lambda x: lax.psum_scatter(x, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(6))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::psum_scatter(x, "i"); }, Auto({{"i", 2}}), {P("i")},
                  P("i"))(Ar({6}));
      });
  t.Gives("collectives/psum_scatter_of_invarying", R"py(
f = lambda x: see(lax.psum_scatter(x, 'i', tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::psum_scatter(x, "i", 0, true)); },
                                  Auto({{"i", 2}}), {P()}, P("i"))(Ar({4}));
        return std::pair(y, see.types());
      });
  // ---- ppermute. ----
  t.Gives("collectives/ppermute_partial", R"py(
f = lambda x: see(lax.ppermute(x, 'i', [(0, 1), (1, 2)]))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(jnp.array([10., 20., 30., 40.])), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x) {
              return see(lax::ppermute(x, "i", {{0, 1}, {1, 2}}));
            },
            Auto({{"i", 4}}), {P("i")}, P("i"))(array<float>({10, 20, 30, 40}));
        return std::pair(y, see.types());
      })
      .For("A12");
  t.Gives("collectives/ppermute_rotation", R"py(
f = lambda x: lax.ppermute(x, 'i', [(k, (k + 1) % 4) for k in range(4)])
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(jnp.array([10., 20., 30., 40.]))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return lax::ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"))(array<float>({10, 20, 30, 40}));
      })
      .For("A12");
  t.Gives("collectives/ppermute_of_invarying", R"py(
f = lambda x: see(lax.ppermute(x, 'i', [(0, 1)]))
out = shard_map(f, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ints(2) + 1), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x) {
              return see(lax::ppermute(x, "i", {{0, 1}}));
            },
            Auto({{"i", 2}}), {P()}, P("i"))(Ints({2}) + 1);
        return std::pair(y, see.types());
      });
  t.Gives("collectives/ppermute_over_two_axes", R"py(
f = lambda x: lax.ppermute(x, ('i', 'j'), [(k, (k + 1) % 4) for k in range(4)])
out = shard_map(f, mesh=auto(i=2, j=2), in_specs=P(('i', 'j')), out_specs=P(('i', 'j')))(ints(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return lax::ppermute(x, {"i", "j"}, {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
            },
            Auto({{"i", 2}, {"j", 2}}), {P({"i", "j"})}, P({"i", "j"}))(Ints({4}));
      });
  t.Fails("collectives/ppermute_to_one_destination_twice",
          "sources and destinations must be unique", R"py(
shard_map(lambda x: lax.ppermute(x, 'i', [(0, 1), (2, 1)]), mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        shard_map(
            [](Array x) {
              return lax::ppermute(x, "i", {{0, 1}, {2, 1}});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"))(Ar({4}));
      })
      .For("A12");
  t.Fails("collectives/ppermute_from_one_source_twice", "sources and destinations must be unique",
          R"py(
shard_map(lambda x: lax.ppermute(x, 'i', [(0, 1), (0, 2)]), mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        shard_map(
            [](Array x) {
              return lax::ppermute(x, "i", {{0, 1}, {0, 2}});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("collectives/pshuffle", R"py(
f = lambda x: lax.pshuffle(x, 'i', [2, 0, 1])
out = shard_map(f, mesh=auto(i=3), in_specs=P('i'), out_specs=P('i'))(ints(3))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) {
              return lax::pshuffle(x, "i", {2, 0, 1});
            },
            Auto({{"i", 3}}), {P("i")}, P("i"))(Ints({3}));
      });
  // ---- all_to_all. ----
  t.Gives("collectives/all_to_all_tiled", R"py(
f = lambda x: see(lax.all_to_all(x, 'i', 1, 0, tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i', None), out_specs=P(None, 'i'))(ints(4, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::all_to_all(x, "i", 1, 0, true)); },
                                  Auto({{"i", 2}}), {P("i", None)}, P(None, "i"))(Ints({4, 2}));
        return std::pair(y, see.types());
      })
      .For("A13");
  t.Gives("collectives/all_to_all", R"py(
f = lambda x: see(lax.all_to_all(x, 'i', 0, 1))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4, 3)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::all_to_all(x, "i", 0, 1)); },
                                  Auto({{"i", 2}}), {P("i")}, P("i"))(Ints({4, 3}));
        return std::pair(y, see.types());
      });
  t.Gives("collectives/all_to_all_on_one_dim", R"py(
f = lambda x: lax.all_to_all(x, 'i', 0, 0, tiled=True)
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(8))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::all_to_all(x, "i", 0, 0, true); },
                         Auto({{"i", 2}}), {P("i")}, P("i"))(Ints({8}));
      });
  t.Fails("collectives/all_to_all_of_another_size", "all_to_all", R"py(
shard_map(lambda x: lax.all_to_all(x, 'i', 0, 0), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(6, 2))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::all_to_all(x, "i", 0, 0); }, Auto({{"i", 2}}), {P("i")},
                  P("i"))(Ar({6, 2}));
      });
  t.Gives("collectives/pswapaxes", R"py(
f = lambda x: lax.pswapaxes(x, 'i', 0)
out = shard_map(f, mesh=auto(i=2), in_specs=P(None, 'i'), out_specs=P(None, 'i'))(ints(2, 4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::pswapaxes(x, "i", 0); }, Auto({{"i", 2}}),
                         {P(None, "i")}, P(None, "i"))(Ints({2, 4}));
      });
  t.Gives("collectives/pbroadcast", R"py(
f = lambda x: see(lax.pbroadcast(x, 'i', 1))
out = jax.eval_shape(shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i')), ints(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::pbroadcast(x, "i", 1)); },
                                  Auto({{"i", 4}}), {P("i")}, P("i"))(Ints({4}));
        return std::pair(TypeOf(y), see.types());
      })
      .Note("CPUs have no lowering of it");
  t.Gives("collectives/matmul_over_two_axes", R"py(
f = lambda a, b: lax.psum(a @ b, 'y')
out = shard_map(f, mesh=auto(x=4, y=2), in_specs=(P('x', 'y'), P('y', None)), out_specs=P('x', None))(
    ar(8, 16), ar(16, 4))
)py")
      .Twin([] {
        return shard_map([](Array a, Array b) { return lax::psum(matmul(a, b), "y"); },
                         Auto({{"x", 4}, {"y", 2}}), {P("x", "y"), P("y", None)},
                         P("x", None))(Ar({8, 16}), Ar({16, 4}));
      })
      .For("A14");
  t.Gives("collectives/ring_of_sums", R"py(
def f(x):
    total = x
    for _ in range(3):
        x = lax.ppermute(x, 'i', [(k, (k + 1) % 4) for k in range(4)])
        total = total + x
    return see(total)
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ints(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          Array total = x;
          for (int turn = 0; turn < 3; ++turn) {
            x = lax::ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
            total = total + x;
          }
          return see(total);
        };
        const Array y = shard_map(f, Auto({{"i", 4}}), {P("i")}, P("i"))(Ints({4}));
        return std::pair(y, see.types());
      });
}

}  // namespace tessera::semantics
