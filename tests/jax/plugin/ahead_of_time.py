"""Ahead of time: a train loop that prints is lowered, inspected, compiled and run. Another program is
exported and read back, and checkify finds an error."""
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify


def loss_fn(w, x, y):
    return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2)


def train(w, x, y, rate):
    def step(i, carry):
        w, losses = carry
        loss, grads = jax.value_and_grad(loss_fn)(w, x, y)
        w = jax.tree.map(lambda p, g: p - rate * g, w, grads)
        jax.lax.cond(i % 10 == 0, lambda: jax.debug.print("step {i}: loss {loss:.4f}", i=i, loss=loss), lambda: None)
        return w, losses.at[i].set(loss)
    w, losses = jax.lax.fori_loop(0, 30, step, (w, jnp.zeros(30)))
    jax.debug.print("at the end {}", losses[-1])
    return w, losses


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 6)).astype(np.float32)
    y = np.sin(x.sum(1, keepdims=True)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0))
    w = {"in": jax.random.normal(keys[0], (6, 24)) / 2, "out": jax.random.normal(keys[1], (24, 1)) / 5}

    traced = jax.jit(train, donate_argnums=0).trace(w, x, y, 0.1)
    lowered = traced.lower()
    print("the program has", len(lowered.as_text().splitlines()), "lines of StableHLO")
    compiled = lowered.compile()
    given = jax.tree.map(jnp.copy, w)
    trained, losses = compiled(given, x, y, 0.1)
    jax.effects_barrier()
    memory = compiled.memory_analysis()
    gradient = jax.jit(jax.grad(loss_fn)).lower(w, x, y).compile()
    flops = gradient.cost_analysis()["flops"]
    print("arguments have", memory.argument_size_in_bytes, "bytes")
    assert flops > 4 * 64 * 6 * 24, flops
    try:
        compiled(w, x[:8], y[:8], 0.1)
    except TypeError as error:
        print("other shapes are refused:", str(error).splitlines()[0])

    # This program works for every batch size. It is exported and read back.
    (batch,) = jax.export.symbolic_shape("batch")
    types = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), trained)
    exported = jax.export.export(jax.jit(lambda w, x: jnp.tanh(x @ w["in"]) @ w["out"]))(
        types, jax.ShapeDtypeStruct((batch, 6), jnp.float32))
    predicted = jax.export.deserialize(exported.serialize()).call(trained, x[:5])

    checked = jax.jit(checkify.checkify(lambda v: jnp.log(v) / v, errors=checkify.float_checks))
    error, _ = checked(jnp.array([1.0, 0.0]))
    print("checkify:", error.get())
    assert error.get() is not None
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=losses, predicted=predicted, out=trained["out"],
                 argument_bytes=np.int64(memory.argument_size_in_bytes))


if __name__ == "__main__":
    main()
