// Rows about derivatives of shard_map and inside its bodies, vmap of shard_map, and collectives
// over axes of vmap. A row is a program in Python, whose results in JAX are recorded, and its twin:
// the same program in C++ with the SDK. semantics_test.cc runs the twins and compares their results
// with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "shmap_ad/...". Some rows come in pairs, with and without check_vma, because
// derivatives follow other rules in an unchecked body.
void AddShardMapAutodiff(Table& t) {
  // ---- Gradients of shard_map. ----
  t.Gives("shmap_ad/grad_of_a_replicated_loss", R"py(
g = shard_map(lambda b: lax.psum(jnp.sum(b ** 2), 'i'), mesh=auto(i=4), in_specs=P('i'), out_specs=P())
out = grad(g)(ar(4))
)py")
      .Twin([] {
        return grad(shard_map([](Array b) { return lax::psum(sum(square(b)), "i"); },
                              Auto({{"i", 4}}), {P("i")}, P()))(Ar({4}));
      })
      .For("A07");
  t.Gives("shmap_ad/grad_of_a_replicated_loss_unchecked", R"py(
g = shard_map(lambda b: lax.psum(jnp.sum(b ** 2), 'i'), mesh=auto(i=4), in_specs=P('i'), out_specs=P(),
              check_vma=False)
out = grad(g)(ar(4))
)py")
      .Twin([] {
        return grad(shard_map([](Array b) { return lax::psum(sum(square(b)), "i"); },
                              Auto({{"i", 4}}), {P("i")}, P(), kUnchecked))(Ar({4}));
      })
      .For("A07");
  t.Gives("shmap_ad/grad_by_a_replicated_argument", R"py(
f = shard_map(lambda x, w: x * w, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))
out = grad(lambda w: jnp.sum(f(ar(4), w)))(jnp.float32(2))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x, Array w) { return x * w; }, Auto({{"i", 2}}),
                                 {P("i"), P()}, P("i"));
        return grad([&](Array w) { return sum(f(Ar({4}), w)); })(scalar(2.0f));
      });
  t.Gives("shmap_ad/grad_by_a_replicated_argument_unchecked", R"py(
f = shard_map(lambda x, w: x * w, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'), check_vma=False)
out = grad(lambda w: jnp.sum(f(ar(4), w)))(jnp.float32(2))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x, Array w) { return x * w; }, Auto({{"i", 2}}),
                                 {P("i"), P()}, P("i"), kUnchecked);
        return grad([&](Array w) { return sum(f(Ar({4}), w)); })(scalar(2.0f));
      });
  t.Gives("shmap_ad/grad_by_a_closure", R"py(
m = auto(i=2)
def loss(w):
    return jnp.sum(shard_map(lambda x: x * w, mesh=m, in_specs=P('i'), out_specs=P('i'))(ar(4)))
out = grad(loss)(jnp.float32(2))
)py")
      .Twin([] {
        const Mesh m = Auto({{"i", 2}});
        return grad([&](Array w) {
          return sum(shard_map([&](Array x) { return x * w; }, m, {P("i")}, P("i"))(Ar({4})));
        })(scalar(2.0f));
      });
  t.Gives("shmap_ad/grad_of_a_repeated_result", R"py(
f = shard_map(lambda x: x * x, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))
out = grad(lambda x: jnp.sum(f(x)))(ar(3))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x) { return x * x; }, Auto({{"i", 2}}), {P()}, P("i"));
        return grad([&](Array x) { return sum(f(x)); })(Ar({3}));
      });
  t.Gives("shmap_ad/grad_of_pmean", R"py(
f = shard_map(lambda x: lax.pmean(jnp.sum(x * x), 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = grad(f)(ar(4))
)py")
      .Twin([] {
        return grad(shard_map([](Array x) { return lax::pmean(sum(x * x), "i"); }, Auto({{"i", 2}}),
                              {P("i")}, P()))(Ar({4}));
      });
  t.Gives("shmap_ad/grad_of_all_gather", R"py(
f = shard_map(lambda x: lax.all_gather(x, 'i', tiled=True) * (1. + lax.axis_index('i')), mesh=auto(i=2),
              in_specs=P('i'), out_specs=P('i'))
out = grad(lambda x: jnp.sum(f(x) * ar(8)))(ar(4))
)py")
      .Twin([] {
        const auto f = shard_map(
            [](Array x) {
              return lax::all_gather(x, "i", 0, true) * (1.0 + lax::axis_index("i").astype(kF32));
            },
            Auto({{"i", 2}}), {P("i")}, P("i"));
        return grad([&](Array x) { return sum(f(x) * Ar({8})); })(Ar({4}));
      });
  t.Gives("shmap_ad/grad_of_all_gather_to_invarying", R"py(
f = shard_map(lambda x: lax.all_gather(x, 'i', tiled=True, to='invarying'), mesh=auto(i=2), in_specs=P('i'),
              out_specs=P())
out = grad(lambda x: jnp.sum(f(x) * ar(4)))(ar(4))
)py")
      .Twin([] {
        const auto f =
            shard_map([](Array x) { return lax::all_gather(x, "i", 0, true, "invarying"); },
                      Auto({{"i", 2}}), {P("i")}, P());
        return grad([&](Array x) { return sum(f(x) * Ar({4})); })(Ar({4}));
      });
  t.Gives("shmap_ad/grad_of_psum_scatter", R"py(
f = shard_map(lambda x: lax.psum_scatter(x, 'i', tiled=True), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))
out = grad(lambda x: jnp.sum(f(x) * ar(2)))(ar(4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x) { return lax::psum_scatter(x, "i", 0, true); },
                                 Auto({{"i", 2}}), {P("i")}, P("i"));
        return grad([&](Array x) { return sum(f(x) * Ar({2})); })(Ar({4}));
      });
  t.Gives("shmap_ad/grad_of_ppermute", R"py(
f = shard_map(lambda x: lax.ppermute(x, 'i', [(k, (k + 1) % 4) for k in range(4)]), mesh=auto(i=4), in_specs=P('i'),
              out_specs=P('i'))
out = grad(lambda x: jnp.sum(f(x) * jnp.array([1., 2., 3., 4.])))(ar(4))
)py")
      .Twin([] {
        const auto f = shard_map(
            [](Array x) {
              return lax::ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"));
        return grad([&](Array x) { return sum(f(x) * array<float>({1, 2, 3, 4})); })(Ar({4}));
      })
      .For("A12");
  t.Gives("shmap_ad/grad_of_a_partial_ppermute", R"py(
f = shard_map(lambda x: lax.ppermute(x, 'i', [(0, 2)]), mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))
out = grad(lambda x: jnp.sum(f(x) * jnp.array([1., 2., 3., 4.])))(ar(4))
)py")
      .Twin([] {
        const auto f = shard_map(
            [](Array x) {
              return lax::ppermute(x, "i", {{0, 2}});
            },
            Auto({{"i", 4}}), {P("i")}, P("i"));
        return grad([&](Array x) { return sum(f(x) * array<float>({1, 2, 3, 4})); })(Ar({4}));
      });
  t.Gives("shmap_ad/grad_of_all_to_all", R"py(
f = shard_map(lambda x: lax.all_to_all(x, 'i', 1, 0, tiled=True), mesh=auto(i=2), in_specs=P('i'),
              out_specs=P(None, 'i'))
out = grad(lambda x: jnp.sum(f(x) * ar(4, 2)))(ar(4, 2))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x) { return lax::all_to_all(x, "i", 1, 0, true); },
                                 Auto({{"i", 2}}), {P("i")}, P(None, "i"));
        return grad([&](Array x) { return sum(f(x) * Ar({4, 2})); })(Ar({4, 2}));
      });
  t.Gives("shmap_ad/grad_of_psum_over_one_of_two", R"py(
f = shard_map(lambda x: lax.psum(x * x, 'j'), mesh=auto(i=2, j=2), in_specs=P('i', 'j'), out_specs=P('i'))
out = grad(lambda x: jnp.sum(f(x) * ar(2, 1)))(ar(2, 2))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x) { return lax::psum(x * x, "j"); },
                                 Auto({{"i", 2}, {"j", 2}}), {P("i", "j")}, P("i"));
        return grad([&](Array x) { return sum(f(x) * Ar({2, 1})); })(Ar({2, 2}));
      });
  t.Gives("shmap_ad/grad_of_axis_index_is_zero", R"py(
f = shard_map(lambda x: x * lax.axis_index('i').astype(jnp.float32), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))
out = grad(lambda x: jnp.sum(f(x)))(ar(4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x) { return x * lax::axis_index("i").astype(kF32); },
                                 Auto({{"i", 2}}), {P("i")}, P("i"));
        return grad([&](Array x) { return sum(f(x)); })(Ar({4}));
      });
  t.Gives("shmap_ad/value_and_grad_with_aux", R"py(
def loss(x):
    y = shard_map(lambda b: b * b, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(x)
    return jnp.sum(y), y
out = jax.value_and_grad(loss, has_aux=True)(ar(4))
)py")
      .Twin([] {
        return value_and_grad([](Array x) {
          const Array y =
              shard_map([](Array b) { return b * b; }, Auto({{"i", 2}}), {P("i")}, P("i"))(x);
          return std::pair(sum(y), y);
        })(Ar({4}));
      });
  t.Gives("shmap_ad/grad_with_residuals", R"py(
def body(x, w):
    h = x @ w
    return lax.psum(jnp.sum(h * h * h), 'i')
f = shard_map(body, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P())
out = grad(f, argnums=(0, 1))(ar(4, 2), ar(2, 2))
)py")
      .Twin([] {
        const auto body = [](Array x, Array w) {
          const Array h = matmul(x, w);
          return lax::psum(sum(h * h * h), "i");
        };
        return grad<0, 1>(shard_map(body, Auto({{"i", 2}}), {P("i"), P()}, P()))(Ar({4, 2}),
                                                                                 Ar({2, 2}));
      });
  t.Gives("shmap_ad/grad_of_grad", R"py(
f = shard_map(lambda b: lax.psum(jnp.sum(b ** 3), 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = grad(lambda x: jnp.sum(grad(f)(x)))(ar(4))
)py")
      .Twin([] {
        const auto f =
            shard_map([](Array b) { return lax::psum(sum(lax::integer_pow(b, 3)), "i"); },
                      Auto({{"i", 2}}), {P("i")}, P());
        return grad([&](Array x) { return sum(grad(f)(x)); })(Ar({4}));
      });
  t.Gives("shmap_ad/grad_of_a_scan_in_the_body", R"py(
def body(x):
    zero = lax.pcast(jnp.float32(1), 'i', to='varying')
    return lax.psum(lax.scan(lambda c, v: (c * v, None), zero, x)[0], 'i')
out = grad(shard_map(body, mesh=auto(i=2), in_specs=P('i'), out_specs=P()))(ar(4) + 1)
)py")
      .Twin([] {
        const auto body = [](Array x) {
          const Array one = lax::pcast(ones({}), "i", "varying");
          return lax::psum(
              scan([](Array c, Array v) { return std::pair(c * v, None); }, one, x).first, "i");
        };
        return grad(shard_map(body, Auto({{"i", 2}}), {P("i")}, P()))(Ar({4}) + 1);
      });
  t.Gives("shmap_ad/remat_of_shard_map", R"py(
f = jax.checkpoint(shard_map(lambda b: lax.psum(jnp.sum(jnp.square(b) * b), 'i'), mesh=auto(i=2), in_specs=P('i'),
                             out_specs=P()))
out = grad(f)(ar(4))
)py")
      .Twin([] {
        return grad(checkpoint(shard_map([](Array b) { return lax::psum(sum(square(b) * b), "i"); },
                                         Auto({{"i", 2}}), {P("i")}, P())))(Ar({4}));
      });
  t.Gives("shmap_ad/remat_in_the_body", R"py(
g = jax.checkpoint(lambda b: b * b * b)
f = shard_map(lambda b: lax.psum(jnp.sum(g(b)), 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = grad(f)(ar(4))
)py")
      .Twin([] {
        const auto g = checkpoint([](Array b) { return b * b * b; });
        return grad(shard_map([&](Array b) { return lax::psum(sum(g(b)), "i"); }, Auto({{"i", 2}}),
                              {P("i")}, P()))(Ar({4}));
      });
  // ---- Gradients inside the body of a shard_map. ----
  t.Gives("shmap_ad/grad_inside_of_psum", R"py(
def f(p, x):
    return grad(lambda p: lax.psum(jnp.sum(p * x), 'i'))(p)
out = shard_map(f, mesh=auto(i=4), in_specs=(P('i'), P('i')), out_specs=P('i'))(jnp.ones(4), ar(4) + 1)
)py")
      .Twin([] {
        const auto f = [](Array p, Array x) {
          return grad([&](Array q) { return lax::psum(sum(q * x), "i"); })(p);
        };
        return shard_map(f, Auto({{"i", 4}}), {P("i"), P("i")}, P("i"))(ones({4}), Ar({4}) + 1);
      })
      .For("A06");
  t.Gives("shmap_ad/grad_inside_of_psum_unchecked", R"py(
def f(p, x):
    return grad(lambda p: lax.psum(jnp.sum(p * x), 'i'))(p)
out = shard_map(f, mesh=auto(i=4), in_specs=(P('i'), P('i')), out_specs=P('i'), check_vma=False)(
    jnp.ones(4), ar(4) + 1)
)py")
      .Twin([] {
        const auto f = [](Array p, Array x) {
          return grad([&](Array q) { return lax::psum(sum(q * x), "i"); })(p);
        };
        return shard_map(f, Auto({{"i", 4}}), {P("i"), P("i")}, P("i"), kUnchecked)(ones({4}),
                                                                                    Ar({4}) + 1);
      })
      .For("A06");
  t.Gives("shmap_ad/grad_inside_by_invarying_is_summed", R"py(
def f(w, x):
    return see(grad(lambda w: jnp.sum(x * w))(w))
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P())(jnp.float32(3), ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array w, Array x) {
          return see(grad([&](Array v) { return sum(x * v); })(w));
        };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P())(scalar(3.0f), Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/grad_inside_by_cast_is_not_summed", R"py(
def f(w, x):
    w = lax.pcast(w, 'i', to='varying')
    return see(grad(lambda w: jnp.sum(x * w))(w)).reshape(1)
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P('i'))(jnp.float32(3), ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array w, Array x) {
          w = lax::pcast(w, "i", "varying");
          return see(grad([&](Array v) { return sum(x * v); })(w)).reshape({1});
        };
        const Array y =
            shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P("i"))(scalar(3.0f), Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/grad_inside_unchecked_is_not_summed", R"py(
def f(w, x):
    return grad(lambda w: jnp.sum(x * w))(w).reshape(1)
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P('i'), check_vma=False)(jnp.float32(3), ar(4))
)py")
      .Twin([] {
        const auto f = [](Array w, Array x) {
          return grad([&](Array v) { return sum(x * v); })(w).reshape({1});
        };
        return shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P("i"), kUnchecked)(scalar(3.0f),
                                                                                 Ar({4}));
      });
  t.Gives("shmap_ad/grad_inside_of_vmap", R"py(
params = jnp.array([1., 2.])
samples = jnp.array([[0., 1.], [1., 1.], [1., 0.], [0., 0.]])
f = lambda b: vmap(grad(lambda q, x: jnp.dot(q, x)), (None, 0))(params, b)
out = shard_map(f, mesh=auto(d=2), in_specs=P('d'), out_specs=P('d'))(samples)
)py")
      .Twin([] {
        const Array params = array<float>({1, 2});
        const auto f = [&](Array b) {
          return vmap(grad([](Array q, Array x) { return dot(q, x); }), {None, 0})(params, b);
        };
        return shard_map(f, Auto({{"d", 2}}), {P("d")},
                         P("d"))(array<float>({0, 1, 1, 1, 1, 0, 0, 0}, {4, 2}));
      })
      .For("A05");
  t.Gives("shmap_ad/grad_inside_of_vmap_once_cast", R"py(
params = jnp.array([1., 2.])
samples = jnp.array([[0., 1.], [1., 1.], [1., 0.], [0., 0.]])
def f(b):
    q = lax.pcast(params, 'd', to='varying')
    return vmap(grad(lambda q, x: jnp.dot(q, x)), (None, 0))(q, b)
out = shard_map(f, mesh=auto(d=2), in_specs=P('d'), out_specs=P('d'))(samples)
)py")
      .Twin([] {
        const Array params = array<float>({1, 2});
        const auto f = [&](Array b) {
          const Array q = lax::pcast(params, "d", "varying");
          return vmap(grad([](Array v, Array x) { return dot(v, x); }), {None, 0})(q, b);
        };
        return shard_map(f, Auto({{"d", 2}}), {P("d")},
                         P("d"))(array<float>({0, 1, 1, 1, 1, 0, 0, 0}, {4, 2}));
      })
      .For("A05");
  t.Fails("shmap_ad/grad_inside_of_a_varying_vector", "scalar", R"py(
shard_map(lambda x: grad(lambda v: v * 2)(x), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .Twin([] {
        shard_map([](Array x) { return grad([](Array v) { return v * 2; })(x); }, Auto({{"i", 2}}),
                  {P("i")}, P("i"))(Ar({4}));
      });
  t.Gives("shmap_ad/grad_inside_of_a_mean_over_all", R"py(
def f(w, x):
    return grad(lambda w: lax.pmean(jnp.sum(x * w), 'i'))(w)
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P())(jnp.float32(3), ar(4))
)py")
      .Twin([] {
        const auto f = [](Array w, Array x) {
          return grad([&](Array v) { return lax::pmean(sum(x * v), "i"); })(w);
        };
        return shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P())(scalar(3.0f), Ar({4}));
      });
  // ---- jvp, vjp, linearize and the transpose of the linear function. ----
  t.Gives("shmap_ad/jvp_through", R"py(
f = shard_map(lambda b: lax.psum(b * b, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = jvp(f, (ar(4),), (jnp.ones(4),))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return lax::psum(b * b, "i"); }, Auto({{"i", 2}}),
                                 {P("i")}, P());
        return jvp(f, std::tuple(Ar({4})), std::tuple(ones({4})));
      });
  t.Gives("shmap_ad/jvp_inside_does_not_check_what_varies", R"py(
def f(p, t):
    return see(jvp(lambda v: v * v, (p,), (t,))[1])
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P('i'))(ar(2), ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array p, Array t) {
          return see(jvp([](Array v) { return v * v; }, std::tuple(p), std::tuple(t)).second);
        };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P("i"))(Ar({2}), Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/vjp_through", R"py(
f = shard_map(lambda b: b * b, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))
y, back = vjp(f, ar(4))
out = y, back(jnp.ones(4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return b * b; }, Auto({{"i", 2}}), {P("i")}, P("i"));
        const auto [y, back] = vjp(f, Ar({4}));
        return std::pair(y, back(ones({4})));
      });
  t.Gives("shmap_ad/linearize_and_vjp_of_a_linear_one", R"py(
f = shard_map(lambda b: 2 * b, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))
out = linearize(f, ar(4))[1](ar(4)), vjp(f, ar(4))[1](ar(4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return 2 * b; }, Auto({{"i", 2}}), {P("i")}, P("i"));
        return std::pair(linearize(f, Ar({4})).second(Ar({4})), vjp(f, Ar({4})).second(Ar({4})));
      });
  t.Fails("shmap_ad/vjp_inside_of_another_cotangent",
          "type (e.g. shape/dtype) for argument to VJP function", R"py(
def f(p, t):
    _, back = vjp(lambda v: v * v, p)
    return back(t)[0]
shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P('i'))(ar(2), ar(4))
)py")
      .Twin([] {
        const auto f = [](Array p, Array t) {
          return std::get<0>(vjp([](Array v) { return v * v; }, p).second(t));
        };
        shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P("i"))(Ar({2}), Ar({4}));
      });
  t.Fails("shmap_ad/linearize_inside_of_another_tangent",
          "linearized function called on tangent values inconsistent", R"py(
def f(p, t):
    _, fwd = linearize(lambda v: v * v, p)
    return fwd(t)
shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P('i'))(ar(2), ar(4))
)py",
          "pcast(..., ('i',), to='varying')")
      .Twin([] {
        const auto f = [](Array p, Array t) {
          return linearize([](Array v) { return v * v; }, p).second(t);
        };
        shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P("i"))(Ar({2}), Ar({4}));
      });
  t.Gives("shmap_ad/linearize_inside_once_cast", R"py(
def f(p, t):
    y, fwd = linearize(lambda v: v * v, lax.pcast(p, 'i', to='varying'))
    return fwd(t)
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P('i'))(ar(2), ar(4))
)py")
      .Twin([] {
        const auto f = [](Array p, Array t) {
          return linearize([](Array v) { return v * v; }, lax::pcast(p, "i", "varying")).second(t);
        };
        return shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P("i"))(Ar({2}), Ar({4}));
      });
  t.Gives("shmap_ad/linearize_and_transpose_inside", R"py(
def m(p, t):
    p = lax.pcast(p, 'x', to='varying')
    y, fwd = linearize(lambda v: jnp.mean(v ** 2), p)
    return linear_transpose(fwd, p)(fwd(t))
p = jnp.array([3.], jnp.float32)
out = shard_map(lambda t: m(p, t), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(jnp.array([1., 2.], jnp.float32))
)py")
      .Twin([] {
        const Array p = array<float>({3});
        const auto f = [&](Array t) {
          const Array q = lax::pcast(p, "x", "varying");
          const auto fwd = linearize([](Array v) { return mean(square(v)); }, q).second;
          return linear_transpose(fwd, q)(fwd(t));
        };
        return shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(array<float>({1, 2}));
      })
      .For("A02");
  t.Fails("shmap_ad/linearize_and_transpose_inside_of_another_tangent",
          "linearized function called on tangent values inconsistent", R"py(
def m(p, t):
    y, fwd = linearize(lambda v: jnp.mean(v ** 2), p)
    return linear_transpose(fwd, p)(fwd(t))
p = jnp.array([1.], jnp.float32)
shard_map(lambda t: m(p, t), mesh=auto(x=2), in_specs=P('x'), out_specs=P('x'))(jnp.ones(2, jnp.float32))
)py",
          "to the primal value passed")
      .Twin([] {
        const Array p = array<float>({1});
        const auto f = [&](Array t) {
          const auto fwd = linearize([](Array v) { return mean(square(v)); }, p).second;
          return linear_transpose(fwd, p)(fwd(t));
        };
        shard_map(f, Auto({{"x", 2}}), {P("x")}, P("x"))(ones({2}));
      })
      .For("A01");
  t.Gives("shmap_ad/linearize_through", R"py(
f = shard_map(lambda b: b * b, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))
y, fwd = linearize(f, ar(4))
out = y, fwd(jnp.ones(4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return b * b; }, Auto({{"i", 2}}), {P("i")}, P("i"));
        const auto [y, fwd] = linearize(f, Ar({4}));
        return std::pair(y, fwd(ones({4})));
      });
  t.Fails("shmap_ad/linear_transpose_inside_of_another_cotangent", "cotangent type does not match",
          R"py(
def f(p, t):
    return linear_transpose(lambda v: 2 * v, p)(t)[0]
shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P('i'))(ar(2), ar(4))
)py")
      .Twin([] {
        const auto f = [](Array p, Array t) {
          return std::get<0>(linear_transpose([](Array v) { return 2 * v; }, p)(t));
        };
        shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P("i"))(Ar({2}), Ar({4}));
      });
  t.Gives("shmap_ad/linear_transpose_of_psum", R"py(
f = shard_map(lambda x: lax.psum(x, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = linear_transpose(f, ar(4))(jnp.array([1., 2.]))
)py")
      .Twin([] {
        const auto f =
            shard_map([](Array x) { return lax::psum(x, "i"); }, Auto({{"i", 2}}), {P("i")}, P());
        return linear_transpose(f, Ar({4}))(array<float>({1, 2}));
      });
  t.Gives("shmap_ad/linear_transpose_of_repetition", R"py(
f = shard_map(lambda x: x, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))
out = linear_transpose(f, ar(2))(ar(4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array x) { return x; }, Auto({{"i", 2}}), {P()}, P("i"));
        return linear_transpose(f, Ar({2}))(Ar({4}));
      });
  t.Gives("shmap_ad/transpose_of_psum_inside", R"py(
def f(x, ct):
    return see(linear_transpose(lambda v: lax.psum(v, 'i'), x)(ct)[0])
out = shard_map(f, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(ar(4), ar(2)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array ct) {
          return see(
              std::get<0>(linear_transpose([](Array v) { return lax::psum(v, "i"); }, x)(ct)));
        };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P("i"), P()}, P("i"))(Ar({4}), Ar({2}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/transpose_of_pcast_inside", R"py(
def f(x, ct):
    return see(linear_transpose(lambda v: lax.pcast(v, 'i', to='varying'), x)(ct)[0])
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P())(ar(2), ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array ct) {
          return see(std::get<0>(
              linear_transpose([](Array v) { return lax::pcast(v, "i", "varying"); }, x)(ct)));
        };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P())(Ar({2}), Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/transpose_of_psum_inside_unchecked", R"py(
def f(x, ct):
    return linear_transpose(lambda v: lax.psum(v, 'i'), x)(ct)[0]
out = shard_map(f, mesh=auto(i=2), in_specs=(P('i'), P('i')), out_specs=P('i'), check_vma=False)(ar(4), ar(4))
)py")
      .Twin([] {
        const auto f = [](Array x, Array ct) {
          return std::get<0>(linear_transpose([](Array v) { return lax::psum(v, "i"); }, x)(ct));
        };
        return shard_map(f, Auto({{"i", 2}}), {P("i"), P("i")}, P("i"), kUnchecked)(Ar({4}),
                                                                                    Ar({4}));
      });
  t.Gives("shmap_ad/transpose_of_all_gather_inside", R"py(
def f(x, ct):
    return see(linear_transpose(lambda v: lax.all_gather(v, 'i', tiled=True), x)(ct)[0])
out = shard_map(f, mesh=auto(i=2), in_specs=(P('i'), P('i')), out_specs=P('i'))(ar(4), ar(8)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array ct) {
          return see(std::get<0>(
              linear_transpose([](Array v) { return lax::all_gather(v, "i", 0, true); }, x)(ct)));
        };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P("i"), P("i")}, P("i"))(Ar({4}), Ar({8}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/transpose_of_psum_scatter_inside", R"py(
def f(x, ct):
    return see(linear_transpose(lambda v: lax.psum_scatter(v, 'i', tiled=True), x)(ct)[0])
out = shard_map(f, mesh=auto(i=2), in_specs=(P('i'), P('i')), out_specs=P('i'))(ar(8), ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array ct) {
          return see(std::get<0>(
              linear_transpose([](Array v) { return lax::psum_scatter(v, "i", 0, true); }, x)(ct)));
        };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P("i"), P("i")}, P("i"))(Ar({8}), Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/transpose_of_all_gather_to_invarying_inside", R"py(
def f(x, ct):
    return see(linear_transpose(lambda v: lax.all_gather(v, 'i', tiled=True, to='invarying'), x)(ct)[0])
out = shard_map(f, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))(ar(4), ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x, Array ct) {
          return see(std::get<0>(linear_transpose(
              [](Array v) { return lax::all_gather(v, "i", 0, true, "invarying"); }, x)(ct)));
        };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P("i"), P()}, P("i"))(Ar({4}), Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/jacfwd_inside", R"py(
f = lambda x: see(jax.jacfwd(lambda v: v * v)(x))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) { return see(jacfwd([](Array v) { return v * v; })(x)); };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/jacrev_inside", R"py(
f = lambda x: see(jax.jacrev(lambda v: v * v)(x))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = [&](Array x) { return see(jacrev([](Array v) { return v * v; })(x)); };
        const Array y = shard_map(f, Auto({{"i", 2}}), {P("i")}, P("i"))(Ar({4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/custom_jvp_inside", R"py(
@jax.custom_jvp
def g(x):
    return x * x
g.defjvp(lambda p, t: (g(p[0]), 10 * p[0] * t[0]))
f = lambda b: lax.psum(jnp.sum(g(b)), 'i')
out = grad(shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P()))(ar(4))
)py")
      .Twin([] {
        const auto g = custom_jvp([](const Array& x) { return x * x; },
                                  [](const auto& p, const auto& t) {
                                    const Array& x = std::get<0>(p);
                                    return std::pair(x * x, 10 * x * std::get<0>(t));
                                  });
        return grad(shard_map([&](Array b) { return lax::psum(sum(g(b)), "i"); }, Auto({{"i", 2}}),
                              {P("i")}, P()))(Ar({4}));
      });
  t.Gives("shmap_ad/custom_vjp_inside", R"py(
@jax.custom_vjp
def g(x):
    return x * x
g.defvjp(lambda x: (g(x), x), lambda x, ct: (10 * x * ct,))
f = lambda b: lax.psum(jnp.sum(g(b)), 'i')
out = grad(shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P()))(ar(4))
)py")
      .Twin([] {
        const auto g =
            custom_vjp([](const Array& x) { return x * x; },
                       [](const Array& x) { return std::pair(x * x, x); },
                       [](const Array& x, const Array& ct) { return std::tuple(10 * x * ct); });
        return grad(shard_map([&](Array b) { return lax::psum(sum(g(b)), "i"); }, Auto({{"i", 2}}),
                              {P("i")}, P()))(Ar({4}));
      });
  t.Fails("shmap_ad/custom_vjp_whose_cotangent_varies", "must produce an output with the same type",
          R"py(
@jax.custom_vjp
def g(w, x):
    return w * x
g.defvjp(lambda w, x: (w * x, (w, x)), lambda r, ct: (jnp.sum(r[1] * ct), r[0] * ct))
def f(w, x):
    return grad(lambda w: lax.psum(jnp.sum(g(w, x)), 'i'))(w)
shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P())(jnp.float32(3), ar(4))
)py")
      .Twin([] {
        using Two = std::pair<Array, Array>;
        const auto g =
            custom_vjp([](const Array& w, const Array& x) { return w * x; },
                       [](const Array& w, const Array& x) { return std::pair(w * x, Two(w, x)); },
                       [](const Two& r, const Array& ct) {
                         return std::tuple(sum(r.second * ct), r.first * ct);
                       });
        const auto f = [&](Array w, Array x) {
          return grad([&](Array v) { return lax::psum(sum(g(v, x)), "i"); })(w);
        };
        shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P())(scalar(3.0f), Ar({4}));
      });
  t.Gives("shmap_ad/custom_vjp_that_sums_its_cotangent", R"py(
@jax.custom_vjp
def g(w, x):
    return w * x
g.defvjp(lambda w, x: (w * x, (w, x)), lambda r, ct: (lax.psum(jnp.sum(r[1] * ct), 'i'), r[0] * ct))
def f(w, x):
    return grad(lambda w: lax.psum(jnp.sum(g(w, x)), 'i'))(w)
out = shard_map(f, mesh=auto(i=2), in_specs=(P(), P('i')), out_specs=P())(jnp.float32(3), ar(4))
)py")
      .Twin([] {
        using Two = std::pair<Array, Array>;
        const auto g =
            custom_vjp([](const Array& w, const Array& x) { return w * x; },
                       [](const Array& w, const Array& x) { return std::pair(w * x, Two(w, x)); },
                       [](const Two& r, const Array& ct) {
                         return std::tuple(lax::psum(sum(r.second * ct), "i"), r.first * ct);
                       });
        const auto f = [&](Array w, Array x) {
          return grad([&](Array v) { return lax::psum(sum(g(v, x)), "i"); })(w);
        };
        return shard_map(f, Auto({{"i", 2}}), {P(), P("i")}, P())(scalar(3.0f), Ar({4}));
      });
  // ---- vmap of shard_map. ----
  t.Gives("shmap_ad/vmap_of_shard_map", R"py(
f = shard_map(lambda b: see(lax.psum(b, 'i')), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = vmap(f)(ar(3, 4)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = shard_map([&](Array b) { return see(lax::psum(b, "i")); }, Auto({{"i", 2}}),
                                 {P("i")}, P());
        const Array y = vmap(f)(Ar({3, 4}));
        return std::pair(y, see.types());
      });
  t.Gives("shmap_ad/vmap_of_shard_map_of_one_argument", R"py(
f = shard_map(lambda b, w: b * w, mesh=auto(i=2), in_specs=(P('i'), P()), out_specs=P('i'))
out = vmap(f, (None, 0))(ar(4), ar(3))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b, Array w) { return b * w; }, Auto({{"i", 2}}),
                                 {P("i"), P()}, P("i"));
        return vmap(f, {None, 0})(Ar({4}), Ar({3}));
      });
  t.Gives("shmap_ad/vmap_of_shard_map_of_another_dim", R"py(
f = shard_map(lambda b: b * 2, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))
out = vmap(f, in_axes=1, out_axes=1)(ar(4, 3))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return b * 2; }, Auto({{"i", 2}}), {P("i")}, P("i"));
        return vmap(f, 1, 1)(Ar({4, 3}));
      });
  t.Gives("shmap_ad/grad_of_vmap_of_shard_map", R"py(
f = shard_map(lambda b: lax.psum(jnp.sum(b * b), 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = grad(lambda x: jnp.sum(vmap(f)(x)))(ar(3, 4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return lax::psum(sum(b * b), "i"); },
                                 Auto({{"i", 2}}), {P("i")}, P());
        return grad([&](Array x) { return sum(vmap(f)(x)); })(Ar({3, 4}));
      });
  t.Gives("shmap_ad/vmap_of_grad_of_shard_map", R"py(
f = shard_map(lambda b: lax.psum(jnp.sum(b * b), 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())
out = vmap(grad(f))(ar(3, 4))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return lax::psum(sum(b * b), "i"); },
                                 Auto({{"i", 2}}), {P("i")}, P());
        return vmap(grad(f))(Ar({3, 4}));
      });
  t.Gives("shmap_ad/vmap_with_spmd_axis_name", R"py(
f = shard_map(lambda b: see(lax.psum(b, 'i')), mesh=auto(i=2, d=2), in_specs=P('i'), out_specs=P())
out = jit(vmap(f, spmd_axis_name='d'))(ar(4, 2)), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = shard_map([&](Array b) { return see(lax::psum(b, "i")); },
                                 Auto({{"i", 2}, {"d", 2}}), {P("i")}, P());
        const Array y = jit(vmap(f, 0, 0, {.spmd_axis_name = {"d"}}))(Ar({4, 2}));
        return std::pair(y, see.types());
      })
      .Anywhere();
  t.Fails("shmap_ad/spmd_axis_name_in_specs", "spmd_axis_name cannot appear in shard_map in_specs",
          R"py(
f = shard_map(lambda b: b, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))
vmap(f, spmd_axis_name='i')(ar(4, 2))
)py")
      .Twin([] {
        const auto f = shard_map([](Array b) { return b; }, Auto({{"i", 2}}), {P("i")}, P("i"));
        vmap(f, 0, 0, {.spmd_axis_name = {"i"}})(Ar({4, 2}));
      });
  t.Gives("shmap_ad/vmap_over_an_explicit_axis", R"py(
m = explicit(d=2, i=2)
with set_mesh(m):
    f = shard_map(lambda b: see(b * 2), in_specs=P('i'), out_specs=P('i'), axis_names={'i'})
    y = jit(vmap(f))(put(ar(4, 4), m, P('d', 'i')))
    out = seen, typeof(y), y
)py")
      .Twin([] {
        Seen see;
        const Mesh m = Explicit({{"d", 2}, {"i", 2}});
        set_mesh context(m);
        const auto f =
            shard_map([&](Array b) { return see(b * 2); }, Mesh{}, {P("i")}, P("i"), Only({"i"}));
        const Array y = jit(vmap(f))(put(Ar({4, 4}), m, P("d", "i")));
        return std::tuple(see.types(), y.type().ToString(), y);
      });
}

}  // namespace tessera::semantics
