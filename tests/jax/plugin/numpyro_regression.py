"""NumPyro: Bayesian linear regression by the no-U-turn sampler, and its posterior predictive."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS, Predictive


def model(x, y=None):
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mean = numpyro.deterministic("mean", intercept + x @ slopes)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def main():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 3)).astype(np.float32)
    y = (0.5 + x @ np.array([1.0, -2.0, 0.3]) + 0.4 * rng.normal(size=100)).astype(np.float32)

    mcmc = MCMC(NUTS(model), num_warmup=300, num_samples=700, progress_bar=False)
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    mcmc.warmup(jax.random.key(0), **data, collect_warmup=True)
    early = mcmc.get_samples()["slopes"][:4]
    print("the first steps:", early, sep="\n")
    mcmc.run(mcmc.post_warmup_state.rng_key, **data, extra_fields=("potential_energy", "diverging"))
    mcmc.print_summary(exclude_deterministic=True)
    samples = mcmc.get_samples()
    print("divergent transitions:", int(mcmc.get_extra_fields()["diverging"].sum()))

    new_x = jnp.asarray([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    predictive = Predictive(model, samples)(jax.random.key(1), new_x)["y"]
    print("predicted:", predictive.mean(0), "+-", predictive.std(0))
    slopes = summary(mcmc.get_samples(group_by_chain=True))["slopes"]
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], early=early, slopes_mean=samples["slopes"].mean(0), slopes_std=samples["slopes"].std(0),
                 intercept_mean=samples["intercept"].mean(), sigma_mean=samples["sigma"].mean(),
                 predicted=predictive.mean(0), r_hat=slopes["r_hat"].astype(np.float32))


if __name__ == "__main__":
    main()
