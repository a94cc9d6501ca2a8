"""emcee over schwimmbad's MPIPool: rank 0 samples, the others evaluate the likelihood. As in emcee's tutorial on MPI."""

import sys

import emcee
import numpy as np
from schwimmbad import MPIPool


def log_prob(theta):
    return (
        -0.5 * np.sum(theta**2)
        - 0.1 * np.sum(theta**4)
        + sum(np.sin(k * theta[0]) / k for k in range(1, 200))
    )


with MPIPool() as pool:
    if not pool.is_master():
        pool.wait()
        sys.exit(0)
    np.random.seed(42)
    start = np.random.randn(24, 4)
    sampler = emcee.EnsembleSampler(24, 4, log_prob, pool=pool)
    for step, state in enumerate(sampler.sample(start, iterations=80)):
        if step % 10 == 9:
            print(step + 1, repr(float(state.log_prob.sum())), flush=True)
    print(repr(sampler.get_chain(flat=True).mean(axis=0).tolist()))
    print(repr(sampler.acceptance_fraction.tolist()))
