"""Data-parallel training with Ray: two actors compute gradients in JAX, and the driver averages them."""
import numpy as np
import ray


@ray.remote(num_cpus=1)
class Worker:
    def __init__(self, x, y):
        import jax
        import jax.numpy as jnp
        self.x, self.y = x, y
        self.value_and_grad = jax.jit(jax.value_and_grad(
            lambda w, x, y: jnp.mean((jnp.tanh(x @ w) - y) ** 2)))

    def step(self, w):
        value, grad = self.value_and_grad(w, self.x, self.y)
        return float(value), np.asarray(grad)


ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
rng = np.random.default_rng(0)
x = rng.normal(size=(512, 64)).astype(np.float32)
y = np.sin(x.sum(axis=1))
w = np.zeros(64, np.float32)
workers = [Worker.remote(x[:256], y[:256]), Worker.remote(x[256:], y[256:])]
while True:
    values, grads = zip(*ray.get([worker.step.remote(w) for worker in workers]))
    w = w - 0.1 * np.mean(grads, axis=0)
    print(np.mean(values), flush=True)
