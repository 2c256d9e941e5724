"""pmap is shard_map over a mesh of its own: docs/seeds/pmap.md."""
import functools

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P


@functools.partial(jax.pmap, axis_name="i")
def share(x):
    return x / jax.lax.psum(x, "i")


print(share(jnp.arange(4.) + 1))

try:
    share(jnp.arange(8.) + 1)
except ValueError as e:
    print("ValueError:", e)
try:
    jax.pmap(lambda x: x / jax.lax.psum(x, "batch"), "i")(jnp.arange(4.))
except NameError as e:
    print("NameError:", e)

mesh = jax.make_mesh((4,), ("i",), (AxisType.Auto,))


@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
def share_of_blocks(block):
    return block / jax.lax.psum(block.sum(), "i")


print(share_of_blocks(jnp.arange(8.) + 1))
