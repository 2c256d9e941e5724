"""A mixture of experts: each device has some experts and some tokens, and all_to_all sends tokens to their experts."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

# TOKENS is the number of tokens in a group
EXPERTS, SIZE, HIDDEN, GROUPS, TOKENS = 8, 16, 32, 4, 64
CAPACITY = 2 * TOKENS // EXPERTS
SPECS = {"router": P(), "up": P("expert"), "down": P("expert")}


def init(key):
    keys = jax.random.split(key, 3)
    return {"router": jax.random.normal(keys[0], (SIZE, EXPERTS)) / 4,
            "up": jax.random.normal(keys[1], (EXPERTS, SIZE, HIDDEN)) / 4,
            "down": jax.random.normal(keys[2], (EXPERTS, HIDDEN, SIZE)) / 6}


def route(x, router):
    """Returns which token of a group goes to which place of which expert, with which weight, and
    how balanced that is."""
    probs = jax.nn.softmax(x @ router)
    weight, chosen = jax.lax.top_k(probs, 1)
    one_hot = jax.nn.one_hot(chosen[:, 0], EXPERTS)
    place = jnp.sum((jnp.cumsum(one_hot, axis=0) - 1) * one_hot, axis=1).astype(jnp.int32)
    # tokens beyond the capacity are dropped
    dispatch = one_hot[:, :, None] * jax.nn.one_hot(place, CAPACITY)[:, None]
    balance = EXPERTS * jnp.sum(one_hot.mean(0) * probs.mean(0))
    return dispatch, dispatch * weight[:, :, None], balance


def layer(params, x):
    """Applies the layer on one device. `x` holds the device's groups, and params["up"] its
    experts."""
    dispatch, combine, balance = jax.vmap(route, in_axes=(0, None))(x, params["router"])
    sent = jnp.einsum("gtec,gtd->egcd", dispatch, x)
    here = jax.lax.all_to_all(sent, "expert", split_axis=0, concat_axis=1, tiled=True)
    hidden = jax.nn.relu(jnp.einsum("egcd,edh->egch", here, params["up"]))
    done = jnp.einsum("egch,ehd->egcd", hidden, params["down"])
    back = jax.lax.all_to_all(done, "expert", split_axis=1, concat_axis=0, tiled=True)
    return x + jnp.einsum("gtec,egcd->gtd", combine, back), jax.lax.pmean(balance.mean(), "expert")


def main():
    mesh = jax.make_mesh((len(jax.devices()),), ("expert",))
    params = jax.device_put(init(jax.random.key(0)), jax.tree.map(lambda s: NamedSharding(mesh, s), SPECS))
    optimizer = optax.adam(1e-2)
    opt_state = optimizer.init(params)
    apply = jax.shard_map(layer, mesh=mesh, in_specs=(SPECS, P("expert")), out_specs=(P("expert"), P()))

    @jax.jit
    def train_step(params, opt_state, x, y):
        def loss_fn(params):
            predicted, balance = apply(params, x)
            error = jnp.mean((predicted - y) ** 2)
            return error + 0.01 * balance, (error, balance)
        grads, metrics = jax.grad(loss_fn, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, metrics

    rng, history = np.random.default_rng(0), []
    centres = rng.normal(size=(EXPERTS, SIZE))
    for step in range(30):
        kind = rng.integers(0, EXPERTS, (GROUPS, TOKENS))
        x = (centres[kind] + 0.3 * rng.normal(size=(GROUPS, TOKENS, SIZE))).astype(np.float32)
        y = np.roll(x, 1, axis=-1) * np.where(kind % 2, 1, -1)[..., None].astype(np.float32)
        x, y = jax.device_put((x, y), NamedSharding(mesh, P("expert")))
        params, opt_state, metrics = train_step(params, opt_state, x, y)
        history.append(jnp.stack(metrics))
        if step % 10 == 9:
            print("step {}: error {:.4f}, balance {:.4f}".format(step + 1, *metrics))
    predicted, _ = jax.jit(apply)(params, x)
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], history=np.stack(history), predicted=predicted, router=params["router"])


if __name__ == "__main__":
    main()
