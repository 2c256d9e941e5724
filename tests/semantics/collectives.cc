// The collectives: what they give, how it is typed, and what they refuse.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

void AddCollectives(Table& t) {
  // ---- psum and its kin. ----
  t.Gives("collectives/psum", R"py(
out = shard_map(lambda x: see(lax.psum(x, 'i')), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ints(8)), seen
)py");
  t.Gives("collectives/psum_of_invarying_multiplies", R"py(
out = shard_map(lambda x: see(lax.psum(x, 'i')), mesh=auto(i=4), in_specs=P(), out_specs=P())(ints(3)), seen
)py");
  t.Gives("collectives/psum_twice", R"py(
out = shard_map(lambda x: lax.psum(lax.psum(x, 'i'), 'i'), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ar(4))
)py")
      .For("A03");
  t.Gives("collectives/psum_over_two_axes", R"py(
out = shard_map(lambda x: see(lax.psum(x, ('i', 'j'))), mesh=auto(i=2, j=2), in_specs=P('i', 'j'), out_specs=P())(
    ints(2, 2)), seen
)py");
  t.Gives("collectives/psum_over_one_of_two", R"py(
out = shard_map(lambda x: see(lax.psum(x, 'j')), mesh=auto(i=2, j=2), in_specs=P('i', 'j'), out_specs=P('i'))(
    ints(2, 2)), seen
)py");
  t.Fails("collectives/psum_of_mixed_states",
          "psum can only accept axis_name which corresponds to one of", R"py(
shard_map(lambda x: lax.psum(x, ('i', 'j')), mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P())(ar(4))
)py");
  t.Gives("collectives/psum_of_mixed_states_once_cast", R"py(
f = lambda x: lax.psum(lax.pcast(x, 'j', to='varying'), ('i', 'j'))
out = shard_map(f, mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P())(ar(4))
)py");
  t.Gives("collectives/psum_of_a_number", R"py(
def f(x):
    return x * lax.psum(1, 'i')
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ints(4))
)py");
  t.Gives("collectives/psum_of_bool_counts", R"py(
out = shard_map(lambda x: see(lax.psum(x > 1, 'i')), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ints(8)), seen
)py");
  t.Gives("collectives/psum_of_a_tree", R"py(
out = shard_map(lambda x, y: lax.psum({'a': x, 'b': (y,)}, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())(
    ints(2), ar(4))
)py");
  t.Gives("collectives/pmean", R"py(
out = shard_map(lambda x: see(lax.pmean(x, 'i')), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ar(8)), seen
)py");
  t.Gives("collectives/pmean_of_integers_is_a_float", R"py(
out = shard_map(lambda x: lax.pmean(x, 'i'), mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ints(4))
)py");
  t.Gives("collectives/pmean_of_a_tree", R"py(
out = shard_map(lambda x: lax.pmean((x, 2 * x), 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())(ar(4))
)py");
  t.Gives("collectives/pmax_and_pmin", R"py(
f = lambda x: (see(lax.pmax(x, 'i')), see(lax.pmin(x, 'i')))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P())(jnp.array([3., -1., 7., 2.], jnp.float32)), seen
)py");
  t.Gives("collectives/pmax_of_invarying", R"py(
out = shard_map(lambda x: see(lax.pmax(x, 'i')), mesh=auto(i=4), in_specs=P(), out_specs=P())(ints(3)), seen
)py");
  t.Fails("collectives/pmax_has_no_derivative", "Differentiation rule for 'pmax'", R"py(
grad(lambda x: jnp.sum(shard_map(lambda b: lax.pmax(b, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P())(x)))(
    ar(4))
)py",
          "not implemented");
  t.Fails("collectives/groups_of_psum", "", R"py(
shard_map(lambda x: lax.psum(x, 'i', axis_index_groups=[[0, 1], [2, 3]]), mesh=auto(i=4), in_specs=P('i'),
          out_specs=P('i'))(ar(4))
)py");
  t.Gives("collectives/groups_of_psum_unchecked", R"py(
out = shard_map(lambda x: lax.psum(x, 'i', axis_index_groups=[[0, 1], [2, 3]]), mesh=auto(i=4), in_specs=P('i'),
                out_specs=P('i'), check_vma=False)(ar(4))
)py");
  // ---- Names. ----
  t.Fails("collectives/psum_outside", "unbound axis name", R"py(
lax.psum(ar(2), 'i')
)py")
      .For("A13");
  t.Fails("collectives/psum_over_an_unknown_axis", "Found an unbound axis name: q", R"py(
shard_map(lambda x: lax.psum(x, 'q'), mesh=auto(i=2), in_specs=P('i'), out_specs=P(), check_vma=False)(ar(2))
)py")
      .Note("checked, an assertion of 0.10.2 fails first");
  t.Fails("collectives/all_gather_outside", "unbound axis name", R"py(
lax.all_gather(ar(2), 'i')
)py");
  t.Fails("collectives/axis_index_outside", "unbound axis name", R"py(
lax.axis_index('i')
)py");
  t.Fails("collectives/axis_size_outside", "unbound axis name", R"py(
lax.axis_size('i')
)py");
  t.Fails("collectives/psum_over_an_auto_axis", "unbound axis name", R"py(
shard_map(lambda x: lax.psum(x, 'j'), mesh=auto(i=2, j=2), in_specs=P('i'), out_specs=P('i'), axis_names={'i'})(ar(2))
)py");
  // ---- Where one is. ----
  t.Gives("collectives/axis_index", R"py(
f = lambda: lax.axis_index('i').reshape(1)
out = shard_map(f, mesh=auto(i=4), in_specs=(), out_specs=P('i'))()
)py");
  t.Gives("collectives/axis_index_of_two_axes", R"py(
f = lambda: lax.axis_index(('i', 'j'))[None, None]
out = shard_map(f, mesh=auto(i=4, j=2), in_specs=(), out_specs=P('i', 'j'))()
)py")
      .For("A13");
  t.Gives("collectives/axis_index_in_another_order", R"py(
f = lambda: lax.axis_index(('j', 'i'))[None, None]
out = shard_map(f, mesh=auto(i=4, j=2), in_specs=(), out_specs=P('i', 'j'))()
)py");
  t.Gives("collectives/axis_size_is_static", R"py(
def f(x):
    return x + jnp.zeros((lax.axis_size('i'),), jnp.float32)
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4)), 
)py")
      .For("A13");
  t.Gives("collectives/axis_size_of_two_axes", R"py(
sizes = []
def f(x):
    sizes.append(lax.axis_size(('i', 'j')))
    return x
shard_map(f, mesh=auto(i=4, j=2), in_specs=P('i'), out_specs=P('i'))(ar(4))
out = sizes
)py");
  // ---- all_gather. ----
  t.Gives("collectives/all_gather_stacks", R"py(
f = lambda x: see(lax.all_gather(x, 'i'))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4)), seen
)py");
  t.Gives("collectives/all_gather_tiled", R"py(
f = lambda x: see(lax.all_gather(x, 'i', tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4)), seen
)py")
      .For("A11");
  t.Gives("collectives/all_gather_on_another_dim", R"py(
f = lambda x: see(lax.all_gather(x, 'i', axis=1))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4, 3)), seen
)py");
  t.Gives("collectives/all_gather_tiled_on_another_dim", R"py(
f = lambda x: see(lax.all_gather(x, 'i', axis=1, tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4, 3)), seen
)py");
  t.Gives("collectives/all_gather_to_invarying", R"py(
f = lambda x: see(lax.all_gather(x, 'i', tiled=True, to='invarying'))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P())(ar(4)), seen
)py")
      .For("A11");
  t.Gives("collectives/all_gather_over_two_axes", R"py(
f = lambda x: see(lax.all_gather(x, ('i', 'j'), tiled=True))
out = shard_map(f, mesh=auto(i=2, j=2), in_specs=P(('i', 'j')), out_specs=P(('i', 'j')))(ints(4)), seen
)py");
  t.Gives("collectives/all_gather_of_invarying", R"py(
f = lambda x: see(lax.all_gather(x, 'i'))
out = shard_map(f, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ints(2)), seen
)py");
  // ---- psum_scatter. ----
  t.Gives("collectives/psum_scatter_tiled", R"py(
f = lambda x: see(lax.psum_scatter(x, 'i', scatter_dimension=1, tiled=True))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4, 4)), seen
)py")
      .For("A11");
  t.Gives("collectives/psum_scatter_removes_the_dim", R"py(
f = lambda x: see(lax.psum_scatter(x[0], 'i'))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(2, 2, 3)), seen
)py");
  t.Fails("collectives/psum_scatter_of_an_indivisible_dim", "must be divisible by shard_count 2",
          R"py(
shard_map(lambda x: lax.psum_scatter(x, 'i', tiled=True), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(6))
)py");
  t.Fails("collectives/psum_scatter_of_another_size", "must match shard count 2", R"py(
shard_map(lambda x: lax.psum_scatter(x, 'i'), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(6))
)py");
  t.Gives("collectives/psum_scatter_of_invarying", R"py(
f = lambda x: see(lax.psum_scatter(x, 'i', tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ar(4)), seen
)py");
  // ---- ppermute. ----
  t.Gives("collectives/ppermute_partial", R"py(
f = lambda x: see(lax.ppermute(x, 'i', [(0, 1), (1, 2)]))
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(jnp.array([10., 20., 30., 40.])), seen
)py")
      .For("A12");
  t.Gives("collectives/ppermute_rotation", R"py(
f = lambda x: lax.ppermute(x, 'i', [(k, (k + 1) % 4) for k in range(4)])
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(jnp.array([10., 20., 30., 40.]))
)py")
      .For("A12");
  t.Gives("collectives/ppermute_of_invarying", R"py(
f = lambda x: see(lax.ppermute(x, 'i', [(0, 1)]))
out = shard_map(f, mesh=auto(i=2), in_specs=P(), out_specs=P('i'))(ints(2) + 1), seen
)py");
  t.Gives("collectives/ppermute_over_two_axes", R"py(
f = lambda x: lax.ppermute(x, ('i', 'j'), [(k, (k + 1) % 4) for k in range(4)])
out = shard_map(f, mesh=auto(i=2, j=2), in_specs=P(('i', 'j')), out_specs=P(('i', 'j')))(ints(4))
)py");
  t.Fails("collectives/ppermute_to_one_destination_twice",
          "sources and destinations must be unique", R"py(
shard_map(lambda x: lax.ppermute(x, 'i', [(0, 1), (2, 1)]), mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py")
      .For("A12");
  t.Fails("collectives/ppermute_from_one_source_twice", "sources and destinations must be unique",
          R"py(
shard_map(lambda x: lax.ppermute(x, 'i', [(0, 1), (0, 2)]), mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ar(4))
)py");
  t.Gives("collectives/pshuffle", R"py(
f = lambda x: lax.pshuffle(x, 'i', [2, 0, 1])
out = shard_map(f, mesh=auto(i=3), in_specs=P('i'), out_specs=P('i'))(ints(3))
)py");
  // ---- all_to_all. ----
  t.Gives("collectives/all_to_all_tiled", R"py(
f = lambda x: see(lax.all_to_all(x, 'i', 1, 0, tiled=True))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i', None), out_specs=P(None, 'i'))(ints(4, 2)), seen
)py")
      .For("A13");
  t.Gives("collectives/all_to_all", R"py(
f = lambda x: see(lax.all_to_all(x, 'i', 0, 1))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(4, 3)), seen
)py");
  t.Gives("collectives/all_to_all_on_one_dim", R"py(
f = lambda x: lax.all_to_all(x, 'i', 0, 0, tiled=True)
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ints(8))
)py");
  t.Fails("collectives/all_to_all_of_another_size", "all_to_all", R"py(
shard_map(lambda x: lax.all_to_all(x, 'i', 0, 0), mesh=auto(i=2), in_specs=P('i'), out_specs=P('i'))(ar(6, 2))
)py");
  t.Gives("collectives/pswapaxes", R"py(
f = lambda x: lax.pswapaxes(x, 'i', 0)
out = shard_map(f, mesh=auto(i=2), in_specs=P(None, 'i'), out_specs=P(None, 'i'))(ints(2, 4))
)py");
  t.Gives("collectives/pbroadcast", R"py(
f = lambda x: see(lax.pbroadcast(x, 'i', 1))
out = jax.eval_shape(shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i')), ints(4)), seen
)py")
      .Note("CPUs have no lowering of it");
  t.Gives("collectives/matmul_over_two_axes", R"py(
f = lambda a, b: lax.psum(a @ b, 'y')
out = shard_map(f, mesh=auto(x=4, y=2), in_specs=(P('x', 'y'), P('y', None)), out_specs=P('x', None))(
    ar(8, 16), ar(16, 4))
)py")
      .For("A14");
  t.Gives("collectives/ring_of_sums", R"py(
def f(x):
    total = x
    for _ in range(3):
        x = lax.ppermute(x, 'i', [(k, (k + 1) % 4) for k in range(4)])
        total = total + x
    return see(total)
out = shard_map(f, mesh=auto(i=4), in_specs=P('i'), out_specs=P('i'))(ints(4)), seen
)py");
}

}  // namespace tessera::semantics
