"""Nested sampling with dynesty, its likelihoods evaluated by schwimmbad's MPIPool."""

import sys

import dynesty
import numpy as np
from schwimmbad import MPIPool


def log_likelihood(x):
    return -0.5 * float(np.sum((x / 0.3) ** 2)) + float(np.cos(4 * x).sum())


def prior(u):
    return 4 * u - 2


with MPIPool() as pool:
    if not pool.is_master():
        pool.wait()
        sys.exit(0)
    sampler = dynesty.NestedSampler(
        log_likelihood,
        prior,
        3,
        nlive=60,
        pool=pool,
        queue_size=3,
        rstate=np.random.default_rng(5),
        sample="rwalk",
    )
    sampler.run_nested(dlogz=1.0, maxiter=400, print_progress=False)
    results = sampler.results
    print(results.niter, int(results.ncall.sum()), repr(float(results.logz[-1])))
    print(repr(results.samples[-1].tolist()))
