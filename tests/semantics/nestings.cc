// Rows about transforms inside transforms, with and without a check of varying axes. A row is a
// program in Python, whose results in JAX are recorded, and its twin: the same program in C++ with
// the SDK. Each program runs under jit and is called twice; the second call must compile nothing.
// semantics_test.cc runs the twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {
namespace {

// Returns the text of a Python program, preceded by two definitions that all these programs use:
// `c`, the value of check_vma, and the function `twice`.
std::string Python(bool checked, const std::string& program) {
  return std::string("\nc = ") + (checked ? "True" : "False") + R"py(
def twice(f, *args):
    g = jit(f)
    first, second = g(*args), g(*args)
    return first, second, g._cache_size())py" +
         program;
}
template <class F, class... A>
auto Twice(const F& f, const A&... args) {
  const auto compiled = jit(f);
  auto first = compiled(args...);
  auto second = compiled(args...);
  return std::tuple(std::move(first), std::move(second), compiled.num_compiled());
}

struct Layer {
  Array w;
  int power = 1;
  std::string name;
};
TESSERA_TREE(Layer, w, power, name)

// Adds the rows with a shard_map. `checked` is its check_vma. It is called with both values,
// because derivatives follow other rules in an unchecked body.
void AddNesting(Table& t, bool checked) {
  const std::string suffix = checked ? "_checked" : "_unchecked";
  const ShardMapOptions options{.axis_names = {}, .check_vma = checked};
  const auto gives = [&](const std::string& name, const std::string& program) -> Table& {
    return t.Gives("nesting/" + name + suffix, Python(checked, program));
  };

  gives("grad_of_vmap_of_shard_map", R"py(
f = shard_map(lambda w, x: lax.psum(jnp.sum(w * w * x), 'x'), mesh=auto(x=2), in_specs=(P('x'), P('x')),
              out_specs=P(), check_vma=c)
loss = lambda w, xs: jnp.sum(vmap(lambda x: f(w, x) * f(w, x))(xs))
out = twice(grad(loss, (0, 1)), ar(4) + 1, ar(3, 4))
)py")
      .Twin([options] {
        const auto f = shard_map([](Array w, Array x) { return lax::psum(sum(w * w * x), "x"); },
                                 Auto({{"x", 2}}), {P("x"), P("x")}, P(), options);
        const auto loss = [f](Array w, Array xs) {
          return sum(vmap([&](Array x) { return f(w, x) * f(w, x); })(xs));
        };
        return Twice(grad<0, 1>(loss), Ar({4}) + 1, Ar({3, 4}));
      })
      .Anywhere();
  gives("shard_map_in_scan_in_grad", R"py(
step = shard_map(lambda s, x: s * lax.psum(jnp.sum(x), 'x') + x, mesh=auto(x=2), in_specs=(P('x'), P('x')),
                 out_specs=P('x'), check_vma=c)
def loss(s, xs):
    last, ys = lax.scan(lambda s, x: (step(s, x), jnp.sum(s * s)), s, xs)
    return jnp.sum(last) + jnp.sum(ys)
out = twice(grad(loss, (0, 1)), ar(4) + 1, ar(3, 4) % 3)
)py")
      .Twin([options] {
        const auto step = shard_map([](Array s, Array x) { return s * lax::psum(sum(x), "x") + x; },
                                    Auto({{"x", 2}}), {P("x"), P("x")}, P("x"), options);
        const auto loss = [step](Array s, Array xs) {
          const auto [last, ys] =
              scan([&](Array at, Array x) { return std::pair(step(at, x), sum(at * at)); }, s, xs);
          return sum(last) + sum(ys);
        };
        return Twice(grad<0, 1>(loss), Ar({4}) + 1, mod(Ar({3, 4}), 3));
      })
      .Anywhere();
  gives("hessian_of_shard_map", R"py(
f = shard_map(lambda w: lax.psum(jnp.sum(w * w * w), 'x') + lax.psum(jnp.sum(w), 'x') ** 2, mesh=auto(x=2),
              in_specs=P('x'), out_specs=P(), check_vma=c)
out = twice(jax.hessian(f), ar(4) + 1)
)py")
      .Twin([options] {
        const auto f = shard_map(
            [](Array w) { return lax::psum(sum(w * w * w), "x") + square(lax::psum(sum(w), "x")); },
            Auto({{"x", 2}}), {P("x")}, P(), options);
        return Twice(hessian(f), Ar({4}) + 1);
      })
      .Anywhere();
  gives("hessian_in_shard_map", R"py(
f = shard_map(lambda w: jax.hessian(lambda v: jnp.sum(v * v * v) * v[0])(w), mesh=auto(x=2), in_specs=P('x'),
              out_specs=P('x'), check_vma=c)
out = twice(f, ar(4) + 1)
)py")
      .Twin([options] {
        const auto f = shard_map(
            [](Array w) { return hessian([](Array v) { return sum(v * v * v) * v[0]; })(w); },
            Auto({{"x", 2}}), {P("x")}, P("x"), options);
        return Twice(f, Ar({4}) + 1);
      })
      .Anywhere();
  gives("checkpoint_in_scan_in_shard_map", R"py(
def body(s, xs):
    step = jax.checkpoint(lambda s, x: (s * x + s, s * s))
    last, ys = lax.scan(step, s, xs)
    return lax.psum(jnp.sum(last) + jnp.sum(ys), 'x')
f = shard_map(body, mesh=auto(x=2), in_specs=(P('x'), P(None, 'x')), out_specs=P(), check_vma=c)
out = twice(grad(f, (0, 1)), ar(4) + 1, ar(3, 4) % 3)
)py")
      .Twin([options] {
        const auto body = [](Array s, Array xs) {
          const auto step =
              checkpoint([](Array at, Array x) { return std::pair(at * x + at, at * at); });
          const auto [last, ys] = scan(step, s, xs);
          return lax::psum(sum(last) + sum(ys), "x");
        };
        const auto f = shard_map(body, Auto({{"x", 2}}), {P("x"), P(None, "x")}, P(), options);
        return Twice(grad<0, 1>(f), Ar({4}) + 1, mod(Ar({3, 4}), 3));
      })
      .Anywhere();
  gives("linearize_in_shard_map", R"py(
def body(p, t):
    y, push = linearize(lambda v: v * v * lax.psum(jnp.sum(v), 'x'), p)
    return y, push(t), push(2 * t)
f = shard_map(body, mesh=auto(x=2), in_specs=(P('x'), P('x')), out_specs=P('x'), check_vma=c)
out = twice(f, ar(4) + 1, ar(4))
)py")
      .Twin([options] {
        const auto body = [](Array p, Array t) {
          const auto [y, push] =
              linearize([](Array v) { return v * v * lax::psum(sum(v), "x"); }, p);
          return std::tuple(y, push(t), push(2 * t));
        };
        const auto f = shard_map(body, Auto({{"x", 2}}), {P("x"), P("x")}, P("x"), options);
        return Twice(f, Ar({4}) + 1, Ar({4}));
      })
      .Anywhere();
  gives("linear_transpose_of_linearize_in_shard_map", R"py(
def body(p, t):
    _, push = linearize(lambda v: v * v * lax.psum(jnp.sum(v), 'x'), p)
    return linear_transpose(push, p)(t)[0]
f = shard_map(body, mesh=auto(x=2), in_specs=(P('x'), P('x')), out_specs=P('x'), check_vma=c)
out = twice(f, ar(4) + 1, ar(4))
)py")
      .Twin([options] {
        const auto body = [](Array p, Array t) {
          const auto push =
              linearize([](Array v) { return v * v * lax::psum(sum(v), "x"); }, p).second;
          return std::get<0>(linear_transpose(push, p)(t));
        };
        const auto f = shard_map(body, Auto({{"x", 2}}), {P("x"), P("x")}, P("x"), options);
        return Twice(f, Ar({4}) + 1, Ar({4}));
      })
      .Anywhere();
  gives("filter_grad_of_a_struct_with_static_leaves", R"py(
f = shard_map(lambda w, x: lax.psum(jnp.sum(w * x), 'x'), mesh=auto(x=2), in_specs=(P(), P('x')), out_specs=P(),
              check_vma=c)
loss = lambda layer, x: f(layer['w'], x) ** layer['power']
g = eqx.filter_grad(lambda layer, x: loss({**layer, 'power': 2}, x))
out = twice(lambda w, x: g({'w': w}, x)['w'], ar(2) + 1, ar(4, 2))
)py")
      .Twin([options] {
        const auto f = shard_map([](Array w, Array x) { return lax::psum(sum(w * x), "x"); },
                                 Auto({{"x", 2}}), {P(), P("x")}, P(), options);
        const auto loss = [f](const Layer& layer, Array x) {
          return lax::integer_pow(f(layer.w, x), layer.power);
        };
        const auto compiled = filter_jit(filter_grad(loss));
        const auto run = [&](int power) {
          return compiled(Layer{.w = Ar({2}) + 1, .power = power, .name = "first"}, Ar({4, 2}));
        };
        const Layer first = run(2), second = run(2);
        const int64_t num_compiled = compiled.num_compiled();
        return std::tuple(first.w, second.w, num_compiled);
      })
      .Anywhere();
  gives("vmap_of_shard_map_of_vmap_in_cond", R"py(
f = shard_map(lambda x: vmap(lambda r: r * lax.psum(jnp.sum(r), 'x'))(x), mesh=auto(x=2), in_specs=P(None, 'x'),
              out_specs=P(None, 'x'), check_vma=c)
g = lambda p, x: lax.cond(p, lambda x: vmap(f)(x), lambda x: x, x)
out = twice(grad(lambda x: jnp.sum(g(x[0, 0, 0] < 1, x) ** 2)), ar(2, 2, 4))
)py")
      .Twin([options] {
        const auto f = shard_map(
            [](Array x) { return vmap([](Array r) { return r * lax::psum(sum(r), "x"); })(x); },
            Auto({{"x", 2}}), {P(None, "x")}, P(None, "x"), options);
        const auto g = [f](Array p, Array x) {
          return cond(
              p, [&](Array y) { return vmap(f)(y); }, [](Array y) { return y; }, x);
        };
        return Twice(grad([g](Array x) {
                       return sum(square(g(x[{0, 0, 0}] < 1, x)));
                     }),
                     Ar({2, 2, 4}));
      })
      .Anywhere();
}

}  // namespace

