// Equinox's filters. Equinox is not installed where these are recorded: the programs run a small
// equivalent, written from its documentation (scripts/record_semantics.py, eqx).
#include "tests/semantics/rows.h"

namespace tessera::semantics {

void AddFilters(Table& t) {
  t.Gives("filters/filter_by_is_array", R"py(
out = eqx.filter([(ints(1), 1), 'obj'], eqx.is_array)
)py")
      .For("A25");
  t.Gives("filters/filter_by_inexact_arrays", R"py(
out = eqx.filter({'w': ar(2), 'n': ints(2), 'k': 3}, eqx.is_inexact_array)
)py");
  t.Gives("filters/filter_by_array_likes", R"py(
out = eqx.filter({'w': ar(2), 'k': 3, 's': 'name'}, eqx.is_array_like)
)py");
  t.Gives("filters/filter_inverse", R"py(
out = eqx.filter({'w': ar(2), 'k': 3}, eqx.is_array, inverse=True)
)py");
  t.Gives("filters/filter_with_a_prefix_of_bools", R"py(
out = eqx.filter({'a': (ar(2), ar(1)), 'b': ar(3)}, {'a': True, 'b': False})
)py");
  t.Gives("filters/filter_replaces", R"py(
out = eqx.filter((ar(2), 3), eqx.is_array, replace=0)
)py");
  t.Gives("filters/partition", R"py(
out = eqx.partition({'w': ar(2), 'k': 3}, eqx.is_array)
)py");
  t.Gives("filters/combine_takes_the_first", R"py(
out = eqx.combine([None, 1, 2], [0, None, None])
)py")
      .For("A25");
  t.Gives("filters/combine_undoes_partition", R"py(
out = eqx.combine(*eqx.partition({'w': ar(2), 'k': 3, 's': 'name'}, eqx.is_array))
)py");
  t.Gives("filters/filter_jit_keeps_what_is_static", R"py(
out = eqx.filter_jit(lambda p: (p['w'] * p['n'], p['n'], p['s']))({'w': ar(2), 'n': 3, 's': 'name'})
)py");
  t.Gives("filters/filter_vmap_maps_arrays", R"py(
out = eqx.filter_vmap(lambda x, y: x + y)(jnp.array([1., 2.]), 3.)
)py")
      .For("A25");
  t.Gives("filters/filter_vmap_in_axes", R"py(
out = eqx.filter_vmap(lambda x, y: x + y, in_axes=(None, 1))(jnp.float32(1), jnp.array([[2., 3.]]))
)py")
      .For("A25");
  t.Gives("filters/filter_vmap_of_no_arrays_just_runs", R"py(
out = eqx.filter_vmap(lambda n: n + 1)(3)
)py");
  t.Gives("filters/filter_grad_of_a_model", R"py(
model = {'w': jnp.array([1., 2.]), 'n': 3}
out = eqx.filter_grad(lambda p: jnp.sum(p['w'] ** 2) * p['n'])(model)
)py")
      .For("A25");
  t.Gives("filters/filter_grad_by_the_first_argument_alone", R"py(
out = eqx.filter_grad(lambda p, x: jnp.sum(p * x))(ar(2), ar(2) + 1)
)py");
  t.Gives("filters/filter_grad_of_integers_is_none", R"py(
out = eqx.filter_grad(lambda p: jnp.sum(p['w']) * p['i'][0])({'w': ar(2), 'i': ints(1) + 2})
)py");
  t.Gives("filters/filter_value_and_grad", R"py(
out = eqx.filter_value_and_grad(lambda p: jnp.sum(p['w'] ** 2) * p['n'])({'w': ar(3), 'n': 2})
)py");
  t.Fails("filters/filter_grad_of_no_argument", "positional argument", R"py(
eqx.filter_grad(lambda: jnp.float32(1))()
)py");
  t.Gives("filters/filter_shard", R"py(
sharding = NamedSharding(auto(x=2), P('x'))
out = eqx.filter_shard(((jnp.zeros(20, jnp.float32), 4), 's'), sharding)
)py")
      .For("A25");
  t.Gives("filters/shardings_do_not_change_a_vmap", R"py(
x = eqx.filter_shard(ar(4), NamedSharding(auto(x=2), P('x')))
out = eqx.filter_jit(eqx.filter_vmap(lambda v: v * v))(x)
)py")
      .For("A25")
      .Anywhere();
  t.Gives("filters/grad_of_a_vmap_of_a_model", R"py(
model = {'w': ar(3), 'scale': 2}
x = ar(2, 3)
loss = lambda p, x: jnp.sum(vmap(lambda r: jnp.dot(p['w'], r) * p['scale'])(x))
out = eqx.filter_jit(eqx.filter_grad(loss))(model, x)
)py");
}

}  // namespace tessera::semantics
