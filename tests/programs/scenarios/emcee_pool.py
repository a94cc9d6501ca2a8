"""emcee over schwimmbad's MPIPool: rank 0 samples, the others evaluate the likelihood. As in emcee's tutorial on MPI."""

import emcee
import numpy as np
from schwimmbad import MPIPool


def log_prob(theta):
    return (
        -0.5 * np.sum(theta**2)
        - 0.1 * np.sum(theta**4)
        + sum(np.sin(k * theta[0]) / k for k in range(1, 200))
    )


# It closes itself at the end of the program, also after a `with` has: what it then sends to workers that are gone makes
# MPICH 5 kill rank 0 in MPI_Finalize, most times.
pool = MPIPool()
np.random.seed(42)
start = np.random.randn(24, 4)
sampler = emcee.EnsembleSampler(24, 4, log_prob, pool=pool)
for step, state in enumerate(sampler.sample(start, iterations=80)):
    if step % 10 == 9:
        print(step + 1, repr(float(state.log_prob.sum())), flush=True)
print(repr(sampler.get_chain(flat=True).mean(axis=0).tolist()))
print(repr(sampler.acceptance_fraction.tolist()))
