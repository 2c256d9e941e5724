"""vmap says what is computed, shardings say where: docs/seeds/vmap_and_sharding.md."""
import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("data",), (AxisType.Auto,))
jax.set_mesh(mesh)


class Layer(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    name: str

    def __call__(self, x):
        return jnp.tanh(x @ self.weight + self.bias)


layer = Layer(jnp.ones((2, 3)), jnp.arange(3.), "the first")
xs = jnp.arange(8.).reshape(4, 2)

placed_by_vmap = eqx.filter_vmap(
    lambda x: jax.lax.with_sharding_constraint(x, P("batch")), axis_name="batch")
try:
    eqx.filter_jit(placed_by_vmap)(xs)
except ValueError as e:
    print("ValueError:", e)

of_each = eqx.filter_jit(eqx.filter_vmap(lambda f, x: f(x), in_axes=(None, 0)))
spread = eqx.filter_shard(xs, NamedSharding(mesh, P("data")))
for x in xs, spread:
    y = of_each(layer, x)
    print(y.sharding.spec, y.tolist())
