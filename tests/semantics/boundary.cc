// Rows about the boundary of shard_map: its specs, its mesh, and the errors that they can cause. A
// row is a program in Python, whose results in JAX are recorded, and its twin: the same program in
// C++ with the SDK. semantics_test.cc runs the twins and compares their results with the recorded
// ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "boundary/...". Most rows have one shard_map with a simple body, so that the result
// shows what shard_map does to its arguments and results.
void AddBoundary(Table& t) {
  // ---- Cutting arguments into blocks and joining results. ----
  t.Gives("boundary/block_shape", R"py(
shard_map(lambda x: see(x), mesh=auto(x=4, y=2), in_specs=P('x', 'y'), out_specs=P('x', 'y'))(ar(8, 6))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(x); }, Auto({{"x", 4}, {"y", 2}}), {P("x", "y")},
                  P("x", "y"))(Ar({8, 6}));
        return see.types();
      });
  t.Gives("boundary/rank_is_kept", R"py(
shard_map(lambda x: see(x), mesh=auto(x=4), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(x); }, Auto({{"x", 4}}), {P("x")}, P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("boundary/unmentioned_is_whole", R"py(
shard_map(lambda x, y: see(see(x)[:1] + see(y)), mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(
    ar(4), ar(1))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map(
            [&](Array x, Array y) {
              const Array a = see(x)[Index(Slice{0, 1})];
              const Array b = see(y);
              return see(a + b);
            },
            Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({4}), Ar({1}));
        return see.types();
      });
  t.Gives("boundary/tuple_entry_is_major_to_minor", R"py(
f = shard_map(lambda x: x + 10 * lax.axis_index('x') + 100 * lax.axis_index('y'),
              mesh=auto(x=2, y=2), in_specs=P(('x', 'y')), out_specs=P(('x', 'y')))
out = f(ints(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) { return x + 10 * lax::axis_index("x") + 100 * lax::axis_index("y"); },
            Auto({{"x", 2}, {"y", 2}}), {P({"x", "y"})}, P({"x", "y"}))(Ints({4}));
      });
  t.Gives("boundary/tuple_entry_in_another_order", R"py(
f = shard_map(lambda x: x + 10 * lax.axis_index('x') + 100 * lax.axis_index('y'),
              mesh=auto(x=2, y=2), in_specs=P(('y', 'x')), out_specs=P(('y', 'x')))
out = f(ints(4))
)py")
      .Twin([] {
        return shard_map(
            [](Array x) { return x + 10 * lax::axis_index("x") + 100 * lax::axis_index("y"); },
            Auto({{"x", 2}, {"y", 2}}), {P({"y", "x"})}, P({"y", "x"}))(Ints({4}));
      });
  t.Gives("boundary/out_specs_transpose_blocks", R"py(
out = shard_map(lambda x: x, mesh=auto(x=2, y=2), in_specs=P('x', 'y'), out_specs=P('y', 'x'))(ints(4, 4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return x; }, Auto({{"x", 2}, {"y", 2}}), {P("x", "y")},
                         P("y", "x"))(Ints({4, 4}));
      });
  t.Gives("boundary/in_and_out_over_other_dims", R"py(
out = shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x', None), out_specs=P(None, 'x'))(ints(4, 2))
)py")
      .Twin([] {
        return shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x", None)},
                         P(None, "x"))(Ints({4, 2}));
      });
  t.Gives("boundary/replicated_result", R"py(
out = shard_map(lambda x: 2 * x, mesh=auto(x=4), in_specs=P(), out_specs=P())(ints(3))
)py")
      .Twin([] {
        return shard_map([](Array x) { return 2 * x; }, Auto({{"x", 4}}), {P()}, P())(Ints({3}));
      });
  t.Gives("boundary/mentioned_but_invarying_is_repeated", R"py(
out = shard_map(lambda x: x, mesh=auto(x=4), in_specs=P(), out_specs=P('x'))(ints(2))
)py")
      .Twin([] {
        return shard_map([](Array x) { return x; }, Auto({{"x", 4}}), {P()}, P("x"))(Ints({2}));
      });
  t.Gives("boundary/constant_result_is_repeated", R"py(
out = shard_map(lambda x: jnp.ones((1,), jnp.float32), mesh=auto(x=3), in_specs=P('x'), out_specs=P('x'))(ar(3))
)py")
      .Twin([] {
        return shard_map([](Array) { return ones({1}); }, Auto({{"x", 3}}), {P("x")},
                         P("x"))(Ar({3}));
      });
  t.Gives("boundary/psum_then_mentioned_is_repeated", R"py(
out = shard_map(lambda x: lax.psum(x, 'x'), mesh=auto(x=4), in_specs=P('x'), out_specs=P('x'))(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::psum(x, "x"); }, Auto({{"x", 4}}), {P("x")},
                         P("x"))(Ar({4}));
      });
  t.Gives("boundary/spec_shorter_than_rank", R"py(
out = shard_map(lambda x: x * 2, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ints(2, 3, 2))
)py")
      .Twin([] {
        return shard_map([](Array x) { return x * 2; }, Auto({{"x", 2}}), {P("x")},
                         P("x"))(Ints({2, 3, 2}));
      });
  t.Gives("boundary/scalar_argument", R"py(
out = shard_map(lambda x, s: x * s, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(ar(4), jnp.float32(3))
)py")
      .Twin([] {
        return shard_map([](Array x, Array s) { return x * s; }, Auto({{"x", 2}}), {P("x"), P()},
                         P("x"))(Ar({4}), scalar(3.0f));
      });
  t.Gives("boundary/scalar_result", R"py(
out = shard_map(lambda x: lax.psum(jnp.sum(x), 'x'), mesh=auto(x=2), in_specs=P('x'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::psum(sum(x), "x"); }, Auto({{"x", 2}}), {P("x")},
                         P())(Ar({4}));
      });
  t.Gives("boundary/empty_shards", R"py(
out = shard_map(lambda x: x + 1, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(0, 3))
)py")
      .Twin([] {
        return shard_map([](Array x) { return x + 1; }, Auto({{"x", 2}}), {P("x")},
                         P("x"))(zeros({0, 3}));
      });
  t.Gives("boundary/axis_of_one_device", R"py(
out = shard_map(lambda x: lax.psum(x, 'x'), mesh=auto(x=1), in_specs=P('x'), out_specs=P())(ar(3))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::psum(x, "x"); }, Auto({{"x", 1}}), {P("x")},
                         P())(Ar({3}));
      });
  t.Gives("boundary/no_arguments", R"py(
out = shard_map(lambda: lax.axis_index('x').reshape(1), mesh=auto(x=4), in_specs=(), out_specs=P('x'))()
)py")
      .Twin([] {
        return shard_map([] { return lax::axis_index("x").reshape({1}); }, Auto({{"x", 4}}), {},
                         P("x"))();
      });
  t.Gives("boundary/arguments_lie_elsewhere", R"py(
m = auto(x=2, y=2)
x = put(ints(4, 4), m, P(None, ('y', 'x')))
out = shard_map(lambda x: x * 2, mesh=m, in_specs=P('x'), out_specs=P('x'))(x)
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}, {"y", 2}});
        return shard_map([](Array x) { return x * 2; }, m, {P("x")},
                         P("x"))(put(Ints({4, 4}), m, P(None, {"y", "x"})));
      });
  // ---- Trees. ----
  t.Gives("boundary/specs_are_a_prefix", R"py(
def f(pair, y):
    return {'a': pair[0] + y, 'b': pair[1] * 2}
out = shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))((ar(4), ar(2)), jnp.float32(1))
)py")
      .Twin([] {
        const auto f = [](std::pair<Array, Array> p, Array y) {
          return std::map<std::string, Array>{{"a", p.first + y}, {"b", p.second * 2}};
        };
        return shard_map(f, Auto({{"x", 2}}), {P("x"), P()}, P("x"))(std::pair(Ar({4}), Ar({2})),
                                                                     scalar(1.0f));
      });
  t.Gives("boundary/specs_of_each_leaf", R"py(
def f(p):
    return p['a'], lax.psum(p['b'], 'x')
out = shard_map(f, mesh=auto(x=2), in_specs=({'a': P('x'), 'b': P(None, 'x')},), out_specs=(P('x'), P()))(
    {'a': ar(4), 'b': ar(2, 2)})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        using Specs = Prefix<PartitionSpec>;
        const auto f = [](Map p) { return std::pair(p["a"], lax::psum(p["b"], "x")); };
        // Compilers disagree on `{Specs::Named(...)}`: it may be that Specs itself or a list of
        // one. So the list is built first, with its type.
        const std::initializer_list<Specs> in = {
            Specs::Named({{"a", P("x")}, {"b", P(None, "x")}})};
        return shard_map(f, Auto({{"x", 2}}), Specs(in),
                         {P("x"), P()})(Map{{"a", Ar({4})}, {"b", Ar({2, 2})}});
      });
  t.Gives("boundary/none_in_specs_is_a_static_argument", R"py(
f = shard_map(lambda x, n: x * n, mesh=auto(x=2), in_specs=(P('x'), None), out_specs=P('x'))
out = f(ints(4), 3)
)py")
      .Twin([] {
        return shard_map([](Array x, int n) { return x * n; }, Auto({{"x", 2}}), {P("x"), None},
                         P("x"))(Ints({4}), 3);
      });
  t.Gives("boundary/no_results", R"py(
out = shard_map(lambda x: (), mesh=auto(x=2), in_specs=P('x'), out_specs=())(ar(2)) == ()
)py")
      .Twin([] {
        const auto out = shard_map([](Array) { return std::tuple<>(); }, Auto({{"x", 2}}), {P("x")},
                                   {})(Ar({2}));
        return flatten(out).leaves.empty();
      });
  t.Fails("boundary/in_specs_are_no_prefix", "pytree structure error", R"py(
shard_map(lambda p: p[0], mesh=auto(x=2), in_specs=((P('x'), P('x'), P('x')),), out_specs=P('x'))((ar(4), ar(4)))
)py",
          "shard_map in_specs")
      .Twin([] {
        shard_map([](std::pair<Array, Array> p) { return p.first; }, Auto({{"x", 2}}),
                  {{P("x"), P("x"), P("x")}}, P("x"))(std::pair(Ar({4}), Ar({4})));
      });
  t.Fails("boundary/out_specs_are_no_prefix", "pytree structure error", R"py(
shard_map(lambda x: (x, x), mesh=auto(x=2), in_specs=P('x'), out_specs=(P('x'), P('x'), P('x')))(ar(4))
)py",
          "shard_map out_specs")
      .Twin([] {
        shard_map([](Array x) { return std::pair(x, x); }, Auto({{"x", 2}}), {P("x")},
                  {P("x"), P("x"), P("x")})(Ar({4}));
      });
  t.Fails("boundary/too_few_in_specs", "shard_map in_specs", R"py(
shard_map(lambda x, y: x, mesh=auto(x=2), in_specs=(P('x'),), out_specs=P('x'))(ar(4), ar(4))
)py")
      .Twin([] {
        shard_map([](Array x, Array) { return x; }, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}),
                                                                                        Ar({4}));
      });
  // ---- Closures. ----
  t.Gives("boundary/closure_is_replicated", R"py(
c = ar(3)
shard_map(lambda x: x * see(c)[0], mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        const Array c = Ar({3});
        shard_map([&](Array x) { return x * see(c)[0]; }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("boundary/closure_of_a_sharded_array_on_auto_axes", R"py(
m = auto(x=2)
c = put(ar(4), m, P('x'))
out = shard_map(lambda x: x + jnp.sum(c), mesh=m, in_specs=P('x'), out_specs=P('x'))(ar(4))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}});
        const Array c = put(Ar({4}), m, P("x"));
        return shard_map([&](Array x) { return x + sum(c); }, m, {P("x")}, P("x"))(Ar({4}));
      });
  t.Fails("boundary/closure_of_an_explicitly_sharded_array",
          "Closing over inputs to shard_map where the input is sharded on", R"py(
m = explicit(x=2)
with set_mesh(m):
    c = put(ar(4), m, P('x'))
    shard_map(lambda x: x + jnp.sum(c), in_specs=P('x'), out_specs=P('x'))(put(ar(4), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array c = put(Ar({4}), m, P("x"));
        shard_map([&](Array x) { return x + sum(c); }, Mesh{}, {P("x")},
                  P("x"))(put(Ar({4}), m, P("x")));
      });
  t.Gives("boundary/traced_closure", R"py(
m = auto(x=2)
def g(c, x):
    return shard_map(lambda b: b * c, mesh=m, in_specs=P('x'), out_specs=P('x'))(x)
out = jit(g)(jnp.float32(3), ar(4))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}});
        return jit([&](Array c, Array x) {
          return shard_map([&](Array b) { return b * c; }, m, {P("x")}, P("x"))(x);
        })(scalar(3.0f), Ar({4}));
      });
  // ---- Meshes. ----
  t.Gives("boundary/mesh_of_the_context", R"py(
with set_mesh(auto(x=2)):
    out = shard_map(lambda x: lax.psum(x, 'x'), in_specs=P('x'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        return shard_map([](Array x) { return lax::psum(x, "x"); }, Mesh{}, {P("x")}, P())(Ar({4}));
      });
  t.Gives("boundary/mesh_given_and_in_context", R"py(
m = auto(x=2)
with set_mesh(m):
    out = shard_map(lambda x: lax.psum(x, 'x'), mesh=m, in_specs=P('x'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}});
        set_mesh context(m);
        return shard_map([](Array x) { return lax::psum(x, "x"); }, m, {P("x")}, P())(Ar({4}));
      });
  t.Fails("boundary/no_mesh", "context mesh cannot be empty", R"py(
shard_map(lambda x: x, in_specs=P('x'), out_specs=P('x'))(ar(4))
)py")
      .Twin([] { shard_map([](Array x) { return x; }, Mesh{}, {P("x")}, P("x"))(Ar({4})); });
  t.Fails("boundary/other_mesh_than_the_context", "should match the mesh passed to shard_map", R"py(
with set_mesh(auto(x=4)):
    shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
)py",
          "context mesh")
      .Twin([] {
        set_mesh context(Auto({{"x", 4}}));
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
      });
  t.Fails("boundary/axis_names_not_in_the_mesh", "to be a subset", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P(), out_specs=P(), axis_names={'q'})(ar(4))
)py")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P()}, P(), Only({"q"}))(Ar({4}));
      })
      .For("A14");
  t.Fails("boundary/axis_names_is_no_set", "should be of type `frozenset` or `set`", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P(), out_specs=P(), axis_names='x')(ar(4))
)py")
      .DoesNotCompile();
  t.Fails("boundary/empty_mesh", "requires a non-empty mesh", R"py(
shard_map(lambda x: x, mesh=jax.sharding.Mesh(np.empty((), object), ()), in_specs=P(), out_specs=P())(ar(4))
)py")
      .Twin([] { shard_map([](Array x) { return x; }, Mesh(), {P()}, P())(Ar({4})); });
  t.Fails("boundary/arguments_on_other_devices", "Received incompatible devices", R"py(
x = shard_map(lambda x: x + 1, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(8))
out = shard_map(lambda x: x * 2, mesh=auto(i=2, j=2), in_specs=P(('i', 'j')), out_specs=P(('i', 'j')))(x)
)py")
      .Twin([] {
        const Array x =
            shard_map([](Array b) { return b + 1; }, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({8}));
        shard_map([](Array b) { return b * 2; }, Auto({{"i", 2}, {"j", 2}}), {P({"i", "j"})},
                  P({"i", "j"}))(x);
      });
  t.Gives("boundary/in_specs_from_the_types", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4), m, P('x'))
    out = shard_map(lambda x: see(x) * 2, out_specs=P('x'))(x), seen
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4}), m, P("x"));
        const Array y = shard_map([&](Array x) { return see(x) * 2; }, Mesh{}, Infer, P("x"))(x);
        return std::pair(y, see.types());
      });
  t.Fails("boundary/in_specs_from_the_types_of_auto_axes", "in_specs", R"py(
with set_mesh(auto(x=2)):
    shard_map(lambda x: x, out_specs=P('x'))(ar(4))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        shard_map([](Array x) { return x; }, Mesh{}, Infer, P("x"))(Ar({4}));
      });
  t.Fails("boundary/explicit_in_specs_are_an_assertion", "does not match the specs of the input",
          R"py(
m = explicit(x=2)
with set_mesh(m):
    shard_map(lambda x: x, in_specs=P('x'), out_specs=P('x'))(put(ar(4), m, P()))
)py",
          "in_specs passed to shard_map")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        shard_map([](Array x) { return x; }, Mesh{}, {P("x")}, P("x"))(put(Ar({4}), m, P()));
      });
  t.Gives("boundary/explicit_mesh", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = shard_map(lambda x: see(x) * 2, in_specs=P('x'), out_specs=P('x'))(put(ar(4), m, P('x')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = shard_map([&](Array x) { return see(x) * 2; }, Mesh{}, {P("x")},
                                  P("x"))(put(Ar({4}), m, P("x")));
        return std::tuple(see.types(), y.type().ToString(), y);
      });
  // ---- Specs. ----
  t.Fails("boundary/spec_is_no_spec", "PartitionSpec", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs='x', out_specs=P('x'))(ar(4))
)py")
      .DoesNotCompile();
  t.Fails("boundary/unknown_axis_in", "must refer to an axis marked as manual", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('q'), out_specs=P())(ar(4))
)py",
          "refers to 'q'")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("q")}, P())(Ar({4}));
      })
      .For("A14");
  t.Fails("boundary/unknown_axis_out", "must refer to an axis marked as manual", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x'), out_specs=P('q'))(ar(4))
)py")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x")}, P("q"))(Ar({4}));
      });
  t.Fails("boundary/axis_that_is_not_manual", "must refer to an axis marked as manual", R"py(
shard_map(lambda x: x, mesh=auto(x=2, y=2), in_specs=P('y'), out_specs=P('y'), axis_names={'x'})(ar(4))
)py",
          "refers to 'y'")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}, {"y", 2}}), {P("y")}, P("y"),
                  Only({"x"}))(Ar({4}));
      });
  t.Fails("boundary/in_spec_longer_than_rank", "entry which is too long", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P(None, 'x'), out_specs=P())(ar(4))
)py",
          "in_specs")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P(None, "x")}, P())(Ar({4}));
      });
  t.Fails("boundary/out_spec_longer_than_rank", "too long", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x'), out_specs=P(None, 'x'))(ar(4))
)py",
          "out_specs")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x")}, P(None, "x"))(Ar({4}));
      });
  t.Fails("boundary/scalar_over_an_axis", "add at least one (singleton) axis", R"py(
shard_map(lambda x: jnp.sum(x), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
)py",
          "too long")
      .Twin([] {
        shard_map([](Array x) { return sum(x); }, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
      })
      .For("A14");
  t.Fails("boundary/indivisible", "evenly divisible", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(5))
)py")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({5}));
      })
      .For("A14");
  t.Fails("boundary/indivisible_by_two_axes", "evenly divisible", R"py(
shard_map(lambda x: x, mesh=auto(x=2, y=2), in_specs=P(('x', 'y')), out_specs=P(('x', 'y')))(ar(6))
)py")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}, {"y", 2}}), {P({"x", "y"})},
                  P({"x", "y"}))(Ar({6}));
      });
  t.Fails("boundary/axis_twice_in_a_spec", "uplicate", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x', 'x'), out_specs=P('x'))(ar(4, 4))
)py")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x", "x")}, P("x"))(Ar({4, 4}));
      });
  t.Fails("boundary/reduced_with_partial_manual", "unreduced/reduced can only be passed", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    shard_map(lambda x: x, in_specs=P(reduced={'x'}), out_specs=P(), axis_names={'x'})(ar(4))
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}, {"y", 2}}));
        shard_map([](Array x) { return x; }, Mesh(), {reduced("x")}, P(), Only({"x"}))(Ar({4}));
      });
  t.Fails("boundary/unreduced_over_auto_axes", "of type", R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x'), out_specs=P(unreduced={'x'}))(ar(4))
)py",
          "xplicit")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x")}, unreduced("x"))(Ar({4}));
      });
  // ---- What out_specs promise: a result is equal along the axes that its spec lacks. ----
  t.Fails("boundary/promise_not_proven", "require replication which can't be statically inferred",
          R"py(
shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x")}, P())(Ar({4}));
      });
  t.Fails("boundary/promise_of_two_axes_of_three",
          "only varying across mesh axes {x} and not {y,z}", R"py(
shard_map(lambda b: 2 * b, mesh=auto(x=2, y=2, z=2), in_specs=P('x', 'y', 'z'), out_specs=P('x'))(ar(4, 2, 2))
)py")
      .Twin([] {
        shard_map([](Array b) { return 2 * b; }, Auto({{"x", 2}, {"y", 2}, {"z", 2}}),
                  {P("x", "y", "z")}, P("x"))(Ar({4, 2, 2}));
      })
      .For("A04");
  t.Fails("boundary/promise_by_axis_index", "require replication", R"py(
shard_map(lambda x: x + lax.axis_index('i'), mesh=auto(i=2), in_specs=P(), out_specs=P())(ar(4))
)py")
      .Twin([] {
        shard_map([](Array x) { return x + lax::axis_index("i"); }, Auto({{"i", 2}}), {P()},
                  P())(Ar({4}));
      });
  t.Gives("boundary/promise_by_psum", R"py(
out = shard_map(lambda x: lax.psum(x, 'y'), mesh=auto(x=2, y=2), in_specs=P('x', 'y'), out_specs=P('x'))(ar(4, 2))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::psum(x, "y"); }, Auto({{"x", 2}, {"y", 2}}),
                         {P("x", "y")}, P("x"))(Ar({4, 2}));
      });
  t.Gives("boundary/promise_by_pmax", R"py(
out = shard_map(lambda x: lax.pmax(x, 'x'), mesh=auto(x=2), in_specs=P('x'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::pmax(x, "x"); }, Auto({{"x", 2}}), {P("x")},
                         P())(Ar({4}));
      });
  t.Fails("boundary/promise_by_all_gather_is_none", "require replication", R"py(
shard_map(lambda x: lax.all_gather(x, 'x', tiled=True), mesh=auto(x=2), in_specs=P('x'), out_specs=P())(ar(4))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::all_gather(x, "x", 0, true); }, Auto({{"x", 2}}),
                  {P("x")}, P())(Ar({4}));
      })
      .For("A11");
  t.Fails("boundary/promise_of_the_second_result", "require replication", R"py(
shard_map(lambda x: (x, x), mesh=auto(x=2), in_specs=P('x'), out_specs=(P('x'), P()))(ar(4))
)py")
      .Twin([] {
        shard_map([](Array x) { return std::pair(x, x); }, Auto({{"x", 2}}), {P("x")},
                  {P("x"), P()})(Ar({4}));
      });
  t.Gives("boundary/promise_unchecked_takes_the_first_block", R"py(
out = shard_map(lambda x: x, mesh=auto(x=2), in_specs=P('x'), out_specs=P(), check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return x; }, Auto({{"x", 2}}), {P("x")}, P(),
                         kUnchecked)(Ar({4}));
      });
  // ---- Ways to call a shard_map. ----
  t.Gives("boundary/under_jit", R"py(
f = jit(shard_map(lambda x: x * lax.axis_size('x'), mesh=auto(x=4), in_specs=P('x'), out_specs=P('x')))
out = f(ar(8))
)py")
      .Twin([] {
        return jit(shard_map([](Array x) { return x * lax::axis_size("x"); }, Auto({{"x", 4}}),
                             {P("x")}, P("x")))(Ar({8}));
      });
  t.Gives("boundary/smap_takes_axes", R"py(
with set_mesh(explicit(x=2)):
    x = reshard(ar(4, 2), P('x'))
    out = jax.smap(lambda b: see(b) * 2, in_axes=0, out_axes=0, axis_name='x')(x), seen
)py")
      .Twin([] {
        Seen see;
        set_mesh context(Explicit({{"x", 2}}));
        const Array x = reshard(Ar({4, 2}), P("x"));
        const Array y = smap([&](Array b) { return see(b) * 2; }, 0, 0, "x")(x);
        return std::pair(y, see.types());
      });
  t.Gives("boundary/as_a_decorator", R"py(
from functools import partial
@partial(shard_map, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))
def f(x):
    return -x