// Adds the rows "nesting/...".
void AddNestings(Table& t) {
  AddNesting(t, /*checked=*/true);
  AddNesting(t, /*checked=*/false);

  // The remaining rows have no shard_map, so one value of check_vma is enough.
  t.Gives("nesting/vmap_of_scatter_under_explicit_sharding", Python(true, R"py(
m = explicit(x=2)
with set_mesh(m):
    x, i = put(ar(4, 3), m, P('x')), put(jnp.array([2, 0, 1, 2], jnp.int32), m, P('x'))
    out = twice(vmap(lambda row, k: row.at[k].add(10)), x, i), twice(vmap(lambda row, k: row.at[k].set(-1)), x, i)
)py"))
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4, 3}), m, P("x"));
        const Array i = put(array<int32_t>({2, 0, 1, 2}), m, P("x"));
        return std::pair(Twice(vmap([](Array row, Array k) { return row.at(k).add(10); }), x, i),
                         Twice(vmap([](Array row, Array k) { return row.at(k).set(-1); }), x, i));
      });
  t.Gives("nesting/grad_of_vmap_of_scatter_under_explicit_sharding", Python(true, R"py(
m = explicit(x=2)
with set_mesh(m):
    x, i = put(ar(4, 3), m, P('x')), put(jnp.array([2, 0, 1, 2], jnp.int32), m, P('x'))
    loss = lambda x, v: jnp.sum(vmap(lambda row, k, v: row.at[k].set(v) ** 2)(x, i, v))
    out = twice(grad(loss, (0, 1)), x, put(ar(4), m, P('x')))
)py"))
      .Twin([] {
        const Mesh m = Explicit({{"x", 2}});
        set_mesh context(m);
        const Array x = put(Ar({4, 3}), m, P("x"));
        const Array i = put(array<int32_t>({2, 0, 1, 2}), m, P("x"));
        const auto loss = [i](Array rows, Array values) {
          return sum(vmap([](Array row, Array k, Array v) { return square(row.at(k).set(v)); })(
              rows, i, values));
        };
        return Twice(grad<0, 1>(loss), x, put(Ar({4}), m, P("x")));
      });
  t.Gives("nesting/pmap_of_grad_with_psum", R"py(
g = pmap(grad(lambda p, x: lax.psum(jnp.sum(p * p * x), 'i')), 'i', in_axes=(None, 0))
out = g(ar(2), ar(4, 2)), g(ar(2), ar(4, 2)), 1
)py")
      .Twin([] {
        const auto g = pmap(grad([](Array p, Array x) { return lax::psum(sum(p * p * x), "i"); }),
                            "i", {.in_axes = {None, 0}});
        const Array first = g(Ar({2}), Ar({4, 2})), second = g(Ar({2}), Ar({4, 2}));
        return std::tuple(first, second, g.num_compiled());
      })
      .Anywhere();
  t.Gives("nesting/jit_of_pmap_of_grad_with_psum", Python(true, R"py(
g = pmap(grad(lambda p, x: lax.psum(jnp.sum(p * p * x), 'i')), 'i', in_axes=(None, 0))
out = twice(g, ar(2), ar(4, 2))
)py"))
      .Twin([] {
        const auto g = pmap(grad([](Array p, Array x) { return lax::psum(sum(p * p * x), "i"); }),
                            "i", {.in_axes = {None, 0}});
        return Twice(g, Ar({2}), Ar({4, 2}));
      })
      .Anywhere();
  t.Gives("nesting/grad_of_pmap_with_psum", Python(true, R"py(
f = pmap(lambda p, x: lax.psum(jnp.sum(p * p * x), 'i'), 'i', in_axes=(None, 0))
out = twice(grad(lambda p, x: jnp.sum(f(p, x))), ar(2), ar(4, 2))
)py"))
      .Twin([] {
        const auto f = pmap([](Array p, Array x) { return lax::psum(sum(p * p * x), "i"); }, "i",
                            {.in_axes = {None, 0}});
        return Twice(grad([f](Array p, Array x) { return sum(f(p, x)); }), Ar({2}), Ar({4, 2}));
      })
      .Anywhere();
  t.Gives("nesting/checkpoint_in_scan", Python(true, R"py(
def loss(s, xs):
    last, ys = lax.scan(jax.checkpoint(lambda s, x: (s * x + s, s * s)), s, xs)
    return jnp.sum(last) + jnp.sum(ys)
out = twice(grad(loss, (0, 1)), ar(4) + 1, ar(3, 4) % 3)
)py"))
      .Twin([] {
        const auto loss = [](Array s, Array xs) {
          const auto step =
              checkpoint([](Array at, Array x) { return std::pair(at * x + at, at * at); });
          const auto [last, ys] = scan(step, s, xs);
          return sum(last) + sum(ys);
        };
        return Twice(grad<0, 1>(loss), Ar({4}) + 1, mod(Ar({3, 4}), 3));
      });
  t.Gives("nesting/hessian", Python(true, R"py(
out = twice(jax.hessian(lambda v: jnp.sum(v * v * v) * v[0]), ar(3) + 1)
)py"))
      .Twin([] {
        return Twice(hessian([](Array v) { return sum(v * v * v) * v[0]; }), Ar({3}) + 1);
      });
}

}  // namespace tessera::semantics
