"""Optax: AdamW with a warm-up and cosine schedule, clipping, masked weight decay, and accumulation of gradients."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS, EVERY = 60, 4


def init(key):
    keys = jax.random.split(key, 3)
    sizes = (8, 32, 32, 1)
    return [{"w": jax.random.normal(k, (m, n)) / np.sqrt(m), "b": jnp.zeros(n)}
            for k, m, n in zip(keys, sizes, sizes[1:])]


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.swish(x @ layer["w"] + layer["b"])
    return (x @ params[-1]["w"] + params[-1]["b"])[:, 0]


def loss_fn(params, batch):
    x, y = batch
    return optax.losses.huber_loss(predict(params, x), y, delta=1.0).mean()


def main():
    schedule = optax.warmup_cosine_decay_schedule(
        init_value=0.0, peak_value=2e-2, warmup_steps=3, decay_steps=STEPS // EVERY, end_value=1e-4)
    optimizer = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.inject_hyperparams(optax.adamw, static_args="mask")(
            learning_rate=schedule, weight_decay=1e-2, mask=lambda params: jax.tree.map(lambda p: p.ndim > 1, params)))
    optimizer = optax.MultiSteps(optimizer, every_k_schedule=EVERY, should_skip_update_fn=optax.skip_not_finite)

    params = init(jax.random.key(0))
    average = params
    opt_state = optimizer.init(params)

    @jax.jit
    def train_step(params, average, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        average = optax.incremental_update(params, average, step_size=0.1)
        return params, average, opt_state, {"loss": loss, "norm": optax.global_norm(grads)}

    rng, history, rates = np.random.default_rng(0), [], []
    for step in range(STEPS):
        x = rng.normal(size=(32, 8)).astype(np.float32)
        y = (np.sin(x[:, 0]) + x[:, 1] * x[:, 2]).astype(np.float32)
        if step == 10:
            y[0] = np.nan  # skip_not_finite leaves this step out
        params, average, opt_state, metrics = train_step(params, average, opt_state, (x, y))
        history.append(metrics)
        rates.append(opt_state.inner_opt_state[1].hyperparams["learning_rate"])
        if step % 20 == 19:
            print(f"step {step + 1}: loss {metrics['loss']:.4f}, learning rate {rates[-1]:.5f}")
    kept = [m for step, m in enumerate(history) if step != 10]
    print("updates:", int(opt_state.gradient_step), "of", STEPS, "steps; the last was left out:",
          bool(opt_state.skip_state["should_skip"]))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack([m["loss"] for m in kept]), norms=np.stack([m["norm"] for m in kept]),
                 rates=np.stack(rates), updates=opt_state.gradient_step, w=params[1]["w"], average=average[1]["w"])


if __name__ == "__main__":
    main()
