"""Data-parallel training in plain JAX, with a process for each device: how JAX runs on several hosts.

  train_jax_processes.py RANK PORT
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

rank, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
rng = np.random.default_rng(0)
x = rng.normal(size=(512, 64)).astype(np.float32)
y = np.sin(x.sum(axis=1))
w = np.zeros(64, np.float32)


@jax.jit
def step(w, x, y):
    value, grad = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
    return w - 0.1 * grad, value


mine = slice(256 * rank, 256 * (rank + 1))
x, y = (jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), a[mine]) for a in (x, y))
w = jax.make_array_from_process_local_data(NamedSharding(mesh, P()), w)
while True:
    w, value = step(w, x, y)
    print(float(value), flush=True)
