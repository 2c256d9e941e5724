// Rows about jit: static, donated and sharded arguments; eval_shape; what tracing forbids; and
// trees. A row is a program in Python, whose results in JAX are recorded, and its twin: the same
// program in C++ with the SDK. semantics_test.cc runs the twins and compares their results with the
// recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {
namespace {

struct Params {
  Array w, b;
};
TESSERA_TREE(Params, w, b)

}  // namespace

// Adds the rows "jit/...". Some rows call `see` to show how often a function is traced, and the
// types of its arguments.
void AddJit(Table& t) {
  t.Gives("jit/runs", R"py(
out = jit(lambda x: x * 2 + 1)(ar(3))
)py")
      .Twin([] { return jit([](Array x) { return x * 2 + 1; })(Ar({3})); });
  t.Gives("jit/traces_once_per_type", R"py(
f = jit(lambda x: see(x) * 2)
f(ar(3)), f(ar(3) + 1), f(ar(2)), f(ints(3))
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = jit([&](Array x) { return see(x) * 2; });
        f(Ar({3}));
        f(Ar({3}) + 1);
        f(Ar({2}));
        f(Ints({3}));
        return see.types();
      });
  t.Gives("jit/number_arguments_are_weak", R"py(
f = jit(lambda x, n: see(n) * x)
out = f(jnp.array([1., 2.], jnp.bfloat16), 3), f(jnp.array([1., 2.], jnp.bfloat16), 3.), seen
)py")
      .Twin([] {
        Seen see;
        const auto f = jit([&](Array x, Array n) { return see(n) * x; });
        const Array x = array<float>({1, 2}).astype(kBF16);
        const Array a = f(x, 3), b = f(x, 3.0);
        return std::tuple(a, b, see.types());
      });
  t.Gives("jit/number_arguments_do_not_recompile", R"py(
f = jit(lambda n: see(n) + 1)
f(1), f(2), f(3)
out = seen
)py")
      .Twin([] {
        Seen see;
        const auto f = jit([&](Array n) { return see(n) + 1; });
        f(1);
        f(2);
        f(3);
        return see.types();
      });
  t.Gives("jit/bool_arguments_are_strong", R"py(
f = jit(lambda b: see(b))
f(True)
out = seen
)py")
      .Twin([] {
        Seen see;
        jit([&](Array b) { return see(b); })(true);
        return see.types();
      });
  t.Gives("jit/trees", R"py(
out = jit(lambda p: {'y': p['a'] + p['b'][0], 'z': (p['a'],)})({'a': ar(2), 'b': [ar(2)]})
)py")
      .Twin([] {
        const auto f = jit([](std::pair<Array, std::vector<Array>> p) {
          return std::pair(p.first + p.second[0], std::tuple(p.first));
        });
        return f(std::pair(Ar({2}), std::vector<Array>{Ar({2})}));
      });
  t.Gives("jit/none_is_an_empty_tree", R"py(
out = jit(lambda p: (p[0] + 1, p[1]))((ar(2), None))
)py")
      .Twin([] {
        return jit([](std::pair<Array, NoneType> p) { return std::pair(p.first + 1, p.second); })(
            std::pair(Ar({2}), None));
      });
  t.Gives("jit/static_argnums", R"py(
f = jit(lambda x, n: see(x) * n if n > 1 else x, static_argnums=1)
out = f(ar(2), 3), f(ar(2), 1), len(seen)
)py")
      .Twin([] {
        Seen see;
        const auto f = jit([&](Array x, int n) { return n > 1 ? see(x) * n : x; });
        const Array a = f(Ar({2}), 3), b = f(Ar({2}), 1);
        return std::tuple(a, b, int(see.types().size()));
      });
  t.Gives("jit/static_argument_of_another_value_traces_again", R"py(
f = jit(lambda x, n: see(x) * n, static_argnums=1)
f(ar(2), 3), f(ar(2), 3), f(ar(2), 4)
out = len(seen)
)py")
      .Twin([] {
        Seen see;
        const auto f = jit([&](Array x, int n) { return see(x) * n; });
        f(Ar({2}), 3);
        f(Ar({2}), 3);
        f(Ar({2}), 4);
        return int(see.types().size());
      });
  t.Gives("jit/static_argnames", R"py(
f = jit(lambda x, mode: x * 2 if mode == 'double' else x, static_argnames='mode')
out = f(ar(2), mode='double'), f(ar(2), mode='none')
)py")
      .Twin([] {
        const auto f = jit([](Array x, std::string mode) { return mode == "double" ? x * 2 : x; });
        const Array first = f(Ar({2}), std::string("double"));
        return std::pair(first, f(Ar({2}), std::string("none")));
      });
  t.Fails("jit/static_argument_that_does_not_hash", "Non-hashable static arguments", R"py(
jit(lambda x, n: x, static_argnums=1)(ar(2), [1])
)py")
      .DoesNotCompile()
      .Note("in C++ a static argument is what has a text: of another the types say so")
      .Note("a static leaf of C++ is compared by its text");
  t.Fails("jit/branch_on_a_traced_value", "", R"py(
jit(lambda x: x if x[0] > 0 else -x)(ar(2))
)py")
      .DoesNotCompile()
      .Note("TracerBoolConversionError; in C++ an Array does not convert to bool");
  t.Fails("jit/read_a_traced_value", "", R"py(
jit(lambda x: float(x[0]))(ar(2))
)py")
      .Twin([] { jit([](Array x) { return x * x[0].item<float>(); })(Ar({2})); })
      .Note("ConcretizationTypeError");
  t.Fails("jit/traced_value_escapes", "", R"py(
kept = []
jit(lambda x: kept.append(x) or x)(ar(2))
kept[0] + 1
)py")
      .Twin([] {
        Array kept;
        jit([&](Array x) {
          kept = x;
          return x;
        })(Ar({2}));
        kept + 1;
      })
      .Note("UnexpectedTracerError");
  t.Gives("jit/nested", R"py(
g = jit(lambda x: x * 2)
out = jit(lambda x: g(x) + g(x + 1))(ar(2))
)py")
      .Twin([] {
        const auto g = jit([](Array x) { return x * 2; });
        return jit([&](Array x) {
          const Array a = g(x);
          return a + g(x + 1);
        })(Ar({2}));
      });
  t.Gives("jit/captures_are_constants", R"py(
w = ar(2)
out = jit(lambda x: x * w)(ar(2) + 1)
)py")
      .Twin([] {
        const Array w = Ar({2});
        return jit([&](Array x) { return x * w; })(Ar({2}) + 1);
      });
  t.Gives("jit/result_that_is_an_argument", R"py(
out = jit(lambda x, y: (y, x, x))(ar(2), ints(2))
)py")
      .Twin([] {
        return jit([](Array x, Array y) { return std::tuple(y, x, x); })(Ar({2}), Ints({2}));
      });
  t.Gives("jit/unused_argument", R"py(
out = jit(lambda x, y: x)(ar(2), ar(3))
)py")
      .Twin([] { return jit([](Array x, Array) { return x; })(Ar({2}), Ar({3})); });
  t.Gives("jit/no_arguments", R"py(
out = jit(lambda: jnp.arange(3, dtype=jnp.int32))()
)py")
      .Twin([] { return jit([] { return arange(3); })(); });
  // ---- Donation. ----
  t.Gives("jit/donated", R"py(
x = ar(4) + 0
out = jit(lambda x: x + 1, donate_argnums=0)(x)
)py")
      .Twin([] {
        JitOptions options;
        options.donate_argnums = {0};
        return jit([](Array x) { return x + 1; }, options)(Ar({4}));
      });
  t.Fails("jit/donated_argument_is_gone", "deleted", R"py(
x = ar(4) + 0
jit(lambda x: x + 1, donate_argnums=0)(x)
x + 1
)py")
      .Twin([] {
        JitOptions options;
        options.donate_argnums = {0};
        const Array x = Ar({4});
        jit([](Array v) { return v + 1; }, options)(x);
        x + 1;
      });
  t.Fails("jit/donated_twice_in_one_call", "donate", R"py(
x = ar(4) + 0
jit(lambda x, y: x + y, donate_argnums=(0, 1))(x, x)
)py")
      .Twin([] {
        JitOptions options;
        options.donate_argnums = {0, 1};
        const Array x = Ar({4});
        jit([](Array a, Array b) { return a + b; }, options)(x, x);
      });
  t.Gives("jit/donated_by_name", R"py(
x, y = ar(4) + 0, ar(4) + 1
out = jit(lambda state, x: state + x, donate_argnames='state')(x, y), x.is_deleted(), y.is_deleted()
)py")
      .Twin([] {
        JitOptions options;
        options.donate_argnames = {"state"};
        const std::map<std::string, Array> args = {{"state", Ar({4})}, {"x", Ar({4}) + 1}};
        const Array sum =
            jit([](const std::map<std::string, Array>& a) { return a.at("state") + a.at("x"); },
                options)(args);
        const auto gone = [](const Array& a) {
          return a.to_string().find("(donated)") != std::string::npos;
        };
        return std::tuple(sum, gone(args.at("state")), gone(args.at("x")));
      });
  t.Fails("jit/donated_by_an_unknown_name",
          "invalid argnames {'z'} in donate_argnames. Function does not take these args",
          R"py(
jit(lambda state, x: state + x, donate_argnames='z')(ar(4), ar(4))
)py")
      .Twin([] {
        JitOptions options;
        options.donate_argnames = {"z"};
        const std::map<std::string, Array> args = {{"state", Ar({4})}, {"x", Ar({4}) + 1}};
        jit([](const std::map<std::string, Array>& a) { return a.at("state") + a.at("x"); },
            options)(args);
      });
  t.Fails("jit/deleted_array", "deleted", R"py(
x = ar(4) + 0
x.delete()
x + 1
)py")
      .Twin([] {
        Array x = Ar({4});
        x.Delete();
        x + 1;
      });
  // ---- Shardings. ----
  t.Gives("jit/in_shardings", R"py(
m = auto(x=2)
out = jit(lambda x: x * 2, in_shardings=NamedSharding(m, P('x')), out_shardings=NamedSharding(m, P('x')))(ar(4))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        JitOptions options;
        options.in_shardings = P("x");
        options.out_shardings = P("x");
        return jit([](Array x) { return x * 2; }, options)(Ar({4}));
      });
  t.Gives("jit/out_shardings", R"py(
m = auto(x=2)
out = jit(lambda x: x * 2, out_shardings=NamedSharding(m, P(None, 'x')))(put(ar(4, 2), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}});
        JitOptions options;
        options.out_shardings = P(None, "x");
        return jit([](Array x) { return x * 2; }, options)(put(Ar({4, 2}), m, P("x")));
      });
  t.Gives("jit/out_shardings_prefix", R"py(
m = auto(x=2)
s, r = NamedSharding(m, P('x')), NamedSharding(m, P())
out = jit(lambda x: (x * 2, {'a': x, 'b': x + 1}), out_shardings=(s, r))(put(ar(4), m, P('x')))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}});
        JitOptions options;
        options.out_shardings = {P("x"), P()};
        return jit([](Array x) { return std::pair(x * 2, std::pair(x, x + 1)); },
                   options)(put(Ar({4}), m, P("x")));
      });
  t.Fails("jit/in_shardings_indivisible", "evenly divi", R"py(
jit(lambda x: x, in_shardings=NamedSharding(auto(x=2), P('x')))(ar(5))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        JitOptions options;
        options.in_shardings = P("x");
        jit([](Array x) { return x; }, options)(Ar({5}));
      });
  t.Fails("jit/out_shardings_indivisible", "evenly divi", R"py(
m = auto(x=2)
jit(lambda x: x, out_shardings=NamedSharding(m, P('x')))(put(ar(5), m, P()))
)py")
      .Twin([] {
        JitOptions options;
        options.out_shardings = P("x");
        jit([](Array x) { return x; }, options)(put(Ar({5}), Auto({{"x", 2}}), P()));
      });
  t.Fails("jit/in_shardings_of_an_unknown_axis", "not found in mesh", R"py(
jit(lambda x: x, in_shardings=NamedSharding(auto(x=2), P('q')))(ar(4))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        JitOptions options;
        options.in_shardings = P("q");
        jit([](Array x) { return x; }, options)(Ar({4}));
      });
  t.Fails("jit/in_shardings_are_no_prefix", "pytree structure error", R"py(
m = auto(x=2)
s = NamedSharding(m, P('x'))
jit(lambda p: p[0], in_shardings=((s, s, s),))((ar(4), ar(4)))
)py")
      .Twin([] {
        set_mesh context(Auto({{"x", 2}}));
        JitOptions options;
        options.in_shardings = {{P("x"), P("x"), P("x")}};
        jit([](std::pair<Array, Array> p) { return p.first; },
            options)(std::pair(Ar({4}), Ar({4})));
      });
  t.Fails("jit/arguments_on_other_devices", "Received incompatible devices", R"py(
jit(lambda x, y: x + y)(put(ar(4), auto(x=2), P('x')), put(ar(4), auto(x=4), P('x')))
)py")
      .Twin([] {
        jit([](Array x, Array y) { return x + y; })(put(Ar({4}), Auto({{"x", 2}}), P("x")),
                                                    put(Ar({4}), Auto({{"x", 4}}), P("x")));
      });
  t.Gives("jit/sharded_arguments_do_not_change_values", R"py(
m = auto(x=4, y=2)
f = jit(lambda a, b: (a @ b, jnp.cumsum(a, 0), jnp.sort(a, 0), jnp.sum(a)))
out = f(put(ar(8, 4), m, P('x', 'y')), put(ar(4, 2), m, P('y')))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 4}, {"y", 2}});
        const auto f = jit([](Array a, Array b) {
          return std::tuple(matmul(a, b), cumsum(a, 0), sort(a, 0), sum(a));
        });
        return f(put(Ar({8, 4}), m, P("x", "y")), put(Ar({4, 2}), m, P("y")));
      })
      .Anywhere();
  t.Gives("jit/constraint_on_auto_axes", R"py(
m = auto(x=2)
def f(x):
    return lax.with_sharding_constraint(x * 2, NamedSharding(m, P('x')))
out = jit(f)(put(ar(4), m, P()))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}});
        return jit([](Array x) { return with_sharding_constraint(x * 2, P("x")); })(
            put(Ar({4}), m, P()));
      });
  // ---- eval_shape, types. ----
  t.Gives("jit/eval_shape", R"py(
out = jax.eval_shape(lambda a, b: {'c': a @ b, 'n': 3 * jnp.sum(a)}, ar(2, 3), ar(3, 4))
)py")
      .Twin([] {
        const auto f = [](Array a, Array b) {
          return std::map<std::string, Array>{{"c", matmul(a, b)}, {"n", 3 * sum(a)}};
        };
        const auto out = eval_shape(f, Ar({2, 3}), Ar({3, 4}));
        return std::pair(TypeOf(out.at("c")), TypeOf(out.at("n")));
      });
  t.Gives("jit/eval_shape_of_types", R"py(
out = jax.eval_shape(lambda x: x.reshape(-1), jax.ShapeDtypeStruct((2, 3), jnp.bfloat16))
)py")
      .Twin([] {
        return TypeOf(eval_shape([](Array x) { return x.reshape({-1}); }, abstract({2, 3}, kBF16)));
      });
  t.Fails("jit/eval_shape_of_what_does_not_fit", "", R"py(
jax.eval_shape(lambda a, b: a @ b, ar(2, 3), ar(2, 3))
)py")
      .Twin([] {
        eval_shape([](Array a, Array b) { return matmul(a, b); }, Ar({2, 3}), Ar({2, 3}));
      });
  t.Gives("jit/eval_shape_does_not_run", R"py(
out = jax.eval_shape(lambda x: lax.while_loop(lambda c: True, lambda c: c, x), jnp.float32(0))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return while_loop([](Array) { return ones({}, kBool); }, [](Array c) { return c; }, x);
        };
        return TypeOf(eval_shape(f, scalar(0.0f)));
      });
  t.Gives("jit/lowered_and_compiled_ahead", R"py(
compiled = jit(lambda x: x * 2).lower(ar(3)).compile()
out = compiled(ar(3))
)py")
      .Twin([] {
        const auto compiled = jit([](Array x) { return x * 2; }).lower(Ar({3})).compile();
        return compiled(Ar({3}));
      });
  t.Fails("jit/compiled_for_another_type", "", R"py(
compiled = jit(lambda x: x * 2).lower(ar(3)).compile()
compiled(ar(4))
)py")
      .Twin([] {
        const auto compiled = jit([](Array x) { return x * 2; }).lower(Ar({3})).compile();
        compiled(Ar({4}));
      });
  t.Gives("jit/optimization_barrier", R"py(
out = lax.optimization_barrier((ar(2), ints(2)))
)py")
      .Twin([] {
        return lax::optimization_barrier({Ar({2}), Ints({2})});
      });
  // ---- Trees. ----
  t.Gives("jit/dict_keys_are_sorted", R"py(
out = jax.tree.leaves({'b': 1, 'a': 2, 'c': 3})
)py")
      .Twin([] {
        return std::map<std::string, int>{{"b", 1}, {"a", 2}, {"c", 3}};
      });
  t.Gives("jit/tree_map", R"py(
out = jax.tree.map(lambda a, b: a + b, {'a': ar(2), 'b': (ar(1),)}, {'a': ar(2), 'b': (ar(1),)})
)py")
      .Twin([] {
        using Tree = std::pair<Array, std::tuple<Array>>;
        const Tree t(Ar({2}), std::tuple(Ar({1})));
        return tree_map([](const Array& a, const Array& b) { return a + b; }, t, t);
      });
  t.Fails("jit/tree_map_of_other_trees", "", R"py(
jax.tree.map(lambda a, b: a + b, [ar(2), ar(2)], [ar(2)])
)py")
      .Twin([] {
        using List = std::vector<Array>;
        tree_map([](const Array& a, const Array& b) { return a + b; }, List{Ar({2}), Ar({2})},
                 List{Ar({2})});
      });
  t.Gives("jit/registered_dataclass", R"py(
@dataclass_tree
class Params:
    w: object
    b: object
p = jit(lambda p: Params(p.w * 2, p.b + 1))(Params(ar(2), jnp.float32(1)))
out = p.w, p.b
)py")
      .Twin([] {
        return jit([](Params p) { return Params{p.w * 2, p.b + 1}; })(Params{Ar({2}), ones({})});
      });
  // ---- Random numbers. ----
  t.Gives("jit/threefry_known_answers", R"py(
k = jax.random.key(0)
out = jax.random.split(k, 4), jax.random.fold_in(k, 4), jax.random.bits(k, (4,), jnp.uint32)
)py")
      .Twin([] {
        const Array k = random::key(0);
        return std::tuple(random::split(k, 4), random::fold_in(k, 4), random::bits(k, {4}));
      })
      .For("A26");
  t.Gives("jit/random_of_any_sharding", R"py(
m = auto(x=2)
f = jit(lambda k: jax.random.uniform(k, (4,), jnp.float32), out_shardings=NamedSharding(m, P('x')))
out = f(jax.random.key(0))
)py")
      .Twin([] {
        const Mesh m = Auto({{"x", 2}});
        set_mesh context(m);
        JitOptions options;
        options.out_shardings = P("x");
        return jit([](Array k) { return random::uniform(k, {4}); }, options)(random::key(0));
      });
}

}  // namespace tessera::semantics
