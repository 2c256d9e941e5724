// Rows about shardings in types, part one: which values have a sharding, the functions that change
// it, and the errors of meshes. A row is a program in Python, whose results in JAX are recorded,
// and its twin: the same program in C++ with the SDK. semantics_test.cc runs the twins and compares
// their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {
namespace {

// Returns the matrix [[2, 3], [6, 11]], unreduced along X: each of the two devices holds one
// summand.
Array Unreduced(const Mesh& m) {
  const PartitionSpec to = unreduced("X");
  return matmul(put(Ar({2, 2}), m, P(None, "X")), put(Ar({2, 2}), m, P("X", None)), To(&to));
}
Array Diagonal() { return array<bool>({true, false, false, true}, {2, 2}); }

}  // namespace

// Adds the rows "explicit/...". Most rows compare the type of the result. The text of a type
// contains its sharding and the axes along which the value is unreduced or reduced.
void AddExplicitTypes(Table& t) {
  // ---- Types. ----
  t.Gives("explicit/type_of_an_array", R"py(
m = explicit(x=2, y=2)
x = put(ar(8, 2), m, P('x', 'y'))
out = typeof(x), x
)py")
      .Twin([] {
        const Array x = put(Ar({8, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y"));
        return std::pair(x.type().ToString(), x);
      });
  t.Gives("explicit/type_of_two_axes_of_a_dim", R"py(
m = explicit(x=2, y=2)
out = typeof(put(ar(8, 2), m, P(('x', 'y'))))
)py")
      .Twin([] {
        return put(Ar({8, 2}), Explicit({{"x", 2}, {"y", 2}}), P({"x", "y"})).type().ToString();
      });
  t.Gives("explicit/type_of_an_array_on_auto_axes", R"py(
out = typeof(put(ar(8, 2), auto(x=2, y=2), P('x', 'y')))
)py")
      .Twin([] {
        return put(Ar({8, 2}), Auto({{"x", 2}, {"y", 2}}), P("x", "y")).type().ToString();
      });
  t.Gives("explicit/type_of_mixed_axes", R"py(
m = mixed(x=(2, 'Auto'), y=(2, 'Explicit'))
with set_mesh(m):
    out = typeof(put(ar(8, 2), m, P(None, 'y')))
)py")
      .Twin([] {
        const Mesh m = make_mesh({2, 2}, {"x", "y"}, {AxisType::kAuto, AxisType::kExplicit});
        set_mesh context(m);
        return put(Ar({8, 2}), m, P(None, "y")).type().ToString();
      });
  t.Gives("explicit/type_under_jit", R"py(
m = explicit(x=2)
with set_mesh(m):
    jit(lambda a: see(see(a) * 2))(put(ar(8, 2), m, P('x')))
out = seen
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        jit([&](Array a) { return see(see(a) * 2); })(put(Ar({8, 2}), m, P("x")));
        return see.types();
      });
  t.Gives("explicit/type_of_a_replicated_array", R"py(
m = explicit(x=2)
with set_mesh(m):
    jit(lambda a: see(a))(ar(4))
out = seen
)py")
      .Twin([] {
        Seen see;
        set_mesh context(Explicit({{"x", 2}}));
        jit([&](Array a) { return see(a); })(Ar({4}));
        return see.types();
      });
  t.Gives("explicit/constants_are_replicated", R"py(
with set_mesh(explicit(x=2)):
    out = typeof(jnp.ones((4,), jnp.float32)), typeof(jnp.arange(4, dtype=jnp.int32))
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        return std::pair(ones({4}).type().ToString(), arange(4).type().ToString());
      });
  t.Gives("explicit/zeros_with_out_sharding", R"py(
with set_mesh(explicit(x=2)):
    y = jnp.zeros((4, 2), jnp.float32, out_sharding=P('x'))
    out = typeof(y), y
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        const Array y = zeros({4, 2}, kF32, P("x"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit/arange_with_out_sharding", R"py(
with set_mesh(explicit(x=2)):
    y = jnp.arange(4, dtype=jnp.int32, out_sharding=P('x'))
    out = typeof(y), y
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        const Array y = arange(4, kS32, P("x"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit/random_with_out_sharding", R"py(
with set_mesh(explicit(x=2)):
    y = jax.random.bits(jax.random.key(0), (4,), jnp.uint32, out_sharding=P('x'))
    out = typeof(y), y
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        const Array y = random::bits(random::key(0), {4}, kU32, P("x"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit/random_does_not_depend_on_shardings", R"py(
k = jax.random.key(0)
with set_mesh(explicit(x=2)):
    out = jax.random.uniform(k, (4,), jnp.float32, out_sharding=P('x'))
)py")
      .Twin([] {
        const Array k = random::key(0);
        set_mesh context(Explicit({{"x", 2}}));
        return random::uniform(k, {4}, kF32, 0.0, 1.0, P("x"));
      });
  t.Fails("explicit/type_of_an_indivisible_dim", "evenly divide the dimension size", R"py(
m = explicit(x=2)
with set_mesh(m):
    reshard(ar(5), P('x'))
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        reshard(Ar({5}), P("x"));
      });
  t.Fails("explicit/spec_longer_than_rank", "", R"py(
m = explicit(x=2)
with set_mesh(m):
    reshard(ar(4), P(None, 'x'))
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        reshard(Ar({4}), P(None, "x"));
      });
  t.Fails("explicit/axis_twice_in_a_spec", "uplicate", R"py(
m = explicit(x=2)
with set_mesh(m):
    reshard(ar(4, 4), P('x', 'x'))
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        reshard(Ar({4, 4}), P("x", "x"));
      });
  t.Fails("explicit/axis_not_in_the_mesh", "not found in mesh", R"py(
m = explicit(x=2)
with set_mesh(m):
    reshard(ar(4), P('q'))
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        reshard(Ar({4}), P("q"));
      });
  t.Fails("explicit/put_an_indivisible_dim", "evenly divi", R"py(
put(ar(5), explicit(x=2), P('x'))
)py")
      .Twin([] {
        put(Ar({5}), Explicit({{"x", 2}}), P("x"));
      });
  // ---- reshard. ----
  t.Gives("explicit/reshard", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    x = put(ar(4, 4), m, P('x'))
    y = reshard(x, P(None, ('y', 'x')))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const Array y = reshard(put(Ar({4, 4}), m, P("x")), P(None, {"y", "x"}));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit/reshard_to_replicated", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = reshard(put(ar(4), m, P('x')), P())
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = reshard(put(Ar({4}), m, P("x")), P());
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit/reshard_under_jit", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jit(lambda a: see(reshard(a, P(None, 'x'))))(put(ar(4, 2), m, P('x')))
    out = seen, y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y =
            jit([&](Array a) { return see(reshard(a, P(None, "x"))); })(put(Ar({4, 2}), m, P("x")));
        return std::pair(see.types(), y);
      });
  t.Gives("explicit/reshard_of_a_tree", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = reshard({'a': ar(4), 'b': ar(2, 2)}, P('x'))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        return tree_map([](const Array& a) { return reshard(a, P("x")); },
                        std::pair(Ar({4}), Ar({2, 2})));
      });
  t.Gives("explicit/reshard_of_a_tree_to_each", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = reshard((ar(4), ar(2, 2)), (P('x'), P(None, 'x')))
)py")
      .Twin([] {
        set_mesh context(Explicit({{"x", 2}}));
        return reshard(std::pair(Ar({4}), Ar({2, 2})), {P("x"), P(None, "x")});
      });
  t.Fails("explicit/reshard_to_an_auto_axis", "Auto", R"py(
m = auto(x=2)
with set_mesh(m):
    reshard(ar(4), P('x'))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        reshard(Ar({4}), P("x"));
      });
  t.Fails("explicit/reshard_without_a_mesh", "mesh", R"py(
reshard(ar(4), P('x'))
)py")
      .Twin([] { reshard(Ar({4}), P("x")); });
  t.Gives("explicit/grad_of_reshard", R"py(
m = explicit(x=2)
with set_mesh(m):
    g = grad(lambda a: jnp.sum(reshard(a, P(None, 'x')) * ar(2, 2)))(put(ar(2, 2), m, P('x')))
    out = typeof(g), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array g = grad([](Array a) {
          return sum(reshard(a, P(None, "x")) * Ar({2, 2}));
        })(put(Ar({2, 2}), m, P("x")));
        return std::pair(TypeOf(g), g);
      });
  t.Gives("explicit/constraint_of_the_same_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = lax.with_sharding_constraint(put(ar(4), m, P('x')), P('x'))
    out = typeof(y)
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        return with_sharding_constraint(put(Ar({4}), m, P("x")), P("x")).type().ToString();
      });
  t.Fails("explicit/constraint_is_an_assertion", "acts as an assert", R"py(
m = explicit(x=2)
with set_mesh(m):
    jit(lambda a: lax.with_sharding_constraint(a, P(None, 'x')))(put(ar(4, 2), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        jit([](Array a) { return with_sharding_constraint(a, P(None, "x")); })(
            put(Ar({4, 2}), m, P("x")));
      });
  // ---- Unreduced and reduced. ----
  t.Gives("explicit/unreduced_product", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    b = put(ar(2, 2) + 4, m, P('X', None))
    c = jnp.matmul(a, b, out_sharding=P(None, None, unreduced={'X'}))
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const PartitionSpec to = unreduced("X", P(None, None));
        const Array a = put(Ar({2, 2}), m, P(None, "X")), b = put(Ar({2, 2}) + 4, m, P("X", None));
        const Array c = matmul(a, b, To(&to));
        return std::pair(TypeOf(c), reshard(c, P()));
      })
      .For("A17");
  t.Gives("explicit/unreduced_to_sharded", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    c = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    y = reshard(c, P('X'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const PartitionSpec to = unreduced("X");
        const Array a = put(Ar({2, 2}), m, P(None, "X"));
        const Array y = reshard(matmul(a, put(Ar({2, 2}), m, P("X", None)), To(&to)), P("X"));
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit/unreduced_of_a_nonlinear_function", "unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    jnp.cos(jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'})))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const PartitionSpec to = unreduced("X");
        const Array a = put(Ar({2, 2}), m, P(None, "X"));
        cos(matmul(a, put(Ar({2, 2}), m, P("X", None)), To(&to)));
      })
      .For("A17");
  t.Gives("explicit/unreduced_adds_to_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    c = u + u
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const PartitionSpec to = unreduced("X");
        const Array a = put(Ar({2, 2}), m, P(None, "X"));
        const Array u = matmul(a, put(Ar({2, 2}), m, P("X", None)), To(&to));
        const Array c = u + u;
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Fails("explicit/unreduced_does_not_add_to_others", "unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    u + put(ar(2, 2), m, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const PartitionSpec to = unreduced("X");
        const Array a = put(Ar({2, 2}), m, P(None, "X"));
        const Array u = matmul(a, put(Ar({2, 2}), m, P("X", None)), To(&to));
        u + put(Ar({2, 2}), m, P());
      });
  t.Fails("explicit/unreduced_product_of_others", "unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    jnp.matmul(put(ar(2, 2), m, P()), put(ar(2, 2), m, P()), out_sharding=P(unreduced={'X'}))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const PartitionSpec to = unreduced("X");
        matmul(put(Ar({2, 2}), m, P()), put(Ar({2, 2}), m, P()), To(&to));
      });
  t.Gives("explicit/select_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    c = lax.select(jnp.array([[True, False], [False, True]]), u, u + u)
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array c = lax::select(Diagonal(), u, u + u);
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Gives("explicit/select_by_a_scalar_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    c = lax.select(jnp.array(False), u, u + u)
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array c = lax::select(false, u, u + u);
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Fails("explicit/select_of_unreduced_and_others", "select cases must have the same shardings",
          R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    lax.select(jnp.array([[True, False], [False, True]]), u, put(ar(2, 2), m, P()))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        lax::select(Diagonal(), u, put(Ar({2, 2}), m, P()));
      });
  t.Gives("explicit/grad_of_select_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    f = lambda w: jnp.sum(reshard(lax.select(jnp.array([[True, False], [False, True]]), w, w + w), P()))
    g = grad(f)(u)
    out = typeof(g), reshard(g, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array g =
            grad([](Array w) { return sum(reshard(lax::select(Diagonal(), w, w + w), P())); })(u);
        return std::pair(TypeOf(g), reshard(g, P()));
      });
  t.Gives("explicit/select_of_reduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    r = reshard(put(ar(2, 2), m, P()), P(reduced={'X'}))
    c = lax.select(jnp.array([[True, False], [False, True]]), r, r + r)
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array r = reshard(put(Ar({2, 2}), m, P()), reduced("X"));
        const Array c = lax::select(Diagonal(), r, r + r);
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Gives("explicit/pad_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    c = lax.pad(u, jnp.float32(0), [(1, 1, 0), (0, -1, 0)])
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array c = lax::pad(u, 0, {1, 0}, {1, -1});
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Gives("explicit/pad_of_unreduced_with_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    c = lax.pad(u, jnp.sum(u), [(1, 0, 0), (0, 0, 1)])
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array c = lax::pad(u, sum(u), {1, 0}, {0, 0}, {0, 1});
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Gives("explicit/grad_of_pad_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    f = lambda w: jnp.sum(reshard(lax.pad(w, jnp.float32(0), [(1, 1, 0), (0, 0, 0)]), P()) ** 2)
    g = grad(f)(u)
    out = typeof(g), reshard(g, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array g = grad([](Array w) {
          return sum(square(reshard(lax::pad(w, 0, {1, 0}, {1, 0}), P())));
        })(u);
        return std::pair(TypeOf(g), reshard(g, P()));
      });
  t.Gives("explicit/dynamic_update_slice_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    c = jit(lambda u: lax.dynamic_update_slice(u, u[:1], (jnp.int32(1), jnp.int32(0))))(u)
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array c = lax::dynamic_update_slice(u, u[Slice{0, 1}], {1, 0});
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Fails("explicit/dynamic_update_slice_of_unreduced_and_others", "dynamic_update_slice", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    lax.dynamic_update_slice(u, put(ar(1, 2), m, P()), (jnp.int32(1), jnp.int32(0)))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        lax::dynamic_update_slice(u, put(Ar({1, 2}), m, P()), {1, 0});
      });
  t.Gives("explicit/grad_of_dynamic_update_slice_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    def f(w):
        v = lax.dynamic_update_slice(w, w[:1], (jnp.int32(1), jnp.int32(0)))
        return jnp.sum(reshard(v, P()) ** 2)
    g = jit(grad(f))(u)
    out = typeof(g), reshard(g, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array g = grad([](Array w) {
          const Array v = lax::dynamic_update_slice(w, w[Slice{0, 1}], {1, 0});
          return sum(square(reshard(v, P())));
        })(u);
        return std::pair(TypeOf(g), reshard(g, P()));
      });
  t.Gives("explicit/dynamic_slice_of_reduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    r = reshard(put(ar(2, 2), m, P()), P(reduced={'X'}))
    c = lax.dynamic_slice(r, (jnp.int32(1), jnp.int32(0)), (1, 2))
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array r = reshard(put(Ar({2, 2}), m, P()), reduced("X"));
        const Array c = lax::dynamic_slice(r, {1, 0}, {1, 2});
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Gives("explicit/reduce_precision_of_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    a = put(ar(2, 2), m, P(None, 'X'))
    u = jnp.matmul(a, put(ar(2, 2), m, P('X', None)), out_sharding=P(unreduced={'X'}))
    c = lax.reduce_precision(u, 5, 1)
    out = typeof(c), reshard(c, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array u = Unreduced(m);
        const Array c = lax::reduce_precision(u, 5, 1);
        return std::pair(TypeOf(c), reshard(c, P()));
      });
  t.Gives("explicit/reshard_replicated_to_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    u = reshard(put(ar(3), m, P()), P(unreduced={'X'}))
    out = typeof(u), reshard(u, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const Array u = reshard(put(Ar({3}), m, P()), unreduced("X"));
        return std::pair(TypeOf(u), reshard(u, P()));
      });
  t.Gives("explicit/reshard_to_reduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    r = reshard(put(ar(3), m, P()), P(reduced={'X'}))
    out = typeof(r), typeof(reshard(r, P()))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const Array r = reshard(put(Ar({3}), m, P()), reduced("X"));
        return std::pair(TypeOf(r), TypeOf(reshard(r, P())));
      });
  t.Gives("explicit/unary_of_reduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    r = reshard(put(ar(3), m, P()), P(reduced={'X'}))
    out = typeof(-r), typeof(r * 2)
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const Array r = reshard(put(Ar({3}), m, P()), reduced("X"));
        return std::pair(TypeOf(-r), TypeOf(r * 2));
      });
  // ---- auto_axes and explicit_axes. ----
  t.Gives("explicit/auto_axes", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = auto_axes(lambda a: see(jnp.sort(a, 0)), out_sharding=P('x'))(put(-ar(4), m, P('x')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = auto_axes([&](Array a) { return see(sort(a, 0)); }, {},
                                  P("x"))(put(-Ar({4}), m, P("x")));
        return std::tuple(see.types(), TypeOf(y), y);
      });
  t.Gives("explicit/auto_axes_of_some", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = jit(lambda a: auto_axes(lambda a: see(a * 2), axes='x', out_sharding=P('x', 'y'))(a))(
        put(ar(4, 4), m, P('x', 'y')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const auto f = [&](Array a) {
          return auto_axes([&](Array b) { return see(b * 2); }, {"x"}, P("x", "y"))(a);
        };
        const Array y = jit(f)(put(Ar({4, 4}), m, P("x", "y")));
        return std::tuple(see.types(), TypeOf(y), y);
      });
  t.Fails("explicit/auto_axes_without_out_sharding",
          "Missing required keyword argument: 'out_sharding'", R"py(
m = explicit(x=2)
with set_mesh(m):
    auto_axes(lambda a: a)(put(ar(4), m, P('x')))
)py")
      .DoesNotCompile();
  t.Gives("explicit/explicit_axes", R"py(
m = auto(x=2)
with set_mesh(m):
    out = jit(explicit_axes(lambda a: see(see(a) * 2), in_sharding=P('x')))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        set_mesh context(Auto({{"x", 2}}));
        const Array y =
            jit(explicit_axes([&](Array a) { return see(see(a) * 2); }, {}, P("x")))(Ar({4}));
        return std::pair(y, see.types());
      })
      .Anywhere();
  t.Gives("explicit/grad_of_auto_axes", R"py(
m = explicit(x=2)
with set_mesh(m):
    f = lambda a: jnp.sum(auto_axes(lambda b: b * b, out_sharding=P('x'))(a))
    g = grad(f)(put(ar(4), m, P('x')))
    out = typeof(g), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const auto f = [](Array a) {
          return sum(auto_axes([](Array b) { return b * b; }, {}, P("x"))(a));
        };
        const Array g = grad(f)(put(Ar({4}), m, P("x")));
        return std::pair(TypeOf(g), g);
      });
  // ---- Meshes. ----
  t.Fails("explicit/arrays_of_other_meshes", "mesh", R"py(
put(ar(4), explicit(x=2), P('x')) + put(ar(4), explicit(y=2), P('y'))
)py")
      .Twin([] {
        put(Ar({4}), Explicit({{"x", 2}}), P("x")) + put(Ar({4}), Explicit({{"y", 2}}), P("y"));
      });
  t.Fails("explicit/another_mesh_than_the_context", "should match", R"py(
x = put(ar(4), explicit(x=2), P('x'))
with set_mesh(explicit(y=2)):
    x + 1
)py",
          "context mesh")
      .Twin([] {
        const Array x = put(Ar({4}), Explicit({{"x", 2}}), P("x"));
        set_mesh context(Explicit({{"y", 2}}));
        x + 1;
      });
  t.Gives("explicit/without_a_context", R"py(
y = put(ar(4), explicit(x=2), P('x')) * 2
out = typeof(y), y
)py")
      .Twin([] {
        const Array y = put(Ar({4}), Explicit({{"x", 2}}), P("x")) * 2;
        return std::pair(y.type().ToString(), y);
      });
  t.Gives("explicit/make_mesh_is_explicit", R"py(
m = jax.make_mesh((2,), ('x',))
out = m.axis_types[0].name
)py")
      .Twin([] {
        return make_mesh({2}, {"x"}).logical.TypeOf("x") == AxisType::kExplicit ? "Explicit"
                                                                                : "another";
      });
  // ---- jit. ----
  t.Gives("explicit/jit_results_are_as_typed", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = jit(lambda a: (a * 2, jnp.sum(a, 1), a.T))(put(ar(4, 2), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        return jit([](Array a) { return std::tuple(a * 2, sum(a, 1), a.T()); })(
            put(Ar({4, 2}), m, P("x")));
      });
  t.Gives("explicit/control_flow_under_jit", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jit(lambda a: lax.fori_loop(0, 3, lambda i, c: see(c * 2), a))(put(ar(4), m, P('x')))
    out = typeof(y), y, seen[0]
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = jit([&](Array a) {
          return fori_loop(
              0, 3, [&](Array, Array c) { return see(c * 2); }, a);
        })(put(Ar({4}), m, P("x")));
        return std::tuple(y.type().ToString(), y, see.types()[0]);
      });
  t.Fails("explicit/scan_carry_of_another_sharding", "equal types", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4), m, P('x'))
    lax.scan(lambda c, _: (c + x, None), jnp.zeros((4,), jnp.float32), None, length=2)
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4}), m, P("x"));
        scan([&](Array c, NoneType) { return std::pair(c + x, None); }, zeros({4}), None,
             {.length = 2});
      });
  t.Gives("explicit/scan_over_sharded_rows", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(3, 4), m, P(None, 'x'))
    c, ys = lax.scan(lambda c, v: (see(c + v), v * 2), reshard(jnp.zeros((4,), jnp.float32), P('x')), x)
    out = typeof(c), typeof(ys), c, ys, seen[0]
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({3, 4}), m, P(None, "x"));
        const auto [c, ys] = scan([&](Array a, Array v) { return std::pair(see(a + v), v * 2); },
                                  reshard(zeros({4}), P("x")), x);
        return std::tuple(TypeOf(c), TypeOf(ys), c, ys, see.types()[0]);
      });
  t.Fails("explicit/scan_over_a_sharded_leading_dim",
          "0th dimension of all xs should be replicated", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4, 3), m, P('x'))
    lax.scan(lambda c, v: (c, v), None, x)
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        scan([](NoneType, Array v) { return std::pair(None, v); }, None,
             put(Ar({4, 3}), m, P("x")));
      });
  t.Fails("explicit/cond_branches_of_other_shardings", "equal output types", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4), m, P('x'))
    lax.cond(True, lambda: x, lambda: jnp.zeros((4,), jnp.float32))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4}), m, P("x"));
        cond(
            true, [&] { return x; }, [] { return zeros({4}); });
      });
  t.Gives("explicit/eval_shape", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = jax.eval_shape(lambda a: a * 2, put(ar(4), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        return TypeOf(eval_shape([](Array a) { return a * 2; }, put(Ar({4}), m, P("x"))));
      });
}

}  // namespace tessera::semantics
