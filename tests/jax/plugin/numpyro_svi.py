"""NumPyro: stochastic variational inference. A logistic regression has two guides, and the labels
of a Gaussian mixture are summed out.
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import optim
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta, AutoMultivariateNormal, AutoNormal


def logistic(x, y=None):
    weights = numpyro.sample("weights", dist.Laplace(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def mixture(data):
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.full(2, 2.0)))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("components", 2):
        centres = numpyro.sample("centres", dist.Normal(0.0, 5.0))
    with numpyro.plate("data", len(data)):
        numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(centres, scale)), obs=data)


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    y = (rng.uniform(size=200) < 1 / (1 + np.exp(-x @ np.array([2.0, -1.0, 0.0, 0.5])))).astype(np.int32)
    saved = {}
    for name, guide in ("normal", AutoNormal(logistic)), ("full", AutoMultivariateNormal(logistic)):
        svi = SVI(logistic, guide, optim.Adam(0.02), Trace_ELBO(num_particles=4))
        result = svi.run(jax.random.key(1), 150, jnp.asarray(x), jnp.asarray(y), progress_bar=name == "full")
        median = guide.median(result.params)["weights"]
        posterior = guide.sample_posterior(jax.random.key(2), result.params, sample_shape=(200,))["weights"]
        print(f"{name}: loss {result.losses[0]:.1f} -> {result.losses[-1]:.1f}, weights {np.asarray(median).round(2)}")
        saved |= {f"{name}_losses": result.losses, f"{name}_median": median, f"{name}_std": posterior.std(0)}
    prior = Predictive(logistic, num_samples=100)(jax.random.key(3), jnp.asarray(x[:50]))["y"]
    print("of the prior, ones:", float(prior.mean()))

    data = np.concatenate([rng.normal(-2, 0.7, 60), rng.normal(3, 0.7, 40)]).astype(np.float32)
    values = {"centres": jnp.array([-1.0, 1.0])}
    guide = AutoDelta(mixture, init_loc_fn=numpyro.infer.init_to_value(values=values))
    result = SVI(mixture, guide, optim.ClippedAdam(0.05), Trace_ELBO()).run(
        jax.random.key(4), 200, jnp.asarray(data), progress_bar=False)
    print("the mixture has centres", result.params["centres_auto_loc"], "shares", result.params["shares_auto_loc"])
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], prior=prior.mean(0), mixture_losses=result.losses, **result.params, **saved)


if __name__ == "__main__":
    main()
