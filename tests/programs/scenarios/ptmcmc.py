"""PTMCMCSampler: four chains at four temperatures, one a rank, which swap; prints digests of the chains.

(Its files grow by appending and closing, which a restart repeats.)
"""

import hashlib
import pathlib

import numpy as np
from mpi4py import MPI
from PTMCMCSampler.PTMCMCSampler import PTSampler


def log_likelihood(x):
    return -0.5 * float(np.sum(x**2)) + float(np.cos(3 * x).sum())


def log_prior(x):
    return 0.0 if np.all(np.abs(x) < 8) else -np.inf


comm = MPI.COMM_WORLD
folder = pathlib.Path("chains")
sampler = PTSampler(
    3, log_likelihood, log_prior, np.eye(3), comm=comm, outDir=str(folder), verbose=False, seed=9
)
sampler.sample(
    np.ones(3), 3000, Tmax=8, Tskip=50, isave=500, covUpdate=500, burn=1000, thin=10, writeHotChains=True
)
print(comm.rank, hashlib.sha256(sampler._chain.tobytes()).hexdigest()[:16])
print(comm.rank, sampler.nswap_accepted, repr(float(sampler.temp)))
