// Rows about the types that the body of a shard_map sees: the axes over which a value varies,
// casts, and the typing rules of ops. A row is a program in Python, whose results in JAX are
// recorded, and its twin: the same program in C++ with the SDK. semantics_test.cc runs the twins
// and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "varying/...". Most rows compare the types that the body sees, not values.
void AddVarying(Table& t) {
  // ---- Which values vary. ----
  t.Gives("varying/by_in_specs", R"py(
def f(a, b, c):
    see(a), see(b), see(c)
    return a
shard_map(f, mesh=auto(x=2, y=2), in_specs=(P('x'), P('y', 'x'), P()), out_specs=P('x'))(ar(4), ar(4, 4), ar(3))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array a, Array b, Array c) {
          see(a);
          see(b);
          see(c);
          return a;
        };
        shard_map(f, Auto({{"x", 2}, {"y", 2}}), {P("x"), P("y", "x"), P()}, P("x"))(
            Ar({4}), Ar({4, 4}), Ar({3}));
        return see.types();
      });
  t.Gives("varying/constants_do_not", R"py(
def f(x):
    see(jnp.ones((2,), jnp.float32)), see(jnp.arange(3, dtype=jnp.int32)), see(lax.iota(jnp.int32, 4))
    return x
shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          see(ones({2}));
          see(arange(3));
          see(lax::iota(kS32, {4}, 0));
          return x;
        };
        shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/zeros_like_follows", R"py(
shard_map(lambda x: see(jnp.zeros_like(x)), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(zeros_like(x)); }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/full_like_follows", R"py(
shard_map(lambda x: see(jnp.full_like(x, 3)), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(full_like(x, 3)); }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/axis_index", R"py(
def f(x):
    see(lax.axis_index('x')), see(lax.axis_index(('x', 'y')))
    return x
shard_map(f, mesh=auto(x=2, y=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          see(lax::axis_index("x"));
          see(lax::axis_index({"x", "y"}));
          return x;
        };
        shard_map(f, Auto({{"x", 2}, {"y", 2}}), {P("x")}, P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/rng_from_an_invarying_key", R"py(
k = jax.random.key(0)
def f(x):
    see(jax.random.bits(k, (3,), jnp.uint32))
    return x
shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        const Array k = random::key(0);
        const auto f = [&](Array x) {
          see(random::bits(k, {3}));
          return x;
        };
        shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/rng_from_a_varying_key", R"py(
k = jax.random.key(0)
def f(x):
    return see(jax.random.bits(jax.random.fold_in(k, lax.axis_index('x')), (3,), jnp.uint32))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array k = random::key(0);
        const auto f = [&](Array) {
          return see(random::bits(random::fold_in(k, lax::axis_index("x")), {3}));
        };
        const Array y = shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  // ---- Ops with one operand. ----
  t.Gives("varying/unary", R"py(
shard_map(lambda x: see(-see(jnp.square(x))), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(-see(square(x))); }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/shape_ops", R"py(
def f(x):
    see(x.reshape(4)), see(x.T), see(jnp.broadcast_to(x, (3, 2, 2))), see(x[None]), see(x[:1]), see(jnp.flip(x, 0))
    return x
shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4, 2))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          see(x.reshape({4}));
          see(x.T());
          see(broadcast_to(x, {3, 2, 2}));
          see(expand_dims(x, 0));
          see(x[Index(Slice{std::nullopt, 1})]);
          see(flip(x, 0));
          return x;
        };
        shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4, 2}));
        return see.types();
      });
  t.Gives("varying/casts_of_dtype", R"py(
shard_map(lambda x: see(x.astype(jnp.int32)), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(x.astype(kS32)); }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/reductions_keep", R"py(
def f(x):
    see(jnp.sum(x)), see(jnp.max(x, 0)), see(jnp.argmax(x, 0)), see(jnp.cumsum(x, 0)), see(jnp.any(x > 0))
    return x
shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          see(sum(x));
          see(max(x, 0));
          see(argmax(x, 0));
          see(cumsum(x, 0));
          see(any(x > 0));
          return x;
        };
        shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/sort_and_top_k", R"py(
def f(x):
    see(jnp.sort(x)), see(jnp.argsort(x)), see(lax.top_k(x, 1)[1])
    return x
shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          see(sort(x));
          see(argsort(x));
          see(lax::top_k(x, 1).second);
          return x;
        };
        shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/stop_gradient", R"py(
shard_map(lambda x: see(lax.stop_gradient(x)), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(stop_gradient(x)); }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
        return see.types();
      });
  // ---- Ops with several operands. ----
  t.Gives("varying/union_of_elementwise_operands", R"py(
def f(x, y):
    return see(x + y)
out = shard_map(f, mesh=auto(x=2, y=2), in_specs=(P('x'), P('y')), out_specs=P(('x', 'y')))(ints(4), ints(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y =
            shard_map([&](Array a, Array b) { return see(a + b); }, Auto({{"x", 2}, {"y", 2}}),
                      {P("x"), P("y")}, P({"x", "y"}))(Ints({4}), Ints({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/with_an_invarying_operand", R"py(
out = shard_map(lambda x, y: see(x * y), mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(
    ar(6), jnp.array([10., 20., 30.], jnp.float32)), seen
)py")
      .Twin([] {
        Seen see;
        const Array out = shard_map([&](Array x, Array y) { return see(x * y); }, Auto({{"i", 2}}),
                                    {P("i"), P()}, P("i"))(Ar({6}), array<float>({10, 20, 30}));
        return std::pair(out, see.types());
      })
      .For("A08");
  t.Gives("varying/with_a_number", R"py(
shard_map(lambda x: see(2 * x + 1), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(2 * x + 1); }, Auto({{"x", 2}}), {P("x")},
                  P("x"))(Ar({4}));
        return see.types();
      });
  t.Gives("varying/compare_and_where", R"py(
def f(x, y):
    see(x < y)
    return see(jnp.where(y > 1, x, 0.))
shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(ar(4), ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array y) {
          see(x < y);
          return see(where(y > 1, x, 0.0));
        };
        shard_map(f, Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({4}), Ar({2}));
        return see.types();
      });
  t.Gives("varying/where_of_a_varying_predicate", R"py(
shard_map(lambda x, y: see(jnp.where(x > 1, y, -y)), mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(
    ar(4), ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x, Array y) { return see(where(x > 1, y, -y)); }, Auto({{"x", 2}}),
                  {P("x"), P()}, P("x"))(Ar({4}), Ar({2}));
        return see.types();
      });
  t.Gives("varying/clamp", R"py(
shard_map(lambda x, y: see(lax.clamp(y, x, y + 1)), mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(
    ar(4), ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x, Array y) { return see(lax::clamp(y, x, y + 1)); }, Auto({{"x", 2}}),
                  {P("x"), P()}, P("x"))(Ar({4}), Ar({2}));
        return see.types();
      });
  t.Gives("varying/concatenate", R"py(
shard_map(lambda x, y: see(jnp.concatenate([x, y])), mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(
    ar(4), ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map(
            [&](Array x, Array y) {
              return see(concatenate({x, y}));
            },
            Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({4}), Ar({2}));
        return see.types();
      });
  t.Gives("varying/stack", R"py(
shard_map(lambda x, y: see(jnp.stack([x, y])), mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(
    ar(4), ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map(
            [&](Array x, Array y) {
              return see(stack({x, y}));
            },
            Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({4}), Ar({2}));
        return see.types();
      });
  t.Gives("varying/dot", R"py(
out = shard_map(lambda x, w: see(x @ w), mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(
    ar(4, 3), ar(3, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x, Array w) { return see(matmul(x, w)); },
                                  Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({4, 3}), Ar({3, 2}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/einsum", R"py(
shard_map(lambda x, w: see(jnp.einsum('ij,jk->ki', x, w)), mesh=auto(x=2, y=2), in_specs=(P('x'), P(None, 'y')),
          out_specs=P('x', 'y'))(ar(4, 3), ar(3, 2))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map(
            [&](Array x, Array w) {
              return see(einsum("ij,jk->ki", {x, w}));
            },
            Auto({{"x", 2}, {"y", 2}}), {P("x"), P(None, "y")},
            P("x", "y"))(Ar({4, 3}), Ar({3, 2}));
        return see.types();
      });
  t.Gives("varying/conv", R"py(
f = lambda x, k: see(lax.conv_general_dilated(x, k, (1,), 'VALID'))
out = shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(ar(2, 1, 4), ar(1, 1, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x, Array k) { return see(lax::conv_general_dilated(x, k, {1}, "VALID")); },
            Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({2, 1, 4}), Ar({1, 1, 2}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/pad_with_an_invarying_value", R"py(
f = lambda x: see(lax.pad(x, jnp.float32(7), [(1, 1, 0)]))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::pad(x, 7.0, {1}, {1})); },
                                  Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/gather_by_varying_indices", R"py(
f = lambda i, table: see(table[i])
out = shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(ints(4), ar(5, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array i, Array table) { return see(table[i]); },
                                  Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ints({4}), Ar({5, 2}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/gather_from_a_varying_table", R"py(
f = lambda x: see(x[jnp.array([1, 0])])
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array x) {
              return see(x[array<int32_t>({1, 0})]);
            },
            Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/scatter_of_varying_updates", R"py(
f = lambda x: see(jnp.zeros((2,), jnp.float32).at[jnp.array([1, 0])].set(x))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array at = array<int32_t>({1, 0});
        const Array y = shard_map([&](Array x) { return see(zeros({2}).at(at).set(x)); },
                                  Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/scatter_add_at_varying_indices", R"py(
f = lambda i: see(jnp.zeros((4,), jnp.float32).at[i].add(1.))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ints(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array i) { return see(zeros({4}).at(i).add(1.0)); },
                                  Auto({{"x", 2}}), {P("x")}, P("x"))(Ints({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/dynamic_slice_at_a_varying_start", R"py(
def f(table):
    return see(lax.dynamic_slice(table, (lax.axis_index('x') * 2,), (2,)))
out = shard_map(f, mesh=auto(x=2), in_specs=P(), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map(
            [&](Array table) {
              return see(lax::dynamic_slice(table, {lax::axis_index("x") * 2}, {2}));
            },
            Auto({{"x", 2}}), {P()}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/dynamic_update_slice", R"py(
def f(x):
    return see(lax.dynamic_update_slice(jnp.zeros((3,), jnp.float32), x, (1,)))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y =
            shard_map([&](Array x) { return see(lax::dynamic_update_slice(zeros({3}), x, {1})); },
                      Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/sort_of_two", R"py(
def f(x, y):
    a, b = lax.sort((x, y), num_keys=1)
    see(a)
    return see(b)
out = shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(-ar(4), ar(2)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array y) {
          const std::vector<Array> sorted = lax::sort({x, y});
          see(sorted[0]);
          return see(sorted[1]);
        };
        const Array y = shard_map(f, Auto({{"x", 2}}), {P("x"), P()}, P("x"))(-Ar({4}), Ar({2}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/reduce_with_a_function", R"py(
def f(x):
    return see(lax.reduce(x, jnp.float32(0), lax.add, (0,)).reshape(1))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          return see(lax::reduce(x, 0.0, [](const Array& a, const Array& b) { return a + b; }, {0})
                         .reshape({1}));
        };
        const Array y = shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/reduce_window", R"py(
def f(x):
    return see(lax.reduce_window(x, jnp.float32(0), lax.add, (2,), (1,), 'VALID'))
out = shard_map(f, mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(ar(6)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) {
          return see(lax::reduce_window(
              x, 0.0, [](const Array& a, const Array& b) { return a + b; }, {2}, {1}, "VALID"));
        };
        const Array y = shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(Ar({6}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/optimization_barrier", R"py(
def f(x, y):
    a, b = lax.optimization_barrier((x, y))
    see(a), see(b)
    return a
shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P()), out_specs=P('x'))(ar(4), ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array y) {
          const std::vector<Array> both = lax::optimization_barrier({x, y});
          see(both[0]);
          see(both[1]);
          return both[0];
        };
        shard_map(f, Auto({{"x", 2}}), {P("x"), P()}, P("x"))(Ar({4}), Ar({2}));
        return see.types();
      });
  t.Gives("varying/cholesky", R"py(
out = shard_map(lambda a: see(jnp.linalg.cholesky(a)), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(
    jnp.array([[[4.]], [[9.]]], jnp.float32)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y =
            shard_map([&](Array a) { return see(linalg::cholesky(a)); }, Auto({{"x", 2}}), {P("x")},
                      P("x"))(array<float>({4, 9}, {2, 1, 1}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/custom_linear_solve", R"py(
def f(b, d):
    return see(lax.custom_linear_solve(lambda x: d * x, b, lambda _, b: b / d, symmetric=True))
out = shard_map(f, mesh=auto(x=2), in_specs=(P('x'), P('x')), out_specs=P('x'))(2 * ar(4), ar(4) + 1), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array b, Array d) {
          return see(lax::custom_linear_solve([d](const Array& x) { return d * x; }, b,
                                              [d](const auto&, const Array& v) { return v / d; },
                                              {}, {.symmetric = true}));
        };
        const Array y =
            shard_map(f, Auto({{"x", 2}}), {P("x"), P("x")}, P("x"))(2 * Ar({4}), Ar({4}) + 1);
        return std::pair(y, see.types());
      })
      .Within(1);
  t.Fails("varying/strict_elementwise", "requires varying manual axes to match", R"py(
from jax._src import config
with config.auto_pcast(False):
    shard_map(lambda x, y: x * y, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(ar(6), ar(3))
)py")
      .Twin([] {
        const auto_pcast off(false);
        shard_map([](Array x, Array y) { return x * y; }, Auto({{"i", 2}}), {P("i"), P()}, P("i"))(
            Ar({6}), Ar({3}));
      })
      .For("A08");
  t.Gives("varying/strict_with_a_cast", R"py(
from jax._src import config
with config.auto_pcast(False):
    out = shard_map(lambda x, y: x * lax.pcast(y, 'i', to='varying'), mesh=auto(i=2), in_specs=(P('i'), P()),
                    out_specs=P('i'))(ar(6), ar(3))
)py")
      .Twin([] {
        const auto_pcast off(false);
        return shard_map([](Array x, Array y) { return x * lax::pcast(y, "i"); }, Auto({{"i", 2}}),
                         {P("i"), P()}, P("i"))(Ar({6}), Ar({3}));
      });
  t.Fails("varying/strict_concatenate", "requires varying manual axes to match", R"py(
from jax._src import config
with config.auto_pcast(False):
    shard_map(lambda x, y: jnp.concatenate([x, y]), mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(
        ar(6), ar(3))
)py")
      .Twin([] {
        const auto_pcast off(false);
        shard_map(
            [](Array x, Array y) {
              return concatenate({x, y});
            },
            Auto({{"i", 2}}), {P("i"), P()}, P("i"))(Ar({6}), Ar({3}));
      });
  t.Fails("varying/strict_matmul", "requires varying manual axes to match", R"py(
from jax._src import config
with config.auto_pcast(False):
    shard_map(lambda x, y: x @ y, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(ar(4, 3), ar(3, 2))
)py")
      .Twin([] {
        const auto_pcast off(false);
        shard_map([](Array x, Array y) { return matmul(x, y); }, Auto({{"i", 2}}), {P("i"), P()},
                  P("i"))(Ar({4, 3}), Ar({3, 2}));
      });
  t.Fails("varying/strict_gather", "requires varying manual axes to match", R"py(
from jax._src import config
with config.auto_pcast(False):
    shard_map(lambda x, i: x[i], mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(ar(6), ints(2))
)py")
      .Twin([] {
        const auto_pcast off(false);
        shard_map([](Array x, Array i) { return x[i]; }, Auto({{"i", 2}}), {P("i"), P()}, P("i"))(
            Ar({6}), Ints({2}));
      });
  t.Fails("varying/strict_psum", "is a variant->invariant collective", R"py(
from jax._src import config
with config.auto_pcast(False):
    shard_map(lambda x: lax.psum(x, 'i'), mesh=auto(i=2), in_specs=P(), out_specs=P())(ar(3))
)py")
      .Twin([] {
        const auto_pcast off(false);
        shard_map([](Array x) { return lax::psum(x, "i"); }, Auto({{"i", 2}}), {P()}, P())(Ar({3}));
      });
  t.Gives("varying/strict_gathers_to_invarying", R"py(
from jax._src import config
with config.auto_pcast(False):
    out = shard_map(lambda x: lax.all_gather(x, 'i', to='invarying'), mesh=auto(i=2), in_specs=P(),
                    out_specs=P())(ar(3))
)py")
      .Twin([] {
        const auto_pcast off(false);
        return shard_map(
            [](Array x) { return lax::all_gather(x, "i", 0, /*tiled=*/false, "invarying"); },
            Auto({{"i", 2}}), {P()}, P())(Ar({3}));
      });
  t.Gives("varying/strict_does_not_hold_unchecked", R"py(
from jax._src import config
with config.auto_pcast(False):
    out = shard_map(lambda x, y: x * y, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'),
                    check_vma=False)(ar(6), ar(3))
)py")
      .Twin([] {
        const auto_pcast off(false);
        return shard_map([](Array x, Array y) { return x * y; }, Auto({{"i", 2}}), {P("i"), P()},
                         P("i"), kUnchecked)(Ar({6}), Ar({3}));
      });
  t.Fails("varying/strict_all_gather", "must be applied to a device-varying", R"py(
from jax._src import config
with config.auto_pcast(False):
    shard_map(lambda x: lax.all_gather(x, 'i'), mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ar(3))
)py")
      .Twin([] {
        const auto_pcast off(false);
        shard_map([](Array x) { return lax::all_gather(x, "i"); }, Auto({{"i", 2}}), {P()},
                  P("i"))(Ar({3}));
      });
  // ---- Casts. ----
  t.Gives("varying/pcast_to_varying", R"py(
out = shard_map(lambda x: see(lax.pcast(x, 'i', to='varying')), mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(
    ar(2)), seen
)py")
      .Twin([] {
        Seen see;
        const Array y = shard_map([&](Array x) { return see(lax::pcast(x, "i", "varying")); },
                                  Auto({{"i", 2}}), {P()}, P("i"))(Ar({2}));
        return std::pair(y, see.types());
      });
  t.Gives("varying/pcast_over_two_axes", R"py(
shard_map(lambda x: see(lax.pcast(x, ('i', 'j'), to='varying')), mesh=auto(i=2, j=2), in_specs=P(),
          out_specs=P(('i', 'j')))(ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map(
            [&](Array x) {
              return see(lax::pcast(x, {"i", "j"}, "varying"));
            },
            Auto({{"i", 2}, {"j", 2}}), {P()}, P({"i", "j"}))(Ar({2}));
        return see.types();
      });
  t.Gives("varying/pcast_over_another_axis", R"py(
shard_map(lambda x: see(lax.pcast(x, 'j', to='varying')), mesh=auto(i=2, j=2), in_specs=P('i'),
          out_specs=P(('i', 'j')))(ar(2))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(lax::pcast(x, "j", "varying")); },
                  Auto({{"i", 2}, {"j", 2}}), {P("i")}, P({"i", "j"}))(Ar({2}));
        return see.types();
      });
  t.Fails("varying/pcast_of_what_varies", "Unsupported pcast", R"py(
shard_map(lambda x: lax.pcast(x, 'i', to='varying'), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(2))
)py",
          "varying")
      .Twin([] {
        shard_map([](Array x) { return lax::pcast(x, "i", "varying"); }, Auto({{"i", 2}}), {P("i")},
                  P("i"))(Ar({2}));
      });
  t.Fails("varying/pcast_to_invarying", "Got unexpected `to` value", R"py(
shard_map(lambda x: lax.pcast(x, 'i', to='invarying'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())(ar(2))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::pcast(x, "i", "invarying"); }, Auto({{"i", 2}}),
                  {P("i")}, P())(Ar({2}));
      });
  t.Fails("varying/pcast_varying_to_reduced", "Unsupported pcast", R"py(
shard_map(lambda x: lax.pcast(x, 'i', to='reduced'), mesh=explicit(i=2), in_specs=P('i'), out_specs=P('i'))(
    put(ar(2), explicit(i=2), P('i')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        shard_map([](Array x) { return lax::pcast(x, "i", "reduced"); }, m, {P("i")},
                  P("i"))(put(Ar({2}), m, P("i")));
      });
  t.Fails("varying/pcast_to_an_unknown_state", "Got unexpected `to` value", R"py(
shard_map(lambda x: lax.pcast(x, 'i', to='both'), mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ar(2))
)py")
      .Twin([] {
        shard_map([](Array x) { return lax::pcast(x, "i", "both"); }, Auto({{"i", 2}}), {P()},
                  P("i"))(Ar({2}));
      });
  t.Fails("varying/pcast_of_mixed_states", "varying, unreduced, reduced or invarying", R"py(
shard_map(lambda x: lax.pcast(x, ('i', 'j'), to='varying'), mesh=auto(i=2, j=2), in_specs=P('i'),
          out_specs=P(('i', 'j')))(ar(2))
)py",
          "can only accept axis_name which corresponds to one of")
      .Twin([] {
        shard_map(
            [](Array x) {
              return lax::pcast(x, {"i", "j"}, "varying");
            },
            Auto({{"i", 2}, {"j", 2}}), {P("i")}, P({"i", "j"}))(Ar({2}));
      });
  t.Fails("varying/pcast_over_a_set", "must be a tuple or a str", R"py(
shard_map(lambda x: lax.pcast(x, {'i'}, to='varying'), mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ar(2))
)py")
      .DoesNotCompile();
  t.Fails("varying/pcast_outside", "pvary should be called under", R"py(
lax.pcast(ar(2), 'i', to='varying')
)py")
      .Twin([] { lax::pcast(Ar({2}), "i", "varying"); });
  t.Gives("varying/pcast_unchecked_is_identity", R"py(
out = shard_map(lambda x: lax.pcast(x, 'i', to='varying'), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'),
                check_vma=False)(ar(4))
)py")
      .Twin([] {
        return shard_map([](Array x) { return lax::pcast(x, "i", "varying"); }, Auto({{"i", 2}}),
                         {P("i")}, P("i"), kUnchecked)(Ar({4}));
      });
  t.Gives("varying/types_unchecked_are_empty", R"py(
shard_map(lambda x: see(x), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'), check_vma=False)(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        shard_map([&](Array x) { return see(x); }, Auto({{"i", 2}}), {P("i")}, P("i"),
                  kUnchecked)(Ar({4}));
        return see.types();
      });
  // ---- Unreduced and reduced values in bodies. ----
  t.Gives("varying/invarying_to_reduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    shard_map(lambda x: (see(lax.pcast(x, 'i', to='reduced')), x)[1], in_specs=P(), out_specs=P())(put(ar(2), m, P()))
out = seen
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        shard_map(
            [&](Array x) {
              see(lax::pcast(x, "i", "reduced"));
              return x;
            },
            m, {P()}, P())(put(Ar({2}), m, P()));
        return see.types();
      });
  t.Gives("varying/varying_to_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    y = shard_map(lambda x: see(lax.pcast(x, 'i', to='unreduced')), in_specs=P('i'), out_specs=P(unreduced={'i'}))(
        put(ar(4), m, P('i')))
    out = seen, typeof(y), reshard(y, P())
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        const Array y = shard_map([&](Array x) { return see(lax::pcast(x, "i", "unreduced")); }, m,
                                  {P("i")}, unreduced("i"))(put(Ar({4}), m, P("i")));
        return std::tuple(see.types(), TypeOf(y), reshard(y, P()));
      });
  t.Gives("varying/reduced_to_varying", R"py(
m = explicit(i=2)
with set_mesh(m):
    y = shard_map(lambda x: see(lax.pcast(see(x), 'i', to='varying')), in_specs=P(reduced={'i'}), out_specs=P('i'))(
        reshard(put(ar(2), m, P()), P(reduced={'i'})))
    out = seen, y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        const Array y =
            shard_map([&](Array x) { return see(lax::pcast(see(x), "i", "varying")); }, m,
                      {reduced("i")}, P("i"))(reshard(put(Ar({2}), m, P()), reduced("i")));
        return std::tuple(see.types(), y);
      });
  t.Gives("varying/psum_of_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: see(lax.psum(lax.pcast(x, 'i', to='unreduced'), 'i'))
    out = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i'))), seen
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        const Array y =
            shard_map([&](Array x) { return see(lax::psum(lax::pcast(x, "i", "unreduced"), "i")); },
                      m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::tuple(y, see.types());
      });
  t.Gives("varying/psum_scatter_of_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: see(lax.psum_scatter(lax.pcast(x, 'i', to='unreduced'), 'i', tiled=True))
    out = shard_map(f, in_specs=P('i'), out_specs=P('i'))(put(ar(4), m, P('i'))), seen
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        const Array y = shard_map(
            [&](Array x) {
              return see(lax::psum_scatter(lax::pcast(x, "i", "unreduced"), "i", 0, true));
            },
            m, {P("i")}, P("i"))(put(Ar({4}), m, P("i")));
        return std::tuple(y, see.types());
      });
  t.Gives("varying/all_gather_to_reduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: see(lax.all_gather(x, 'i', tiled=True, to='reduced'))
    y = shard_map(f, in_specs=P('i'), out_specs=P(reduced={'i'}))(put(ar(4), m, P('i')))
    out = seen, typeof(y)
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        const Array y =
            shard_map([&](Array x) { return see(lax::all_gather(x, "i", 0, true, "reduced")); }, m,
                      {P("i")}, reduced("i"))(put(Ar({4}), m, P("i")));
        return std::tuple(see.types(), TypeOf(y));
      });
  t.Fails("varying/all_gather_to_reduced_of_invarying", "varying", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: lax.all_gather(x, 'i', tiled=True, to='reduced')
    shard_map(f, in_specs=P(), out_specs=P(reduced={'i'}))(put(ar(4), m, P()))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        shard_map([](Array x) { return lax::all_gather(x, "i", 0, true, "reduced"); }, m, {P()},
                  reduced("i"))(put(Ar({4}), m, P()));
      });
  t.Gives("varying/product_with_reduced_is_varying", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x, w: see(x * w)
    y = shard_map(f, in_specs=(P('i'), P(reduced={'i'})), out_specs=P('i'))(
        put(ar(4), m, P('i')), reshard(put(ar(2), m, P()), P(reduced={'i'})))
    out = seen, y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        const Array y =
            shard_map([&](Array x, Array w) { return see(x * w); }, m, {P("i"), reduced("i")},
                      P("i"))(put(Ar({4}), m, P("i")), reshard(put(Ar({2}), m, P()), reduced("i")));
        return std::tuple(see.types(), y);
      });
  t.Gives("varying/sum_of_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return see(lax.psum(see(u + u), 'i'))
    out = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i'))), seen
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        const Array y = shard_map(
            [&](Array x) {
              const Array u = lax::pcast(x, "i", "unreduced");
              return see(lax::psum(see(u + u), "i"));
            },
            m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::tuple(y, see.types());
      });
  t.Gives("varying/select_of_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return lax.psum(see(lax.select(jnp.array([True, False]), u, u + u)), 'i')
    y = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
    out = y, seen
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        Seen see;
        const auto f = [&](Array x) {
          const Array u = lax::pcast(x, "i", "unreduced");
          return lax::psum(see(lax::select(array<bool>({true, false}), u, u + u)), "i");
        };
        const Array y = shard_map(f, m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::pair(y, see.types());
      });
  t.Fails("varying/select_by_varying_of_unreduced", "unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return lax.psum(see(lax.select(lax.axis_index('i') > jnp.zeros(2, jnp.int32), u, u + u)), 'i')
    y = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
    out = y, seen
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        Seen see;
        const auto f = [&](Array x) {
          const Array u = lax::pcast(x, "i", "unreduced");
          return lax::psum(see(lax::select(lax::axis_index("i") > zeros({2}, kS32), u, u + u)),
                           "i");
        };
        const Array y = shard_map(f, m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::pair(y, see.types());
      });
  t.Gives("varying/pad_of_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return lax.psum(see(lax.pad(u, jnp.float32(0), [(1, 1, 0)])), 'i')
    y = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
    out = y, seen
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        Seen see;
        const auto f = [&](Array x) {
          const Array u = lax::pcast(x, "i", "unreduced");
          return lax::psum(see(lax::pad(u, 0, {1}, {1})), "i");
        };
        const Array y = shard_map(f, m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::pair(y, see.types());
      });
  t.Gives("varying/pad_of_unreduced_with_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return lax.psum(see(lax.pad(u, jnp.sum(u), [(1, 1, 0)])), 'i')
    y = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
    out = y, seen
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        Seen see;
        const auto f = [&](Array x) {
          const Array u = lax::pcast(x, "i", "unreduced");
          return lax::psum(see(lax::pad(u, sum(u), {1}, {1})), "i");
        };
        const Array y = shard_map(f, m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::pair(y, see.types());
      });
  t.Gives("varying/dynamic_update_slice_of_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return lax.psum(see(lax.dynamic_update_slice(u, lax.slice(u, (0,), (1,)), (jnp.int32(1),))), 'i')
    y = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
    out = y, seen
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        Seen see;
        const auto f = [&](Array x) {
          const Array u = lax::pcast(x, "i", "unreduced");
          return lax::psum(see(lax::dynamic_update_slice(u, u[Slice{0, 1}], {1})), "i");
        };
        const Array y = shard_map(f, m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::pair(y, see.types());
      });
  t.Fails("varying/dynamic_update_slice_of_unreduced_and_others",
          "operand and update must be unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return lax.psum(see(lax.dynamic_update_slice(u, jnp.ones(1, jnp.float32), (jnp.int32(1),))), 'i')
    y = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
    out = y, seen
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        Seen see;
        const auto f = [&](Array x) {
          const Array u = lax::pcast(x, "i", "unreduced");
          return lax::psum(see(lax::dynamic_update_slice(u, ones({1}), {1})), "i");
        };
        const Array y = shard_map(f, m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::pair(y, see.types());
      });
  t.Gives("varying/reduce_precision_of_unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    def f(x):
        u = lax.pcast(x, 'i', to='unreduced')
        return lax.psum(see(lax.reduce_precision(u, 5, 0)), 'i')
    y = shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
    out = y, seen
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);
        Seen see;
        const auto f = [&](Array x) {
          const Array u = lax::pcast(x, "i", "unreduced");
          return lax::psum(see(lax::reduce_precision(u, 5, 0)), "i");
        };
        const Array y = shard_map(f, m, {P("i")}, P())(put(Ar({4}), m, P("i")));
        return std::pair(y, see.types());
      });
  t.Fails("varying/unreduced_and_not_do_not_add", "unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: lax.pcast(x, 'i', to='unreduced') + jnp.ones((2,), jnp.float32)
    shard_map(f, in_specs=P('i'), out_specs=P(unreduced={'i'}))(put(ar(4), m, P('i')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        shard_map([](Array x) { return lax::pcast(x, "i", "unreduced") + ones({2}); }, m, {P("i")},
                  unreduced("i"))(put(Ar({4}), m, P("i")));
      });
  t.Fails("varying/nonlinear_of_unreduced", "unreduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: jnp.cos(lax.pcast(x, 'i', to='unreduced'))
    shard_map(f, in_specs=P('i'), out_specs=P(unreduced={'i'}))(put(ar(4), m, P('i')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        shard_map([](Array x) { return cos(lax::pcast(x, "i", "unreduced")); }, m, {P("i")},
                  unreduced("i"))(put(Ar({4}), m, P("i")));
      });
  t.Fails("varying/out_specs_lack_unreduced", "require replication", R"py(
m = explicit(i=2)
with set_mesh(m):
    f = lambda x: lax.pcast(x, 'i', to='unreduced')
    shard_map(f, in_specs=P('i'), out_specs=P())(put(ar(4), m, P('i')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        shard_map([](Array x) { return lax::pcast(x, "i", "unreduced"); }, m, {P("i")},
                  P())(put(Ar({4}), m, P("i")));
      });
  t.Fails("varying/in_specs_claim_reduced", "reduced", R"py(
m = explicit(i=2)
with set_mesh(m):
    shard_map(lambda x: x, in_specs=P(reduced={'i'}), out_specs=P(reduced={'i'}))(put(ar(4), m, P()))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"i", 2}});
        set_mesh context(m);

        shard_map([](Array x) { return x; }, m, {reduced("i")}, reduced("i"))(put(Ar({4}), m, P()));
      });
}

}  // namespace tessera::semantics
