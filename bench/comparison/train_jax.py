"""Data-parallel training in plain JAX, in one process. On Tessera's devices the same file runs without a change."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
rng = np.random.default_rng(0)
x = rng.normal(size=(512, 64)).astype(np.float32)
y = np.sin(x.sum(axis=1))
w = np.zeros(64, np.float32)


@jax.jit
def step(w, x, y):
    value, grad = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
    return w - 0.1 * grad, value


x, y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (x, y))
w = jax.device_put(w, NamedSharding(mesh, P()))
while True:
    w, value = step(w, x, y)
    print(float(value), flush=True)
