// Rows about shardings in types, part two: the sharding rule of each class of ops. A row is a
// program in Python, whose results in JAX are recorded, and its twin: the same program in C++ with
// the SDK. semantics_test.cc runs the twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "explicit_ops/...". Most rows compare the type of the result, which contains its
// sharding.
void AddExplicitOps(Table& t) {
  // ---- Elementwise. ----
  t.Gives("explicit_ops/unary", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(8, 2), m, P('x', 'y'))
    out = typeof(-a), typeof(a.astype(jnp.int32)), typeof(jnp.sin(a)), typeof(lax.stop_gradient(a))
)py")
      .Twin([] {
        const Array a = put(Ar({8, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y"));
        return std::tuple(TypeOf(-a), TypeOf(a.astype(kS32)), TypeOf(sin(a)),
                          TypeOf(stop_gradient(a)));
      });
  t.Gives("explicit_ops/equal_shardings", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(8, 2), m, P('x', 'y'))
    out = typeof(a + a), a + a
)py")
      .Twin([] {
        const Array a = put(Ar({8, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y"));
        return std::pair(TypeOf(a + a), a + a);
      });
  t.Gives("explicit_ops/with_replicated", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(8, 2), m, P('x', 'y'))
    out = typeof(a * put(ar(1, 2), m, P())), typeof(a + 1), typeof(put(ar(8, 2), m, P()) * a)
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const Array a = put(Ar({8, 2}), m, P("x", "y"));
        return std::tuple(TypeOf(a * put(Ar({1, 2}), m, P())), TypeOf(a + 1),
                          TypeOf(put(Ar({8, 2}), m, P()) * a));
      })
      .For("A15");
  t.Gives("explicit_ops/dims_of_each", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a, b = put(ar(8, 2), m, P('x', None)), put(ar(8, 2), m, P(None, 'y'))
    out = typeof(a * b), a * b
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const Array y = put(Ar({8, 2}), m, P("x", None)) * put(Ar({8, 2}), m, P(None, "y"));
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/other_shardings_of_a_dim", "got incompatible shardings for broadcasting",
          R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    put(ar(8, 2), m, P('x', 'y')) * put(ar(8, 2), m, P('y', 'x'))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        put(Ar({8, 2}), m, P("x", "y")) * put(Ar({8, 2}), m, P("y", "x"));
      })
      .For("A15");
  t.Fails("explicit_ops/outer_product_over_one_axis", "illegally sharded result", R"py(
m = explicit(x=2)
with set_mesh(m):
    put(ar(4, 1), m, P('x')) + put(ar(1, 4), m, P(None, 'x'))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        put(Ar({4, 1}), m, P("x")) + put(Ar({1, 4}), m, P(None, "x"));
      })
      .For("A15");
  t.Gives("explicit_ops/outer_product_over_two_axes", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = put(ar(4, 1), m, P('x')) + put(ar(1, 4), m, P(None, 'y'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const Array y = put(Ar({4, 1}), m, P("x")) + put(Ar({1, 4}), m, P(None, "y"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/numpy_broadcasting_of_ranks", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = put(ar(3, 4), m, P(None, 'x')) * put(ar(4), m, P('x'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        const Array y = put(Ar({3, 4}), m, P(None, "x")) * put(Ar({4}), m, P("x"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/where", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4), m, P('x'))
    y = jnp.where(a > 1, a, 0.)
    out = typeof(a > 1), typeof(y), y
)py")
      .Twin([] {
        const Array a = put(Ar({4}), Explicit({{"x", 2}}), P("x"));
        const Array y = where(a > 1, a, 0.0);
        return std::tuple(TypeOf(a > 1), TypeOf(y), y);
      });
  t.Fails("explicit_ops/select_of_other_shardings", "select cases must have the same shardings",
          R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4), m, P('x'))
    lax.select(a > 1, a, put(ar(4), m, P()))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        const Array a = put(Ar({4}), m, P("x"));
        lax::select(a > 1, a, put(Ar({4}), m, P()));
      });
  t.Gives("explicit_ops/clamp", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(lax.clamp(jnp.float32(1), put(ar(4), m, P('x')), jnp.float32(2)))
)py")
      .Twin([] {
        return TypeOf(lax::clamp(1.0, put(Ar({4}), Explicit({{"x", 2}}), P("x")), 2.0));
      });
  // ---- Shapes. ----
  t.Gives("explicit_ops/broadcast", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jnp.broadcast_to(put(ar(4), m, P('x')), (3, 4))
    out = typeof(y), typeof(put(ar(4), m, P('x'))[None, :, None])
)py")
      .Twin([] {
        const Array a = put(Ar({4}), Explicit({{"x", 2}}), P("x"));
        return std::pair(TypeOf(broadcast_to(a, {3, 4})), TypeOf(a[{None, Slice{}, None}]));
      });
  t.Gives("explicit_ops/transpose", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    out = typeof(jnp.transpose(put(ar(4, 2, 6), m, P('x', None, 'y')), (2, 0, 1)))
)py")
      .Twin([] {
        return TypeOf(transpose(
            put(Ar({4, 2, 6}), Explicit({{"x", 2}, {"y", 2}}), P("x", None, "y")), {2, 0, 1}));
      });
  t.Gives("explicit_ops/squeeze", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(jnp.squeeze(put(ar(1, 4, 1), m, P(None, 'x'))))
)py")
      .Twin([] {
        return TypeOf(squeeze(put(Ar({1, 4, 1}), Explicit({{"x", 2}}), P(None, "x"))));
      });
  t.Gives("explicit_ops/reshape_with_ones", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(4, 2), m, P('x', 'y'))
    out = typeof(a.reshape(4, 1, 2)), typeof(a.reshape(1, 4, 2, 1))
)py")
      .Twin([] {
        const Array a = put(Ar({4, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y"));
        return std::pair(TypeOf(a.reshape({4, 1, 2})), TypeOf(a.reshape({1, 4, 2, 1})));
      });
  t.Gives("explicit_ops/reshape_splits_a_dim", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(4, 6, 8), m, P('x', 'y', None))
    out = typeof(a.reshape(4, 2, 3, 8)), typeof(a.reshape(2, 2, 6, 8)), typeof(a.reshape(4, 6, 2, 4))
)py")
      .Twin([] {
        const Array a = put(Ar({4, 6, 8}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y", None));
        return std::tuple(TypeOf(a.reshape({4, 2, 3, 8})), TypeOf(a.reshape({2, 2, 6, 8})),
                          TypeOf(a.reshape({4, 6, 2, 4})));
      })
      .For("A18");
  t.Fails("explicit_ops/reshape_splits_indivisibly", "This reshape is not supported", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    put(ar(4, 6, 8), m, P('x', 'y', None)).reshape(4, 3, 2, 8)
)py")
      .Twin([] {
        put(Ar({4, 6, 8}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y", None)).reshape({4, 3, 2, 8});
      })
      .For("A18");
  t.Gives("explicit_ops/reshape_merges_dims", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = put(ar(2, 2), m, P('x', 'y')).reshape(4)
    out = typeof(y), typeof(put(ar(4, 3), m, P('x')).reshape(12)), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const Array y = put(Ar({2, 2}), m, P("x", "y")).reshape({4});
        return std::tuple(TypeOf(y), TypeOf(put(Ar({4, 3}), m, P("x")).reshape({12})), y);
      })
      .For("A18");
  t.Fails("explicit_ops/reshape_merges_a_minor_sharded_dim", "This reshape is not supported", R"py(
m = explicit(x=2)
with set_mesh(m):
    put(ar(3, 4), m, P(None, 'x')).reshape(12)
)py")
      .Twin([] {
        put(Ar({3, 4}), Explicit({{"x", 2}}), P(None, "x")).reshape({12});
      });
  t.Fails("explicit_ops/reshape_splits_two_axes", "This reshape is not supported", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    put(ar(12), m, P(('x', 'y'))).reshape(3, 4)
)py")
      .Twin([] {
        put(Ar({12}), Explicit({{"x", 2}, {"y", 2}}), P({"x", "y"})).reshape({3, 4});
      })
      .For("A18");
  t.Gives("explicit_ops/reshape_packs_axes", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    out = typeof(put(ar(12), m, P(('x', 'y'))).reshape(4, 3)), typeof(put(ar(12), m, P(('x', 'y'))).reshape(2, 2, 3))
)py")
      .Twin([] {
        const Array a = put(Ar({12}), Explicit({{"x", 2}, {"y", 2}}), P({"x", "y"}));
        return std::pair(TypeOf(a.reshape({4, 3})), TypeOf(a.reshape({2, 2, 3})));
      });
  t.Gives("explicit_ops/reshape_of_replicated", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(put(ar(4, 3), m, P()).reshape(3, 4))
)py")
      .Twin([] {
        return TypeOf(put(Ar({4, 3}), Explicit({{"x", 2}}), P()).reshape({3, 4}));
      });
  t.Gives("explicit_ops/reshape_with_out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jnp.reshape(put(ar(3, 4), m, P(None, 'x')), (12,), out_sharding=P('x'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array y = reshape(put(Ar({3, 4}), m, P(None, "x")), {12}, P("x"));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/rev", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jnp.flip(put(ar(4), m, P('x')), 0)
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = flip(put(Ar({4}), Explicit({{"x", 2}}), P("x")), 0);
        return std::pair(TypeOf(y), y);
      });
  // ---- Reductions and scans. ----
  t.Gives("explicit_ops/reductions", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(4, 2), m, P('x', 'y'))
    out = typeof(jnp.sum(a, 0)), typeof(jnp.max(a, 1)), typeof(jnp.sum(a)), typeof(jnp.sum(a, 0, keepdims=True)), jnp.sum(a, 0)
)py")
      .Twin([] {
        const Array a = put(Ar({4, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y"));
        return std::tuple(TypeOf(sum(a, 0)), TypeOf(max(a, 1)), TypeOf(sum(a)),
                          TypeOf(sum(a, 0, true)), sum(a, 0));
      });
  t.Gives("explicit_ops/argmax", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = jnp.argmax(put(ar(4, 2), m, P('x', 'y')), 0)
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = argmax(put(Ar({4, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y")), 0);
        return std::pair(TypeOf(y), y);
      })
      .For("A19");
  t.Gives("explicit_ops/mean_and_var", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(4, 2), m, P('x', 'y'))
    out = typeof(jnp.mean(a, 0)), typeof(jnp.var(a, 1))
)py")
      .Twin([] {
        const Array a = put(Ar({4, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y"));
        return std::pair(TypeOf(mean(a, 0)), TypeOf(var(a, 1)));
      });
  t.Gives("explicit_ops/softmax_over_a_sharded_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(jax.nn.softmax(put(ar(4), m, P('x'))))
)py")
      .Twin([] {
        return TypeOf(softmax(put(Ar({4}), Explicit({{"x", 2}}), P("x"))));
      });
  t.Gives("explicit_ops/cumsum_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jnp.cumsum(put(ar(4, 2), m, P('x')), 1)
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = cumsum(put(Ar({4, 2}), Explicit({{"x", 2}}), P("x")), 1);
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/cumsum_over_a_sharded_dim", "unsharded over the axis being reduced", R"py(
m = explicit(x=2)
with set_mesh(m):
    jnp.cumsum(put(ar(4, 2), m, P('x')), 0)
)py")
      .Twin([] {
        cumsum(put(Ar({4, 2}), Explicit({{"x", 2}}), P("x")), 0);
      })
      .For("A19");
  t.Gives("explicit_ops/sort_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jnp.sort(put(-ar(4, 2), m, P('x')), 1)
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = sort(put(-Ar({4, 2}), Explicit({{"x", 2}}), P("x")), 1);
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/sort_over_a_sharded_dim", "unsharded over the sorting dimension", R"py(
m = explicit(x=2)
with set_mesh(m):
    jnp.argsort(put(ar(4), m, P('x')))
)py")
      .Twin([] {
        argsort(put(Ar({4}), Explicit({{"x", 2}}), P("x")));
      })
      .For("A19");
  t.Gives("explicit_ops/top_k_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    v, i = lax.top_k(put(ar(4, 3), m, P('x')), 2)
    out = typeof(v), typeof(i), v, i
)py")
      .Twin([] {
        const auto [v, i] = lax::top_k(put(Ar({4, 3}), Explicit({{"x", 2}}), P("x")), 2);
        return std::tuple(TypeOf(v), TypeOf(i), v, i);
      });
  t.Fails("explicit_ops/top_k_over_a_sharded_dim", "sharded", R"py(
m = explicit(x=2)
with set_mesh(m):
    lax.top_k(put(ar(4), m, P('x')), 2)
)py")
      .Twin([] {
        lax::top_k(put(Ar({4}), Explicit({{"x", 2}}), P("x")), 2);
      });
  // ---- Products. ----
  t.Gives("explicit_ops/dot_of_free_dims", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = put(ar(8, 2), m, P('x', None)) @ put(ar(2, 8), m, P(None, 'y'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const Array y = matmul(put(Ar({8, 2}), m, P("x", None)), put(Ar({2, 8}), m, P(None, "y")));
        return std::pair(TypeOf(y), y);
      })
      .For("A16");
  t.Gives("explicit_ops/dot_contracts_one_side_sharded", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = put(ar(8, 2), m, P('x', 'y')) @ put(ar(2, 8), m, P())
    out = typeof(y), y, typeof(put(ar(8, 2), m, P('x')) @ put(ar(2, 8), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const Array y = matmul(put(Ar({8, 2}), m, P("x", "y")), put(Ar({2, 8}), m, P()));
        return std::tuple(TypeOf(y), y,
                          TypeOf(matmul(put(Ar({8, 2}), m, P("x")), put(Ar({2, 8}), m, P("x")))));
      })
      .For("A16");
  t.Fails("explicit_ops/dot_contracts_both_sharded", "Contracting dimensions are sharded", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    put(ar(8, 2), m, P('x', 'y')) @ put(ar(2, 8), m, P('y', None))
)py",
          "out_sharding")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        matmul(put(Ar({8, 2}), m, P("x", "y")), put(Ar({2, 8}), m, P("y", None)));
      })
      .For("A16");
  t.Fails("explicit_ops/dot_of_one_axis_twice", "illegally sharded result", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    put(ar(8, 2), m, P('x', None)) @ put(ar(2, 8), m, P(None, 'x'))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        matmul(put(Ar({8, 2}), m, P("x", None)), put(Ar({2, 8}), m, P(None, "x")));
      })
      .For("A16");
  t.Gives("explicit_ops/dot_with_out_sharding", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a, b = put(ar(8, 2), m, P('x', 'y')), put(ar(2, 8), m, P('y', None))
    y = jnp.matmul(a, b, out_sharding=P('x', None))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const PartitionSpec spec = P("x", None);
        const Array y =
            matmul(put(Ar({8, 2}), m, P("x", "y")), put(Ar({2, 8}), m, P("y", None)), To(&spec));
        return std::pair(TypeOf(y), y);
      })
      .For("A16");
  t.Gives("explicit_ops/dot_with_out_sharding_that_scatters", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a, b = put(ar(8, 2), m, P('x', 'y')), put(ar(2, 8), m, P('y', None))
    y = jnp.matmul(a, b, out_sharding=P('x', 'y'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const PartitionSpec spec = P("x", "y");
        const Array y =
            matmul(put(Ar({8, 2}), m, P("x", "y")), put(Ar({2, 8}), m, P("y", None)), To(&spec));
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/dot_batch_dims", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    y = put(ar(2, 3, 4), m, P('x')) @ put(ar(2, 4, 2), m, P('x', None, 'y'))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        const Array y =
            matmul(put(Ar({2, 3, 4}), m, P("x")), put(Ar({2, 4, 2}), m, P("x", None, "y")));
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/dot_of_other_batch_shardings", "batch dimensions",
          R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    lax.dot_general(put(ar(2, 3, 4), m, P('x')), put(ar(2, 4, 2), m, P('y')), (((2,), (1,)), ((0,), (0,))))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        matmul(put(Ar({2, 3, 4}), m, P("x")), put(Ar({2, 4, 2}), m, P("y")));
      });
  t.Gives("explicit_ops/einsum_with_out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jnp.einsum('ij,jk->ik', put(ar(2, 4), m, P(None, 'x')), put(ar(4, 2), m, P('x')), out_sharding=P())
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array a = put(Ar({2, 4}), m, P(None, "x")), b = put(Ar({4, 2}), m, P("x"));
        const Array y = einsum("ij,jk->ik", {a, b}, {}, P());
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/conv_of_a_sharded_batch", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = lax.conv_general_dilated(put(ar(2, 1, 4), m, P('x')), put(ar(1, 1, 2), m, P()), (1,), 'VALID')
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        const Array y = lax::conv_general_dilated(put(Ar({2, 1, 4}), m, P("x")),
                                                  put(Ar({1, 1, 2}), m, P()), {1}, "VALID");
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/conv_of_sharded_features", "out_sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    lax.conv_general_dilated(put(ar(2, 2, 4), m, P(None, 'x')), put(ar(1, 2, 2), m, P()), (1,), 'VALID')
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        lax::conv_general_dilated(put(Ar({2, 2, 4}), m, P(None, "x")), put(Ar({1, 2, 2}), m, P()),
                                  {1}, "VALID");
      });
  // ---- Pieces. ----
  t.Gives("explicit_ops/concatenate", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    a = put(ar(4, 2), m, P('x', 'y'))
    y = jnp.concatenate([a, a], 1)
    out = typeof(y), y
)py")
      .Twin([] {
        const Array a = put(Ar({4, 2}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y"));
        const Array y = concatenate({a, a}, 1);
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/concatenate_along_a_sharded_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4), m, P('x'))
    y = jnp.concatenate([a, a])
    out = typeof(y), y
)py")
      .Twin([] {
        const Array a = put(Ar({4}), Explicit({{"x", 2}}), P("x"));
        const Array y = concatenate({a, a});
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/concatenate_of_other_shardings", "same sharding", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    jnp.concatenate([put(ar(4, 2), m, P('x', 'y')), put(ar(4, 2), m, P('x'))])
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}, {"y", 2}});
        concatenate({put(Ar({4, 2}), m, P("x", "y")), put(Ar({4, 2}), m, P("x"))});
      })
      .For("A19");
  t.Gives("explicit_ops/stack", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4), m, P('x'))
    out = typeof(jnp.stack([a, a])), typeof(jnp.stack([a, a], 1))
)py")
      .Twin([] {
        const Array a = put(Ar({4}), Explicit({{"x", 2}}), P("x"));
        return std::pair(TypeOf(stack({a, a})), TypeOf(stack({a, a}, 1)));
      });
  t.Gives("explicit_ops/slice_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = put(ar(4, 4), m, P('x'))[:, 1:3]
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = put(Ar({4, 4}), Explicit({{"x", 2}}), P("x"))[{Slice{}, Slice{1, 3}}];
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/slice_of_a_sharded_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = lax.slice(put(ar(8), m, P('x')), (0,), (4,))
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = lax::slice(put(Ar({8}), Explicit({{"x", 2}}), P("x")), {0}, {4});
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/index_by_a_slice_of_a_sharded_dim", "Use `.at[...].get(out_sharding=)`",
          R"py(
m = explicit(x=2)
with set_mesh(m):
    put(ar(8), m, P('x'))[:4]
)py")
      .Twin([] {
        put(Ar({8}), Explicit({{"x", 2}}), P("x"))[Index(Slice{std::nullopt, 4})];
      })
      .Note("0.10.2 gathers here");
  t.Fails("explicit_ops/slice_indivisibly", "on sharded dims where out dim", R"py(
m = explicit(x=2, y=2)
with set_mesh(m):
    lax.slice(put(ar(4, 4), m, P('x', 'y')), (0, 0), (4, 3))
)py")
      .Twin([] {
        lax::slice(put(Ar({4, 4}), Explicit({{"x", 2}, {"y", 2}}), P("x", "y")), {0, 0}, {4, 3});
      })
      .For("A19");
  t.Gives("explicit_ops/pad", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = jnp.pad(put(ar(8), m, P('x')), (2, 2))
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y = lax::pad(put(Ar({8}), Explicit({{"x", 2}}), P("x")), 0.0, {2}, {2});
        return std::pair(TypeOf(y), y);
      })
      .For("A19");
  t.Fails("explicit_ops/pad_indivisibly", "padding on sharded dims", R"py(
m = explicit(x=2)
with set_mesh(m):
    lax.pad(put(ar(8), m, P('x')), jnp.float32(0), [(2, 3, 0)])
)py")
      .Twin([] {
        lax::pad(put(Ar({8}), Explicit({{"x", 2}}), P("x")), 0.0, {2}, {3});
      })
      .For("A19");
  t.Gives("explicit_ops/split", R"py(
m = explicit(x=2)
with set_mesh(m):
    a, b = jnp.split(put(ar(4, 4), m, P('x')), 2, 1)
    out = typeof(a), typeof(b), b
)py")
      .Twin([] {
        const auto parts = split(put(Ar({4, 4}), Explicit({{"x", 2}}), P("x")), 2, 1);
        return std::tuple(TypeOf(parts[0]), TypeOf(parts[1]), parts[1]);
      });
  t.Gives("explicit_ops/dynamic_slice_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    y = lax.dynamic_slice_in_dim(put(ar(4, 4), m, P('x')), jnp.int32(1), 2, 1)
    out = typeof(y), y
)py")
      .Twin([] {
        const Array y =
            lax::dynamic_slice(put(Ar({4, 4}), Explicit({{"x", 2}}), P("x")), {0, 1}, {4, 2});
        return std::pair(TypeOf(y), y);
      });
  t.Gives("explicit_ops/dynamic_update_slice", R"py(
m = explicit(x=2)
with set_mesh(m):
    a = put(ar(4, 4), m, P('x'))
    y = lax.dynamic_update_slice(a, put(ar(4, 2), m, P('x')), (0, 1))
    out = typeof(y), y
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        const Array y = lax::dynamic_update_slice(put(Ar({4, 4}), m, P("x")),
                                                  put(Ar({4, 2}), m, P("x")), {0, 1});
        return std::pair(TypeOf(y), y);
      });
  t.Fails("explicit_ops/dynamic_update_slice_of_another_sharding", "sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    lax.dynamic_update_slice(put(ar(4, 4), m, P('x')), put(ar(4, 2), m, P()), (0, 1))
)py")
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        lax::dynamic_update_slice(put(Ar({4, 4}), m, P("x")), put(Ar({4, 2}), m, P()), {0, 1});
      });
  t.Gives("explicit_ops/reduce_window", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(lax.reduce_window(put(ar(4, 4), m, P('x')), 0., lax.add, (1, 2), (1, 2), 'VALID'))
)py")
      .Twin([] {
        return TypeOf(lax::reduce_window(
            put(Ar({4, 4}), Explicit({{"x", 2}}), P("x")), 0.0,
            [](const Array& a, const Array& b) { return a + b; }, {1, 2}, {1, 2}, "VALID"));
      });
  t.Gives("explicit_ops/roll_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(jnp.roll(put(ar(4, 4), m, P('x')), 1, 1))
)py")
      .Twin([] {
        return TypeOf(roll(put(Ar({4, 4}), Explicit({{"x", 2}}), P("x")), 1, 1));
      });
  t.Gives("explicit_ops/tile_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(jnp.tile(put(ar(4, 2), m, P('x')), (1, 3)))
)py")
      .Twin([] {
        return TypeOf(tile(put(Ar({4, 2}), Explicit({{"x", 2}}), P("x")), {1, 3}));
      });
  t.Fails("explicit_ops/repeat_over_a_sharded_dim", "sharding", R"py(
m = explicit(x=2)
with set_mesh(m):
    jnp.repeat(put(ar(4), m, P('x')), 2)
)py")
      .Twin([] {
        repeat(put(Ar({4}), Explicit({{"x", 2}}), P("x")), 2);
      });
  // ---- Linear algebra. ----
  t.Gives("explicit_ops/pivots_of_a_sharded_batch", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(lax.linalg.lu(put(jnp.ones((2, 3, 3), jnp.float32), m, P('x')))[1])
)py")
      .Twin([] {
        return TypeOf(lax::linalg::lu(put(ones({2, 3, 3}), Explicit({{"x", 2}}), P("x"))).pivots);
      });
  t.Fails("explicit_ops/cholesky_of_a_sharded_matrix", "shard", R"py(
m = explicit(x=2)
with set_mesh(m):
    jnp.linalg.cholesky(put(jnp.eye(2, dtype=jnp.float32), m, P('x')))
)py")
      .Twin([] {
        linalg::cholesky(put(eye(2), Explicit({{"x", 2}}), P("x")));
      });
  t.Gives("explicit_ops/fft_of_another_dim", R"py(
m = explicit(x=2)
with set_mesh(m):
    out = typeof(jnp.fft.fft(put(ar(4, 4), m, P('x'))))
)py")
      .Twin([] {
        return TypeOf(fft::fft(put(Ar({4, 4}), Explicit({{"x", 2}}), P("x"))));
      });
}

}  // namespace tessera::semantics
