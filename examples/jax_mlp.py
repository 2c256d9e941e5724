"""A small network in plain JAX, cut over all devices of the process. No line of this file knows about Tessera.

  python examples/jax_mlp.py              on JAX's own devices
  scripts/try_jax examples/jax_mlp.py     on four CPU devices of a Tessera cluster inside the process
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

rng = np.random.default_rng(0)
x = rng.normal(size=(512, 8)).astype(np.float32)
y = np.sin(x.sum(axis=1, keepdims=True)).astype(np.float32)
params = {
    "w1": rng.normal(size=(8, 64)).astype(np.float32) / 3,
    "b1": np.zeros(64, np.float32),
    "w2": rng.normal(size=(64, 1)).astype(np.float32) / 8,
}


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - y) ** 2)


@jax.jit
def step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


x, y, params = jax.device_put(x, rows), jax.device_put(y, rows), jax.device_put(params, whole)
for i in range(1, 501):
    params, value = step(params, x, y)
    if i == 1 or i % 100 == 0:
        print(f"step {i:3}  loss {value:.4f}", flush=True)
print(f"{len(jax.devices())} devices of {jax.default_backend()}; the batch is cut by {x.sharding.spec}")
