// pmap: vmap over devices.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

void AddPmap(Table& t) {
  t.Gives("pmap/maps_over_devices", R"py(
out = pmap(lambda x: x * 2)(ar(4, 3))
)py")
      .Anywhere();
  t.Gives("pmap/body_lacks_the_mapped_dim", R"py(
pmap(lambda x: see(x))(ar(4, 3))
out = seen
)py");
  t.Gives("pmap/psum", R"py(
out = pmap(lambda x: x / lax.psum(x, 'i'), 'i')(jnp.array([0., 1., 3., 4.], jnp.float32))
)py")
      .For("A24")
      .Anywhere();
  t.Gives("pmap/results_are_sharded_over_the_axis", R"py(
out = pmap(lambda x: x + 1, 'i')(ar(4))
)py");
  t.Gives("pmap/in_axes_none", R"py(
out = pmap(lambda x, y: (x + y, y * 2), in_axes=(0, None))(ar(2), jnp.float32(4))
)py")
      .For("A24")
      .Anywhere();
  t.Gives("pmap/in_axes_of_another_dim", R"py(
out = pmap(lambda x: x * 2, in_axes=1)(ar(3, 2))
)py")
      .Anywhere();
  t.Gives("pmap/out_axes", R"py(
out = pmap(lambda x: x * 2, out_axes=1)(ar(2, 3))
)py")
      .Anywhere();
  t.Gives("pmap/out_axes_none_takes_one_copy", R"py(
out = pmap(lambda x: lax.psum(x, 'i'), 'i', out_axes=None)(ar(4))
)py")
      .Anywhere();
  t.Gives("pmap/trees", R"py(
out = pmap(lambda p: {'s': p['a'] + p['b'][0]})({'a': ar(2), 'b': (ar(2, 3),)})
)py")
      .Anywhere();
  t.Gives("pmap/axis_index_and_size", R"py(
out = pmap(lambda x: lax.axis_index('i') + lax.axis_size('i'), 'i')(ar(4))
)py")
      .Anywhere();
  t.Gives("pmap/ppermute", R"py(
out = pmap(lambda x: lax.ppermute(x, 'i', [(0, 1), (1, 2), (2, 3), (3, 0)]), 'i')(ar(4))
)py")
      .Anywhere();
  t.Gives("pmap/all_gather", R"py(
out = pmap(lambda x: lax.all_gather(x, 'i'), 'i')(ints(2))
)py")
      .Anywhere();
  t.Gives("pmap/pmean_of_a_gradient", R"py(
out = pmap(lambda x: lax.pmean(grad(lambda w: w * w * x)(jnp.float32(3)), 'i'), 'i')(ar(4))
)py")
      .Anywhere();
  t.Gives("pmap/grad_inside_of_psum_is_per_replica", R"py(
out = pmap(lambda p, x: grad(lambda p: lax.psum(p * x, 'i'))(p), 'i', in_axes=(None, 0))(jnp.float32(1), ar(4) + 1)
)py")
      .For("A24")
      .Anywhere();
  t.Gives("pmap/grad_through", R"py(
out = grad(lambda x: jnp.sum(pmap(lambda v: v * v)(x)))(ar(4))
)py")
      .Anywhere();
  t.Gives("pmap/grad_through_psum", R"py(
out = grad(lambda x: jnp.sum(pmap(lambda v: v * lax.psum(v, 'i'), 'i')(x)))(ar(4))
)py")
      .Anywhere();
  t.Gives("pmap/under_jit", R"py(
out = jit(lambda x: pmap(lambda v: v * 2)(x) + 1)(ar(4))
)py")
      .Anywhere();
  t.Gives("pmap/vmap_inside", R"py(
out = pmap(lambda x: vmap(lambda v: lax.psum(v, 'i'))(x), 'i')(ar(2, 3))
)py")
      .Anywhere();
  t.Gives("pmap/static_argument", R"py(
out = pmap(lambda x, n: x * n, static_broadcasted_argnums=1)(ar(2), 3)
)py")
      .Anywhere();
  t.Gives("pmap/collectives_over_devices_and_vmap", R"py(
f = lambda x: lax.psum(x, ('i', 'j'))
out = pmap(vmap(f, axis_name='j'), 'i')(ints(2, 3))
)py")
      .Anywhere();
  t.Fails("pmap/nothing_mapped", "mapped axis", R"py(
pmap(lambda x: x, in_axes=None)(ar(2))
)py");
  t.Fails("pmap/sizes_that_differ", "", R"py(
pmap(lambda x, y: x)(ar(2), ar(4))
)py");
  t.Fails("pmap/more_rows_than_devices", "", R"py(
pmap(lambda x: x)(ar(9))
)py")
      .For("A24");
  t.Fails("pmap/axis_size_that_does_not_match", "", R"py(
pmap(lambda x: x, axis_size=4)(ar(2))
)py");
  t.Fails("pmap/nested", "context mesh", R"py(
pmap(pmap(lambda x: x))(ar(2, 2))
)py")
      .For("A24");
  t.Fails("pmap/unknown_axis", "unbound axis name", R"py(
pmap(lambda x: lax.psum(x, 'j'), 'i')(ar(2))
)py")
      .For("A24");
  t.Fails("pmap/in_axes_are_no_prefix", "in_axes", R"py(
pmap(lambda p, y: y, in_axes=((0, 0, 0), 0))(((ar(2), ar(2)), ar(2)), ar(2))
)py")
      .For("A24");
  t.Fails("pmap/in_axes_are_no_numbers", "", R"py(
pmap(lambda x: x, in_axes='0')(ar(2))
)py")
      .DoesNotCompile();
}

}  // namespace tessera::semantics
