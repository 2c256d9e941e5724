"""Reads and writes at sharded indices, on an Explicit axis: docs/seeds/gather_scatter.md."""
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

jax.set_mesh(jax.make_mesh((2,), ("x",)))
table = jax.reshard(jnp.arange(12.).reshape(4, 3), P("x"))
i = jax.reshard(jnp.array([0, 1, 2, 0]), P("x"))
j = jax.reshard(jnp.array([2, 0, 1, 2]), P("x"))


@jax.jit
def moves(x, to, source):
    return x.at[:, to].set(x[:, source])


for x in table, jax.reshard(table, P()):
    try:
        moves(x, i, j)
    except Exception as e:
        print(f"{type(e).__name__}: {e}")


@jax.jit
def says_where(x, to, source):
    columns = x.at[:, source].get(out_sharding=P("x"))
    return x.at[:, to].set(columns, out_sharding=P("x"))


print(says_where(table, i, j))


@jax.jit
@jax.vmap
def in_each_row(row, to, source):
    return row.at[to].set(row[source])


print(in_each_row(table, i, j))
