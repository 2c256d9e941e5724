"""Flax NNX: a generative adversarial network that learns a ring of Gaussians, two optimizers in turn."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class MLP(nnx.Module):
    def __init__(self, sizes, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(m, n, rngs=rngs) for m, n in zip(sizes, sizes[1:])])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.leaky_relu(layer(x), 0.2)
        return self.layers[-1](x)


def ring(rng, count):
    angles = 2 * np.pi * rng.integers(0, 8, count) / 8
    centres = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return (centres + 0.05 * rng.normal(size=(count, 2))).astype(np.float32)


@nnx.jit
def train_step(generator, discriminator, generator_optimizer, discriminator_optimizer, rngs, real):
    z = jax.random.normal(rngs.noise(), (real.shape[0], 8))

    def discriminator_loss(discriminator):
        fake = jax.lax.stop_gradient(generator(z))
        scores = jnp.concatenate([discriminator(real), discriminator(fake)])[:, 0]
        labels = jnp.concatenate([jnp.full(len(real), 0.9), jnp.zeros(len(fake))])
        penalty = jnp.mean(jax.vmap(jax.grad(lambda x: discriminator(x)[0]))(real) ** 2)
        return optax.sigmoid_binary_cross_entropy(scores, labels).mean() + 0.1 * penalty

    def generator_loss(generator):
        return -jax.nn.log_sigmoid(discriminator(generator(z))).mean()

    d_loss, d_grads = nnx.value_and_grad(discriminator_loss)(discriminator)
    discriminator_optimizer.update(discriminator, d_grads)
    g_loss, g_grads = nnx.value_and_grad(generator_loss)(generator)
    generator_optimizer.update(generator, g_grads)
    return g_loss, d_loss


def main():
    rngs = nnx.Rngs(params=0, noise=1)
    generator, discriminator = MLP([8, 32, 32, 2], rngs), MLP([2, 32, 32, 1], rngs)
    generator_optimizer = nnx.Optimizer(generator, optax.adam(2e-3, b1=0.5), wrt=nnx.Param)
    discriminator_optimizer = nnx.Optimizer(discriminator, optax.adam(2e-3, b1=0.5), wrt=nnx.Param)
    rng, losses = np.random.default_rng(0), []
    for step in range(40):
        losses.append(train_step(generator, discriminator, generator_optimizer, discriminator_optimizer, rngs,
                                 ring(rng, 64)))
        if step % 10 == 9:
            print("step {}: generator {:.4f}, discriminator {:.4f}".format(step + 1, *losses[-1]))
    samples = generator(jax.random.normal(rngs.noise(), (16, 8)))
    print("radius of what is generated:", float(jnp.linalg.norm(samples, axis=1).mean()))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.array(losses), samples=samples,
                 kernel=generator.layers[1].kernel[...])


if __name__ == "__main__":
    main()
