"""Flax linen: the variational autoencoder example, with convolutions down and transposed convolutions up, on digits."""
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

LATENTS = 4


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(8, (3, 3), strides=(2, 2))(x))
        x = nn.relu(nn.Conv(16, (3, 3), strides=(2, 2))(x))
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(LATENTS, name="mean")(x), nn.Dense(LATENTS, name="log_variance")(x)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, z):
        x = nn.relu(nn.Dense(2 * 2 * 16)(z)).reshape(z.shape[0], 2, 2, 16)
        x = nn.relu(nn.ConvTranspose(8, (3, 3), strides=(2, 2))(x))
        x = nn.ConvTranspose(1, (3, 3), strides=(2, 2))(x)
        return x[..., 0]


class VAE(nn.Module):
    def setup(self):
        self.encoder, self.decoder = Encoder(), Decoder()

    def __call__(self, x, key):
        mean, log_variance = self.encoder(x[..., None])
        z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        return self.decoder(z), mean, log_variance

    def generate(self, z):
        return nn.sigmoid(self.decoder(z))


@jax.vmap
def kl_divergence(mean, log_variance):
    return -0.5 * jnp.sum(1 + log_variance - mean**2 - jnp.exp(log_variance))


def main():
    images = (load_digits().images / 16).astype(np.float32)
    model, optimizer = VAE(), optax.adam(4e-3)
    params = model.init(jax.random.key(0), images[:1], jax.random.key(1))["params"]
    opt_state = optimizer.init(params)

    @jax.jit
    def train_step(params, opt_state, batch, key):
        def loss_fn(params):
            logits, mean, log_variance = model.apply({"params": params}, batch, key)
            reconstruction = optax.sigmoid_binary_cross_entropy(logits, batch).sum((1, 2)).mean()
            kl = kl_divergence(mean, log_variance).mean()
            return reconstruction + kl, {"reconstruction": reconstruction, "kl": kl}

        grads, metrics = jax.grad(loss_fn, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, metrics

    rng, history = np.random.default_rng(0), []
    for step in range(40):
        batch = images[rng.integers(0, len(images), 64)]
        params, opt_state, metrics = train_step(params, opt_state, batch, jax.random.fold_in(jax.random.key(2), step))
        history.append(jax.device_get(metrics))
        if step % 10 == 9:
            print(f"step {step + 1}: reconstruction {metrics['reconstruction']:.2f}, KL {metrics['kl']:.2f}")
    z = jax.random.normal(jax.random.key(3), (4, LATENTS))
    generated = jax.jit(lambda p, z: model.apply({"params": p}, z, method=model.generate))(params, z)
    for row in np.asarray(generated[0]):
        print("".join(" .:*#"[min(4, int(5 * v))] for v in row))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], reconstruction=np.stack([m["reconstruction"] for m in history]),
                 kl=np.stack([m["kl"] for m in history]), generated=generated)


if __name__ == "__main__":
    main()