out = f(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return -x; }, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
      });
  t.Gives("boundary/eval_shape", R"py(
f = shard_map(lambda x: lax.psum(x, 'x'), mesh=auto(x=4), in_specs=P('x'), out_specs=P())
out = jax.eval_shape(f, ar(8, 3))
)py")
      .Twin([] {
        const auto f =
            shard_map([](Array x) { return lax::psum(x, "x"); }, Auto({{"x", 4}}), {P("x")}, P());
        return TypeOf(eval_shape(f, Ar({8, 3})));
      });
  t.Fails("boundary/device_put_inside", "device_put with explicit device not allowed", R"py(
shard_map(lambda x: jax.device_put(x, jax.devices()[0]), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
)py")
      .Twin([] {
        const Mesh one = make_mesh({1}, {"d"});
        shard_map([&](Array x) { return put(x, one, P()); }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
      })
      .Note("eager JAX alone refuses it");
  t.Fails("boundary/constraint_that_names_a_manual_axis", "sharding_constraint",
          R"py(
m = auto(x=2)
def body(x):
    return lax.with_sharding_constraint(x, P('x'))
with set_mesh(m):
    shard_map(body, in_specs=P('x'), out_specs=P('x'))(ar(4))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        shard_map([](Array x) { return with_sharding_constraint(x, P("x")); }, Mesh{}, {P("x")},
                  P("x"))(Ar({4}));
      })
      .Note("later versions say: contains a manual axes of mesh");
}

}  // namespace tessera::semantics
