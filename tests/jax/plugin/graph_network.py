"""A graph network with attention, by segment_sum and friends, classifies the nodes of a random
community graph."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

NODES, CLASSES, FEATURES, HIDDEN = 120, 4, 8, 16


def make_graph(rng):
    labels = rng.integers(0, CLASSES, NODES)
    chance = np.where(labels[:, None] == labels[None, :], 0.15, 0.01)
    upper = np.triu(rng.uniform(size=(NODES, NODES)) < chance, 1)
    senders, receivers = np.nonzero(upper | upper.T | np.eye(NODES, dtype=bool))
    features = np.eye(CLASSES, FEATURES)[labels] + 1.5 * rng.normal(size=(NODES, FEATURES))
    return features.astype(np.float32), senders, receivers, labels


def segment_softmax(scores, segments):
    scores = jnp.exp(scores - jax.ops.segment_max(scores, segments, NODES)[segments])
    return scores / jax.ops.segment_sum(scores, segments, NODES)[segments]


def layer(params, nodes, senders, receivers):
    nodes = nodes @ params["w"]
    scores = jax.nn.leaky_relu(nodes[senders] @ params["from"] + nodes[receivers] @ params["to"], 0.2)
    weights = segment_softmax(scores, receivers)
    return jax.ops.segment_sum(weights[:, None] * nodes[senders], receivers, NODES) + params["b"]


def init(key):
    params = []
    for k, (m, n) in zip(jax.random.split(key), ((FEATURES, HIDDEN), (HIDDEN, CLASSES))):
        keys = jax.random.split(k, 3)
        params.append({"w": jax.random.normal(keys[0], (m, n)) / np.sqrt(m), "b": jnp.zeros(n),
                       "from": 0.1 * jax.random.normal(keys[1], (n,)), "to": 0.1 * jax.random.normal(keys[2], (n,))})
    return params


def network(params, features, senders, receivers):
    hidden = jax.nn.elu(layer(params[0], features, senders, receivers))
    degree = jax.ops.segment_sum(jnp.ones(len(receivers)), receivers, NODES)
    return layer(params[1], hidden / jnp.sqrt(degree)[:, None] * 3, senders, receivers)


def main():
    rng = np.random.default_rng(0)
    features, senders, receivers, labels = make_graph(rng)
    train = jnp.asarray(rng.uniform(size=NODES) < 0.3)
    params, optimizer = init(jax.random.key(0)), optax.adam(2e-2)
    opt_state = optimizer.init(params)

    @jax.jit
    def train_step(params, opt_state):
        def loss_fn(params):
            logits = network(params, features, senders, receivers)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return jnp.sum(losses, where=train) / jnp.sum(train), logits
        (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        right = jnp.mean(logits.argmax(-1) == labels, where=~train)
        return optax.apply_updates(params, updates), opt_state, loss, right

    losses = []
    for step in range(40):
        params, opt_state, loss, right = train_step(params, opt_state)
        losses.append(loss)
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss:.4f}, {right:.3f} of the other nodes are right")
    logits = jax.jit(network)(params, features, senders, receivers)
    best = jax.ops.segment_max(logits.max(1), jnp.asarray(labels), CLASSES)
    order = jnp.lexsort((logits[:, 0], jnp.asarray(labels)))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), logits=logits, best=best, sorted_labels=labels[order],
                 edges=jnp.bincount(receivers, length=NODES))


if __name__ == "__main__":
    main()
