"""Flax NNX: the MNIST tutorial on scikit-learn's digits: a CNN with dropout, nnx.Optimizer and nnx.MultiMetric."""
import sys
from functools import partial

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits


class CNN(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 8, kernel_size=(3, 3), use_bias=False, rngs=rngs)
        self.batch_norm1 = nnx.BatchNorm(8, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=0.025)
        self.conv2 = nnx.Conv(8, 16, kernel_size=(3, 3), use_bias=False, rngs=rngs)
        self.batch_norm2 = nnx.BatchNorm(16, rngs=rngs)
        self.avg_pool = partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))
        self.linear1 = nnx.Linear(64, 32, rngs=rngs)
        self.dropout2 = nnx.Dropout(rate=0.025)
        self.linear2 = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x, rngs: nnx.Rngs | None = None):
        x = self.avg_pool(nnx.relu(self.batch_norm1(self.dropout1(self.conv1(x), rngs=rngs))))
        x = self.avg_pool(nnx.relu(self.batch_norm2(self.conv2(x))))
        x = x.reshape(x.shape[0], -1)
        x = nnx.relu(self.dropout2(self.linear1(x), rngs=rngs))
        return self.linear2(x)


def loss_fn(model, rngs, batch):
    logits = model(batch["image"], rngs)
    return optax.softmax_cross_entropy_with_integer_labels(logits=logits, labels=batch["label"]).mean(), logits


@nnx.jit
def train_step(model, optimizer, metrics, rngs, batch):
    grad_fn = nnx.value_and_grad(loss_fn, has_aux=True)
    (loss, logits), grads = grad_fn(model, rngs, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    optimizer.update(model, grads)


@nnx.jit
def eval_step(model, metrics, batch):
    loss, logits = loss_fn(model, None, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    return logits


def main():
    digits = load_digits()
    images = (digits.images[..., None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(1).permutation(len(labels))
    train, test = order[:1280], order[1280:]
    model = CNN(rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(5e-3, 0.9), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    rngs = nnx.Rngs(dropout=1)
    losses, accuracies = [], []
    for batches in train.reshape(4, -1, 64):
        model.train()
        for b in batches:
            train_step(model, optimizer, metrics, rngs, {"image": images[b], "label": labels[b]})
        computed = metrics.compute()
        losses.append(computed["loss"])
        metrics.reset()
        model.eval()
        logits = eval_step(model, metrics, {"image": images[test], "label": labels[test]})
        accuracies.append(metrics.compute()["accuracy"])
        metrics.reset()
        print(f"train loss {losses[-1]:.4f}, test accuracy {accuracies[-1]:.4f}")
    _, params, rest = nnx.split(model, nnx.Param, ...)
    print("trained", sum(p.size for p in jax.tree.leaves(params)), "parameters")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), accuracies=np.stack(accuracies), logits=logits,
                 kernel=model.linear2.kernel[...], running_mean=model.batch_norm1.mean[...])


if __name__ == "__main__":
    main()
