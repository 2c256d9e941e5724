// Rows about shardings in types, part three: indexing, vmap and derivatives. A row is a program in
// Python, whose results in JAX are recorded, and its twin: the same program in C++ with the SDK.
// semantics_test.cc runs the twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "explicit_at/...". Most rows compare the type of the result, which contains
// its sharding.
void AddExplicitIndexing(Table& t) {
  // ---- Reading. ----
  t.Gives("explicit_at/read_replicated_by_replicated", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(put(ar(4, 3), m, P())[jnp.array([2, 0])])
)py")
      .Twin([] {
        return TypeOf(put(Ar({4, 3}), Explicit({{"x", 2}}), P())[array<int32_t>({2, 0})]);
      });
  t.Gives("explicit_at/read_whole_rows_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = put(ar(3, 4), m, P(None, 'x'))[jnp.array([2, 0])]
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = put(Ar({3, 4}), Explicit({{"x", 2}}), P(None, "x"))[array<int32_t>({2, 0})];
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_at/read_a_sharded_dim_by_an_array", "out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    put(ar(4, 3), m, P('x'))[jnp.array([2, 0])]
)py",
          ".get(")
      .Twin([] {
        put(Ar({4, 3}), Explicit({{"x", 2}}), P("x"))[array<int32_t>({2, 0})];
      });
  t.Fails("explicit_at/read_by_sharded_indices", "out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    put(ar(4, 3), m, P())[put(ints(4), m, P('x'))]
)py",
          ".get(")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        put(Ar({4, 3}), m, P())[put(Ints({4}), m, P("x"))];
      });
  t.Gives("explicit_at/read_by_sharded_indices_with_out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = put(ar(4, 3), m, P()).at[put(ints(4), m, P('x'))].get(out_sharding=P('x'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = put(Ar({4, 3}), m, P()).at(put(Ints({4}), m, P("x"))).get(P("x"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_at/read_a_number_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(3, 4), m, P(None, 'x'))
    out = typeof(a[1]), typeof(a[:, None]), a[-1]
)py")
      .Twin([] {
        const Array a = put(Ar({3, 4}), Explicit({{"x", 2}}), P(None, "x"));
        return std::tuple(TypeOf(a[1]), TypeOf(a[{Slice{}, None}]), a[-1]);
      });
  t.Gives("explicit_at/read_a_slice_with_out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = put(ar(4, 4), m, P('x')).at[:, 1:3].get(out_sharding=P())
    out = typeof(y)
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        return TypeOf(put(Ar({4, 4}), m, P("x")).at({Slice{}, Slice{1, 3}}).get(P()));
      });
  t.Gives("explicit_at/take_with_out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = put(ar(4, 3), m, P('x')).at[jnp.array([2, 0])].get(out_sharding=P())
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = put(Ar({4, 3}), m, P("x")).at(array<int32_t>({2, 0})).get(P());
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_at/take_along_axis", R"py(
m = explicit(x=2)
with set_mesh(m):
    i = put(jnp.array([[1], [0], [2], [1]]), m, P('x'))
    y = jnp.take_along_axis(put(ar(4, 3), m, P('x')), i, 1)
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        const Array i = put(array<int32_t>({1, 0, 2, 1}, {4, 1}), m, P("x"));
        const Array y = take_along_axis(put(Ar({4, 3}), m, P("x")), i, 1);
        return std::pair(TypeOf(y), y);
      });
  // ---- Writing. ----
  t.Gives("explicit_at/write_replicated", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(put(ar(4, 3), m, P()).at[jnp.array([2, 0])].set(0.))
)py")
      .Twin([] {
        return TypeOf(
            put(Ar({4, 3}), Explicit({{"x", 2}}), P()).at(array<int32_t>({2, 0})).set(0.0));
      });
  t.Gives("explicit_at/write_whole_rows_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = put(ar(3, 4), m, P(None, 'x')).at[jnp.array([2, 0])].set(put(ar(2, 4), m, P(None, 'x')))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        const Array y = put(Ar({3, 4}), m, P(None, "x"))
                            .at(array<int32_t>({2, 0}))
                            .set(put(Ar({2, 4}), m, P(None, "x")));
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_at/write_a_sharded_dim_by_an_array", "out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    put(ar(4, 3), m, P('x')).at[jnp.array([2, 0])].set(0.)
)py")
      .Twin([] {
        const strict_sharding strict;  // otherwise the array keeps its sharding: decision 0024
        put(Ar({4, 3}), Explicit({{"x", 2}}), P("x")).at(array<int32_t>({2, 0})).set(0.0);
      });
  t.Gives("explicit_at/write_with_out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4, 3), m, P('x'))
    y = a.at[jnp.array([2, 0])].add(1., out_sharding=P('x'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array a = put(Ar({4, 3}), m, P("x"));
        const Array y = a.at(array<int32_t>({2, 0})).add(1.0, P("x"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_at/add_by_sharded_indices_with_out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    i = put(jnp.array([0, 1, 1, 2]), m, P('x'))
    y = jnp.zeros((3,), jnp.float32).at[i].add(1., out_sharding=P())
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array i = put(array<int32_t>({0, 1, 1, 2}), m, P("x"));
        const Array y = zeros({3}).at(i).add(1.0, P());
        return std::pair(TypeOf(y), y);
      });
  // ---- The programs of issue 28111 of JAX. ----
  t.Gives("explicit_at/columns_of_sharded_rows", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4, 3), m, P('x'))
    i, j = put(jnp.array([0, 1, 2, 0]), m, P('x')), put(jnp.array([2, 0, 1, 2]), m, P('x'))
    v = x.at[:, j].get(out_sharding=typeof(i).sharding)
    y = x.at[:, i].set(v, out_sharding=typeof(x).sharding)
    out = typeof(v), v, typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4, 3}), m, P("x"));
        const Array i = put(array<int32_t>({0, 1, 2, 0}), m, P("x"));
        const Array j = put(array<int32_t>({2, 0, 1, 2}), m, P("x"));
        const Array v = x.at({Slice{}, j}).get(i.sharding());
        const Array y = x.at({Slice{}, i}).set(v, x.sharding());
        return std::tuple(TypeOf(v), v, TypeOf(y), y);
      })
      .For("A22");
  t.Fails("explicit_at/columns_of_sharded_rows_without_out_sharding", "duplicate entries", R"py(
m = explicit(x=2)
with set_mesh(m):
    put(ar(4, 3), m, P('x'))[:, put(jnp.array([2, 0, 1, 2]), m, P('x'))]
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        put(Ar({4, 3}), m, P("x"))[{Slice{}, put(array<int32_t>({2, 0, 1, 2}), m, P("x"))}];
      })
      .For("A22")
      .Note("0.10.2 builds the spec P('x', 'x'); a later one asks for out_sharding");
  t.Fails("explicit_at/write_columns_without_out_sharding", "duplicate entries", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4, 3), m, P('x'))
    x.at[:, put(jnp.array([0, 1, 2, 0]), m, P('x'))].set(1.)
)py")
      .Twin([] {
        strict_sharding strict;
        const Mesh m = Explicit({{"x", 2}});
        put(Ar({4, 3}), m, P("x"))
            .at({Slice{}, put(array<int32_t>({0, 1, 2, 0}), m, P("x"))})
            .set(1.0);
      })
      .For("A22");
  t.Gives("explicit_at/grad_of_columns_of_sharded_rows", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4, 3), m, P('x'))
    i, j = put(jnp.array([0, 1, 2, 0]), m, P('x')), put(jnp.array([2, 0, 1, 2]), m, P('x'))
    def f1(x):
        v = x.at[:, j].get(out_sharding=typeof(i).sharding)
        return x.at[:, i].set(v, out_sharding=typeof(x).sharding)
    w = put(ar(4, 3) + 1, m, P('x'))
    g = jit(grad(lambda x: jnp.sum(w * f1(x))))(x)
    out = typeof(g), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4, 3}), m, P("x"));
        const Array i = put(array<int32_t>({0, 1, 2, 0}), m, P("x"));
        const Array j = put(array<int32_t>({2, 0, 1, 2}), m, P("x"));
        const auto f1 = [&](Array x) {
          const Array v = x.at({Slice{}, j}).get(P("x"));
          return x.at({Slice{}, i}).set(v, P("x"));
        };
        const Array w = put(Ar({4, 3}) + 1, m, P("x"));
        const Array g = jit(grad([&](Array x) { return sum(w * f1(x)); }))(x);
        return std::pair(TypeOf(g), g);
      })
      .For("A22");
  t.Gives("explicit_at/mapped_rows", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4, 3), m, P('x'))
    i, j = put(jnp.array([0, 1, 2, 0]), m, P('x')), put(jnp.array([2, 0, 1, 2]), m, P('x'))
    y = vmap(lambda r, i, j: r.at[i].set(see(r)[j]))(x, i, j)
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4, 3}), m, P("x"));
        const Array i = put(array<int32_t>({0, 1, 2, 0}), m, P("x")),
                    j = put(array<int32_t>({2, 0, 1, 2}), m, P("x"));
        const Array y =
            vmap([&](Array r, Array a, Array b) { return r.at(a).set(see(r)[b]); })(x, i, j);
        return std::tuple(see.types(), TypeOf(y), y);
      })
      .For("A23");
  t.Gives("explicit_at/grad_of_mapped_rows", R"py(
m = explicit(x=2)
with set_mesh(m):
    x = put(ar(4, 3), m, P('x'))
    i, j = put(jnp.array([0, 1, 2, 0]), m, P('x')), put(jnp.array([2, 0, 1, 2]), m, P('x'))
    w = put(ar(4, 3) + 1, m, P('x'))
    g = jit(grad(lambda x: jnp.sum(w * vmap(lambda r, i, j: r.at[i].set(r[j]))(x, i, j))))(x)
    out = typeof(g), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array i = put(array<int32_t>({0, 1, 2, 0}), m, P("x")),
                    j = put(array<int32_t>({2, 0, 1, 2}), m, P("x"));
        const Array w = put(Ar({4, 3}) + 1, m, P("x"));
        const Array g = jit(grad([&](Array x) {
          return sum(w *
                     vmap([](Array r, Array a, Array b) { return r.at(a).set(r[b]); })(x, i, j));
        }))(put(Ar({4, 3}), m, P("x")));
        return std::pair(TypeOf(g), g);
      })
      .For("A23");
  // ---- vmap. ----
  t.Gives("explicit_at/vmap_takes_the_axis_away", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = vmap(lambda r: see(r * 2))(put(ar(8, 2), m, P('x', 'y')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const Array y = vmap([&](Array r) { return see(r * 2); })(put(Ar({8, 2}), m, P("x", "y")));
        return std::tuple(see.types(), TypeOf(y), y);
      })
      .For("A20");
  t.Gives("explicit_at/vmap_of_an_unsharded_dim", R"py(
m = explicit(y=2)
with set_mesh(m):
    y = vmap(lambda r: see(r * 2))(put(ar(8, 2), m, P(None, 'y')))
    out = seen, typeof(y)
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"y", 2}});
        set_mesh context(m);
        const Array y = vmap([&](Array r) { return see(r * 2); })(put(Ar({8, 2}), m, P(None, "y")));
        return std::pair(see.types(), TypeOf(y));
      });
  t.Fails("explicit_at/vmap_of_dims_sharded_otherwise", "should be sharded the same", R"py(
m = explicit(x=2)
with set_mesh(m):
    vmap(lambda a, b: a + b)(put(ar(4, 2), m, P('x')), put(ar(4, 2), m, P()))
)py",
          "Mapped away dimension of inputs passed to vmap")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        vmap([](Array a, Array b) { return a + b; })(put(Ar({4, 2}), m, P("x")),
                                                     put(Ar({4, 2}), m, P()));
      })
      .For("A20");
  t.Fails("explicit_at/vmap_of_an_unmapped_one_sharded_on_the_axis",
          "Unmapped values passed to vmap cannot be sharded", R"py(
m = explicit(x=2)
with set_mesh(m):
    vmap(lambda a, b: a + b, (None, 0))(put(ar(4), m, P('x')), put(ar(4, 4), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        vmap([](Array a, Array b) { return a + b; }, {None, 0})(put(Ar({4}), m, P("x")),
                                                                put(Ar({4, 4}), m, P("x")));
      })
      .For("A20");
  t.Gives("explicit_at/vmap_of_an_unmapped_one", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = vmap(lambda a, b: see(a * b), (None, 0))(put(ar(4), m, P('y')), put(ar(2, 4), m, P('x', 'y')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const Array y = vmap([&](Array a, Array b) { return see(a * b); }, {None, 0})(
            put(Ar({4}), m, P("y")), put(Ar({2, 4}), m, P("x", "y")));
        return std::tuple(see.types(), TypeOf(y), y);
      });
  t.Gives("explicit_at/vmap_of_an_unbatched_result", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = vmap(lambda a: jnp.zeros((4,), jnp.float32), out_axes=-1)(put(ints(8), m, P('x')))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = vmap([](Array) { return zeros({4}); }, 0, -1)(put(Ints({8}), m, P("x")));
        return std::pair(TypeOf(y), y);
      })
      .For("A20");
  t.Gives("explicit_at/vmap_out_axes", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = vmap(lambda a: a, out_axes=1)(put(ar(4, 2), m, P('x', 'y')))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const Array y = vmap([](Array a) { return a; }, 0, 1)(put(Ar({4, 2}), m, P("x", "y")));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_at/vmap_of_a_product", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = vmap(lambda a, w: see(a @ w), (0, None))(put(ar(4, 3, 2), m, P('x')), put(ar(2, 2), m, P(None, 'y')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const Array y = vmap([&](Array a, Array w) { return see(matmul(a, w)); }, {0, None})(
            put(Ar({4, 3, 2}), m, P("x")), put(Ar({2, 2}), m, P(None, "y")));
        return std::tuple(see.types(), TypeOf(y), y);
      });
  t.Fails("explicit_at/spmd_axis_name_of_another_axis",
          "Only one of spmd_axis_name or arrays sharded on", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    vmap(lambda a: a, spmd_axis_name='y')(put(ar(4, 2), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        vmap([](Array a) { return a; }, 0, 0,
             {.spmd_axis_name = {"y"}})(put(Ar({4, 2}), m, P("x")));
      });
  t.Gives("explicit_at/spmd_axis_name_of_the_same_axis", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(vmap(lambda a: a * 2, spmd_axis_name='x')(put(ar(4, 2), m, P('x'))))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const auto f = vmap([](Array a) { return a * 2; }, 0, 0, {.spmd_axis_name = {"x"}});
        return TypeOf(f(put(Ar({4, 2}), m, P("x"))));
      });
  t.Gives("explicit_at/reshard_under_vmap", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = vmap(lambda a: see(reshard(a, P('y'))))(put(ar(4, 2), m, P('x')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const Array y =
            vmap([&](Array a) { return see(reshard(a, P("y"))); })(put(Ar({4, 2}), m, P("x")));
        return std::tuple(see.types(), TypeOf(y), y);
      });
  // ---- Derivatives. ----
  t.Gives("explicit_at/grad_is_sharded_as_the_argument", R"py(
m = explicit(x=2)
with set_mesh(m):
    g = grad(lambda w: jnp.sum(w * w))(put(ar(4), m, P('x')))
    out = typeof(g), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array g = grad([](Array w) { return sum(w * w); })(put(Ar({4}), m, P("x")));
        return std::pair(TypeOf(g), g);
      });
  t.Gives("explicit_at/grad_by_a_replicated_weight", R"py(
m = explicit(X=2)
with set_mesh(m):
    X0 = put(jnp.ones((4, 2), jnp.float32), m, P('X', None))
    g = grad(lambda w: jnp.sum((X0 @ w) ** 2))(put(jnp.ones((2, 1), jnp.float32), m, P()))
    out = typeof(g), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);
        const Array rows = put(ones({4, 2}), m, P("X", None));
        const Array g =
            grad([&](Array w) { return sum(square(matmul(rows, w))); })(put(ones({2, 1}), m, P()));
        return std::pair(TypeOf(g), g);
      })
      .For("A21");
  t.Gives("explicit_at/grad_by_a_reduced_weight", R"py(
m = explicit(X=2)
with set_mesh(m):
    X0 = put(jnp.ones((4, 2), jnp.float32), m, P('X', None))
    def loss(w):
        w = reshard(w, P(reduced={'X'}))
        return jnp.sum((X0 @ see(w)) ** 2)
    g = grad(loss)(put(jnp.ones((2, 1), jnp.float32), m, P()))
    out = seen, typeof(g), g
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const Array rows = put(ones({4, 2}), m, P("X", None));
        const Array g = grad([&](Array w) {
          w = reshard(w, reduced("X"));
          return sum(square(matmul(rows, see(w))));
        })(put(ones({2, 1}), m, P()));
        return std::tuple(see.types(), TypeOf(g), g);
      })
      .For("A21");
  t.Gives("explicit_at/grad_of_what_is_reduced_is_unreduced", R"py(
m = explicit(X=2)
with set_mesh(m):
    X0 = put(jnp.ones((4, 2), jnp.float32), m, P('X', None))
    w = reshard(put(jnp.ones((2, 1), jnp.float32), m, P()), P(reduced={'X'}))
    g = jit(grad(lambda w: jnp.sum((X0 @ w) ** 2)))(w)
    out = typeof(g), reshard(g, P())
)py")
      .Twin([] {
        const Mesh m = Explicit({{"X", 2}});
        set_mesh context(m);

        const Array rows = put(ones({4, 2}), m, P("X", None));
        const Array w = reshard(put(ones({2, 1}), m, P()), reduced("X"));
        const Array g = jit(grad([&](Array w) { return sum(square(matmul(rows, w))); }))(w);
        return std::pair(TypeOf(g), reshard(g, P()));
      });
  t.Gives("explicit_at/grad_by_both_sides_of_a_product", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    f = lambda a, b: jnp.sum(jnp.matmul(a, b, out_sharding=P('x')))
    g = grad(f, (0, 1))(put(ar(4, 2), m, P('x', 'y')), put(ar(2, 2), m, P('y')))
    out = typeof(g[0]), typeof(g[1]), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        set_mesh context(m);
        const PartitionSpec spec = P("x");
        const auto g = grad<0, 1>([&](Array a, Array b) { return sum(matmul(a, b, To(&spec))); })(
            put(Ar({4, 2}), m, P("x", "y")), put(Ar({2, 2}), m, P("y")));
        return std::tuple(TypeOf(std::get<0>(g)), TypeOf(std::get<1>(g)), g);
      });
  t.Gives("explicit_at/grad_of_a_broadcast", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4, 2), m, P('x'))
    g = grad(lambda b: jnp.sum(a * b))(put(ar(2), m, P()))
    out = typeof(g), g
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array a = put(Ar({4, 2}), m, P("x"));
        const Array g = grad([&](Array b) { return sum(a * b); })(put(Ar({2}), m, P()));
        return std::pair(TypeOf(g), g);
      });
  t.Gives("explicit_at/vjp_and_jvp_types", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4), m, P('x'))
    y, back = vjp(lambda v: v * v, a)
    out = typeof(y), typeof(back(y)[0]), typeof(jvp(lambda v: v * v, (a,), (a,))[1])
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array a = put(Ar({4}), m, P("x"));
        const auto f = [](Array v) { return v * v; };
        const auto [y, back] = vjp(f, a);
        return std::tuple(TypeOf(y), TypeOf(std::get<0>(back(y))),
                          TypeOf(jvp(f, std::tuple(a), std::tuple(a)).second));
      });
  t.Fails("explicit_at/cotangent_of_another_sharding",
          "type (e.g. shape/dtype) for argument to VJP function", R"py(
m = explicit(x=2)
with set_mesh(m):
    y, back = vjp(lambda v: v * v, put(ar(4), m, P('x')))
    back(put(ar(4), m, P()))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        vjp([](Array v) { return v * v; }, put(Ar({4}), m, P("x"))).second(put(Ar({4}), m, P()));
      });
  t.Fails("explicit_at/tangent_of_another_sharding",
          "linearized function called on tangent values inconsistent", R"py(
m = explicit(x=2)
with set_mesh(m):
    y, fwd = linearize(lambda v: v * v, put(ar(4), m, P('x')))
    fwd(put(ar(4), m, P()))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        linearize([](Array v) { return v * v; }, put(Ar({4}), m, P("x")))
            .second(put(Ar({4}), m, P()));
      });
  t.Gives("explicit_at/jacobians", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4), m, P('x'))
    out = jax.jacfwd(lambda v: v * v)(a), jax.jacrev(lambda v: v * v)(a)
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array a = put(Ar({4}), m, P("x"));
        const auto f = [](Array v) { return v * v; };
        const Array forward = jacfwd(f)(a);
        return std::pair(forward, jacrev(f)(a));
      })
      .Anywhere();
}

}  // namespace tessera::semantics
