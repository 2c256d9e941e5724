// Rows about the filters of Equinox. A row is a program in Python, whose results are recorded, and
// its twin: the same program in C++ with the SDK. If Equinox is not installed, the Python programs
// run a small equivalent with the same results (eqx in scripts/record_semantics.py), which was
// written from the documentation of Equinox. A filter leaves holes in a tree: a hole is None in
// Python and an Array without a value in C++.
#include "tests/semantics/rows.h"

namespace tessera::semantics {
namespace {

// The trees of the Python programs are dicts. The twins use structs, whose fields are in the order
// of the sorted keys.
struct Counted {
  int k;
  Array w;
};
TESSERA_TREE(Counted, k, w)
struct Mixed {
  int k;
  Array n, w;
};
TESSERA_TREE(Mixed, k, n, w)
struct Named {
  int k;
  std::string s;
  Array w;
};
TESSERA_TREE(Named, k, s, w)
struct Labelled {
  int n;
  std::string s;
  Array w;
};
TESSERA_TREE(Labelled, n, s, w)
struct Model {
  int n;
  Array w;
};
TESSERA_TREE(Model, n, w)
struct Pairs {
  std::pair<Array, Array> a;
  Array b;
};
TESSERA_TREE(Pairs, a, b)
struct Scaled {
  int scale;
  Array w;
};
TESSERA_TREE(Scaled, scale, w)

}  // namespace

// Adds the rows "filters/...". Some twins give other results than Equinox: in the SDK, a leaf that
// is not an array is part of the structure of its tree. differs.txt lists these rows.
void AddFilters(Table& t) {
  t.Gives("filters/filter_by_is_array", R"py(
out = eqx.filter([(ints(1), 1), 'obj'], eqx.is_array)
)py")
      .Twin([] { return filter(std::pair(std::pair(Ints({1}), 1), std::string("obj")), is_array); })
      .For("A25");
  t.Gives("filters/filter_by_inexact_arrays", R"py(
out = eqx.filter({'w': ar(2), 'n': ints(2), 'k': 3}, eqx.is_inexact_array)
)py")
      .Twin([] { return filter(Mixed{.k = 3, .n = Ints({2}), .w = Ar({2})}, is_inexact_array); });
  t.Gives("filters/filter_by_array_likes", R"py(
out = eqx.filter({'w': ar(2), 'k': 3, 's': 'name'}, eqx.is_array_like)
)py")
      .Twin([] { return filter(Named{.k = 3, .s = "name", .w = Ar({2})}, is_array); });
  t.Gives("filters/filter_inverse", R"py(
out = eqx.filter({'w': ar(2), 'k': 3}, eqx.is_array, inverse=True)
)py")
      .Twin([] { return filter(Counted{.k = 3, .w = Ar({2})}, is_array, /*inverse=*/true); });
  t.Gives("filters/filter_with_a_prefix_of_bools", R"py(
out = eqx.filter({'a': (ar(2), ar(1)), 'b': ar(3)}, {'a': True, 'b': False})
)py")
      .Twin([] {
        const Pairs tree{.a = {Ar({2}), Ar({1})}, .b = Ar({3})};
        return filter(tree, Prefix<bool>::Named({{"a", true}, {"b", false}}));
      });
  t.Gives("filters/filter_replaces", R"py(
out = eqx.filter((ar(2), 3), eqx.is_array, replace=0)
)py")
      .Twin([] { return filter(std::pair(Ar({2}), 3), is_array, /*inverse=*/false, zeros({})); });
  t.Gives("filters/partition", R"py(
out = eqx.partition({'w': ar(2), 'k': 3}, eqx.is_array)
)py")
      .Twin([] { return partition(Counted{.k = 3, .w = Ar({2})}, is_array); });
  t.Gives("filters/combine_takes_the_first", R"py(
out = eqx.combine([None, 1, 2], [0, None, None])
)py")
      .Twin([] {
        using List = std::vector<Array>;
        const Array zero = scalar(0), one = scalar(1), two = scalar(2);
        const List c = combine(List{Array(), one, two}, List{zero, Array(), Array()});
        return std::tuple(c[0].item<int>(), c[1].item<int>(), c[2].item<int>());
      })
      .Note("the twin has arrays in the place of numbers")
      .For("A25");
  t.Gives("filters/combine_undoes_partition", R"py(
out = eqx.combine(*eqx.partition({'w': ar(2), 'k': 3, 's': 'name'}, eqx.is_array))
)py")
      .Twin([] {
        const auto [arrays, rest] = partition(Named{.k = 3, .s = "name", .w = Ar({2})}, is_array);
        return combine(arrays, rest);
      });
  t.Gives("filters/filter_jit_keeps_what_is_static", R"py(
out = eqx.filter_jit(lambda p: (p['w'] * p['n'], p['n'], p['s']))({'w': ar(2), 'n': 3, 's': 'name'})
)py")
      .Twin([] {
        return filter_jit([](const Labelled& p) { return std::tuple(p.w * p.n, p.n, p.s); })(
            Labelled{.n = 3, .s = "name", .w = Ar({2})});
      });
  t.Gives("filters/filter_vmap_maps_arrays", R"py(
out = eqx.filter_vmap(lambda x, y: x + y)(jnp.array([1., 2.]), 3.)
)py")
      .Twin([] {
        return filter_vmap([](Array x, double y) { return x + y; })(array<float>({1, 2}), 3.0);
      })
      .For("A25");
  t.Gives("filters/filter_vmap_in_axes", R"py(
out = eqx.filter_vmap(lambda x, y: x + y, in_axes=(None, 1))(jnp.float32(1), jnp.array([[2., 3.]]))
)py")
      .Twin([] {
        return filter_vmap([](Array x, Array y) { return x + y; }, {None, 1})(
            scalar(1.0f), array<float>({2, 3}).reshape({1, 2}));
      })
      .For("A25");
  t.Gives("filters/filter_vmap_of_no_arrays_just_runs", R"py(
out = eqx.filter_vmap(lambda n: n + 1)(3)
)py")
      .Twin([] { return filter_vmap([](int n) { return n + 1; })(3); });
  t.Gives("filters/filter_grad_of_a_model", R"py(
model = {'w': jnp.array([1., 2.]), 'n': 3}
out = eqx.filter_grad(lambda p: jnp.sum(p['w'] ** 2) * p['n'])(model)
)py")
      .Twin([] {
        return filter_grad([](const Model& p) { return sum(square(p.w)) * p.n; })(
            Model{.n = 3, .w = array<float>({1, 2})});
      })
      .For("A25");
  t.Gives("filters/filter_grad_by_the_first_argument_alone", R"py(
out = eqx.filter_grad(lambda p, x: jnp.sum(p * x))(ar(2), ar(2) + 1)
)py")
      .Twin([] {
        return filter_grad([](Array p, Array x) { return sum(p * x); })(Ar({2}), Ar({2}) + 1);
      });
  t.Gives("filters/filter_grad_of_integers_is_none", R"py(
out = eqx.filter_grad(lambda p: jnp.sum(p['w']) * p['i'][0])({'w': ar(2), 'i': ints(1) + 2})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return filter_grad([](Map p) { return sum(p["w"]) * p["i"][0]; })(
            Map{{"w", Ar({2})}, {"i", Ints({1}) + 2}});
      });
  t.Gives("filters/filter_value_and_grad", R"py(
out = eqx.filter_value_and_grad(lambda p: jnp.sum(p['w'] ** 2) * p['n'])({'w': ar(3), 'n': 2})
)py")
      .Twin([] {
        return filter_value_and_grad([](const Model& p) { return sum(square(p.w)) * p.n; })(
            Model{.n = 2, .w = Ar({3})});
      });
  t.Fails("filters/filter_grad_of_no_argument", "positional argument", R"py(
eqx.filter_grad(lambda: jnp.float32(1))()
)py")
      .DoesNotCompile();
  t.Gives("filters/filter_shard", R"py(
sharding = NamedSharding(auto(x=2), P('x'))
out = eqx.filter_shard(((jnp.zeros(20, jnp.float32), 4), 's'), sharding)
)py")
      .Twin([] {
        const std::pair tree(std::pair(zeros({20}), 4), std::string("s"));
        return filter_shard(tree, Auto({{"x", 2}}), P("x"));
      })
      .For("A25");
  t.Gives("filters/shardings_do_not_change_a_vmap", R"py(
x = eqx.filter_shard(ar(4), NamedSharding(auto(x=2), P('x')))
out = eqx.filter_jit(eqx.filter_vmap(lambda v: v * v))(x)
)py")
      .Twin([] {
        const Array x = filter_shard(Ar({4}), Auto({{"x", 2}}), P("x"));
        return filter_jit(filter_vmap([](Array v) { return v * v; }))(x);
      })
      .For("A25")
      .Anywhere();
  t.Gives("filters/grad_of_a_vmap_of_a_model", R"py(
model = {'w': ar(3), 'scale': 2}
x = ar(2, 3)
loss = lambda p, x: jnp.sum(vmap(lambda r: jnp.dot(p['w'], r) * p['scale'])(x))
out = eqx.filter_jit(eqx.filter_grad(loss))(model, x)
)py")
      .Twin([] {
        const auto loss = [](const Scaled& p, Array x) {
          return sum(vmap([&](Array r) { return dot(p.w, r) * p.scale; })(x));
        };
        return filter_jit(filter_grad(loss))(Scaled{.scale = 2, .w = Ar({3})}, Ar({2, 3}));
      });
}

}  // namespace tessera::semantics
