"""Flax linen: an MLP learns digits with pmap, as in Flax's ImageNet example: each device has a part of each batch."""
import functools
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import jax_utils
from flax.training import common_utils, train_state
from sklearn.datasets import load_digits


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in 64, 32:
            x = nn.relu(nn.LayerNorm()(nn.Dense(width)(x)))
        return nn.Dense(10)(x)


@functools.partial(jax.pmap, axis_name="batch", donate_argnums=0)
def train_step(state, images, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        one_hot = common_utils.onehot(labels, 10)
        return optax.softmax_cross_entropy(logits, one_hot).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    grads = jax.lax.pmean(grads, "batch")
    metrics = jax.lax.pmean({"loss": loss, "accuracy": jnp.mean(logits.argmax(-1) == labels)}, "batch")
    return state.apply_gradients(grads=grads), metrics


@functools.partial(jax.pmap, axis_name="batch")
def count_right(state, images, labels):
    logits = state.apply_fn({"params": state.params}, images)
    return jax.lax.psum(jnp.sum(logits.argmax(-1) == labels), "batch")


def main():
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:1536], order[1536:1792]
    model = MLP()
    params = model.init(jax.random.key(0), images[:1])["params"]
    tx = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, momentum=0.9, nesterov=True))
    state = jax_utils.replicate(train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx))

    batches = ((images[b], labels[b]) for _ in range(3) for b in train.reshape(-1, 128))
    history = []
    for batch in jax_utils.prefetch_to_device(map(common_utils.shard, batches), 2):
        state, metrics = train_step(state, *batch)
        history.append(metrics)
    history = common_utils.get_metrics(history)
    right = jax_utils.unreplicate(count_right(state, *common_utils.shard((images[test], labels[test]))))
    print(f"on {jax.local_device_count()} devices: loss {history['loss'][-1]:.4f}, {right} of {len(test)} right")
    kernel = jax_utils.unreplicate(state).params["Dense_2"]["kernel"]
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=history["loss"], accuracy=history["accuracy"], right=right, kernel=kernel)


if __name__ == "__main__":
    main()
