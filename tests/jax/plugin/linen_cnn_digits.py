"""Flax linen: a convolutional network with batch normalisation and dropout learns handwritten digits."""
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from sklearn.datasets import load_digits


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        for features in 8, 16:
            x = nn.Conv(features, (3, 3), use_bias=False)(x)
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
            x = nn.relu(x)
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(10)(x)


class TrainState(train_state.TrainState):
    batch_stats: Any
    key: jax.Array


@jax.jit
def train_step(state, images, labels):
    dropout_key = jax.random.fold_in(state.key, state.step)

    def loss_fn(params):
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, images, train=True,
            rngs={"dropout": dropout_key}, mutable=["batch_stats"])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, (logits, updates)

    (loss, (logits, updates)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=updates["batch_stats"])
    return state, {"loss": loss, "accuracy": jnp.mean(logits.argmax(-1) == labels)}


@jax.jit
def evaluate(state, images, labels):
    logits = state.apply_fn({"params": state.params, "batch_stats": state.batch_stats}, images, train=False)
    return logits, jnp.mean(logits.argmax(-1) == labels)


def main():
    digits = load_digits()
    images = (digits.images[..., None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:1536], order[1536:]

    model = CNN()
    init_key, dropout_key = jax.random.split(jax.random.key(0))
    variables = model.init(init_key, images[:1], train=False)
    print(model.tabulate(init_key, images[:1], train=False, console_kwargs={"width": 100}))
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(3e-3),
                              batch_stats=variables["batch_stats"], key=dropout_key)
    losses = []
    for epoch in range(2):
        for batch in train.reshape(-1, 128):
            state, metrics = train_step(state, images[batch], labels[batch])
            losses.append(metrics["loss"])
        logits, accuracy = evaluate(state, images[test], labels[test])
        print(f"epoch {epoch + 1}: loss {losses[-1]:.3f}, accuracy of the test {accuracy:.3f}")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), logits=logits,
                 mean=state.batch_stats["BatchNorm_1"]["mean"], kernel=state.params["Dense_0"]["kernel"])


if __name__ == "__main__":
    main()
