"""BlackJAX: its quick start. Window adaptation, then the no-U-turn sampler over many chains at once, on all devices."""
import sys

import blackjax
import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

CHAINS = 8


def inference_loop(key, kernel, states, steps):
    @jax.jit
    def run(states, key):
        def one_step(states, key):
            states, infos = jax.vmap(kernel)(jax.random.split(key, CHAINS), states)
            return states, (states, infos)
        return jax.lax.scan(one_step, states, jax.random.split(key, steps))[1]
    return run(states, key)


def main():
    rng = np.random.default_rng(0)
    observed = jnp.asarray(rng.normal(10.0, 2.0, size=500), dtype=jnp.float32)

    def log_density(x):
        scale = jnp.exp(x["log_scale"])
        return (jnp.sum(stats.norm.logpdf(observed, x["loc"], scale)) + x["log_scale"]
                + stats.norm.logpdf(x["loc"], 0, 20))

    # Hamiltonian Monte Carlo with settings that were chosen by hand.
    hmc = blackjax.hmc(log_density, step_size=0.02, inverse_mass_matrix=jnp.array([0.5, 0.05]),
                       num_integration_steps=10)
    starts = {"loc": 9.5 + jnp.arange(CHAINS) / CHAINS, "log_scale": jnp.full(CHAINS, 0.6)}
    mesh = jax.make_mesh((len(jax.devices()),), ("chains",), axis_types=(jax.sharding.AxisType.Auto,))
    starts = jax.device_put(starts, NamedSharding(mesh, P("chains")))
    first, _ = inference_loop(jax.random.key(3), hmc.step, jax.vmap(hmc.init)(starts), 5)

    warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, parameters), _ = warmup.run(jax.random.key(0), {"loc": 9.0, "log_scale": 0.5}, num_steps=400)
    print("adapted:", jax.tree.map(np.asarray, parameters))
    nuts = blackjax.nuts(log_density, **parameters)
    states, infos = inference_loop(jax.random.key(1), nuts.step, jax.vmap(nuts.init)(starts), 200)
    loc, scale = states.position["loc"], jnp.exp(states.position["log_scale"])
    print(f"loc {loc.mean():.3f} +- {loc.std():.3f}, scale {scale.mean():.3f} +- {scale.std():.3f}, "
          f"acceptance {infos.acceptance_rate.mean():.2f}")
    r_hat = blackjax.diagnostics.potential_scale_reduction(loc, chain_axis=1, sample_axis=0)
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], hmc_loc=first.position["loc"], hmc_density=first.logdensity, loc=loc.mean(),
                 loc_std=loc.std(), scale=scale.mean(), scale_std=scale.std(), r_hat=r_hat)


if __name__ == "__main__":
    main()
