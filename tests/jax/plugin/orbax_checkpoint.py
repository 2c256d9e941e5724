"""Orbax: a sharded train state is saved while it trains, is restored with its shardings, and trains on."""
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P

OPTIMIZER = optax.adam(1e-2)


def init_state(mesh):
    keys = jax.random.split(jax.random.key(0))
    params = {"up": jax.random.normal(keys[0], (8, 64)) / 3, "down": jax.random.normal(keys[1], (64, 4)) / 8}
    state = {"params": params, "opt_state": OPTIMIZER.init(params), "step": jnp.zeros((), jnp.int32),
             "average": jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)}

    def sharding(x):
        return NamedSharding(mesh, {(8, 64): P(None, "model"), (64, 4): P("model")}.get(x.shape, P()))
    return jax.device_put(state, jax.tree.map(sharding, state))


@jax.jit
def train_step(state, x, y):
    def loss_fn(params):
        return jnp.mean((jax.nn.relu(x @ params["up"]) @ params["down"] - y) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state["params"])
    updates, opt_state = OPTIMIZER.update(grads, state["opt_state"])
    params = optax.apply_updates(state["params"], updates)
    average = jax.tree.map(lambda a, p: (0.9 * a.astype(p.dtype) + 0.1 * p).astype(a.dtype), state["average"], params)
    return {"params": params, "opt_state": opt_state, "step": state["step"] + 1, "average": average}, loss


def batch(step):
    x = np.random.default_rng(step).normal(size=(32, 8)).astype(np.float32)
    return x, np.stack([x[:, 0] * x[:, 1], x[:, 2] ** 2, x[:, 3], np.sin(x[:, 4])], axis=1)


def main():
    mesh = jax.make_mesh((len(jax.devices()),), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
    state, losses = init_state(mesh), []
    with tempfile.TemporaryDirectory() as folder:
        options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=5)
        with ocp.CheckpointManager(folder, options=options) as manager:
            for step in range(15):
                state, loss = train_step(state, *batch(step))
                losses.append(float(loss))
                manager.save(step, args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), extra=ocp.args.JsonSave({"losses": list(losses)})))
            manager.wait_until_finished()
            print("checkpoints of steps", manager.all_steps())
        with ocp.CheckpointManager(folder) as manager:
            def as_saved(x):
                return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
            restored = manager.restore(5, args=ocp.args.Composite(
                state=ocp.args.StandardRestore(jax.tree.map(as_saved, init_state(mesh))),
                extra=ocp.args.JsonRestore()))
    again, relosses = restored["state"], restored["extra"]["losses"]
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(init_state(mesh))):
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim), (a.sharding, b.sharding)
    for step in range(int(again["step"]), 15):
        again, loss = train_step(again, *batch(step))
        relosses.append(float(loss))
    same = jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), state, again)
    print("the same to the bit after going on:", all(jax.tree.leaves(same)))
    assert losses == relosses and all(jax.tree.leaves(same))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.array(losses, np.float32), up=again["params"]["up"],
                 average=again["average"]["down"].astype(jnp.float32))


if __name__ == "__main__":
    main()
