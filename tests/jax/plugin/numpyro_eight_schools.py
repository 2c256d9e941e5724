"""NumPyro: the eight schools example of its front page, with four chains. The chains run in
parallel if there are as many devices, and vectorised otherwise.
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS, log_likelihood
from numpyro.infer.reparam import TransformReparam

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
CHAINS = 4


def eight_schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", len(sigma)):
        with numpyro.handlers.reparam(config={"theta": TransformReparam()}):
            theta = numpyro.sample("theta", dist.TransformedDistribution(
                dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(mu, tau)))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def main():
    method = "parallel" if len(jax.devices()) >= CHAINS else "vectorized"
    kernel = NUTS(eight_schools, step_size=0.1, target_accept_prob=0.9)
    mcmc = MCMC(kernel, num_warmup=500, num_samples=1000, num_chains=CHAINS, chain_method=method,
                progress_bar=False)
    # Record the first steps of the warm-up, and then run the whole sampler.
    mcmc.warmup(jax.random.key(0), jnp.asarray(SIGMA), y=jnp.asarray(Y), collect_warmup=True)
    early = mcmc.get_samples(group_by_chain=True)["mu"][:, :3]
    mcmc.run(jax.random.key(1), jnp.asarray(SIGMA), y=jnp.asarray(Y))
    mcmc.print_summary()
    samples = mcmc.get_samples(group_by_chain=True)
    stats = summary({name: samples[name] for name in ("mu", "tau", "theta")})
    densities = log_likelihood(eight_schools, mcmc.get_samples(), jnp.asarray(SIGMA), y=jnp.asarray(Y))["obs"]
    expected = jax.scipy.special.logsumexp(densities, axis=0) - np.log(densities.shape[0])
    print(f"chains are {method}; expected log pointwise density {expected.sum():.2f}")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], early_mu=early, mu=samples["mu"].mean(), theta=samples["theta"].mean((0, 1)),
                 theta_std=samples["theta"].std((0, 1)), log_density=expected,
                 r_hat=np.float32(max(np.max(s["r_hat"]) for s in stats.values())))


if __name__ == "__main__":
    main()
