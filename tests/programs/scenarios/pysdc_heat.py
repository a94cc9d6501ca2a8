"""pySDC: the heat equation by finite differences, parallel in time: multi-step SDC, a time step of each block on a rank."""

import hashlib

from mpi4py import MPI
from pySDC.implementations.controller_classes.controller_MPI import controller_MPI
from pySDC.implementations.problem_classes.HeatEquation_ND_FD import heatNd_unforced
from pySDC.implementations.sweeper_classes.generic_implicit import generic_implicit

comm = MPI.COMM_WORLD
description = {
    "problem_class": heatNd_unforced,
    "problem_params": {"nu": 0.1, "freq": 4, "nvars": 511, "bc": "dirichlet-zero"},
    "sweeper_class": generic_implicit,
    "sweeper_params": {"quad_type": "RADAU-RIGHT", "num_nodes": 3, "QI": "LU"},
    "level_params": {"restol": 1e-9, "dt": 0.01},
    "step_params": {"maxiter": 30},
}
controller = controller_MPI({"logger_level": 30}, description, comm)
problem = controller.S.levels[0].prob
solution, stats = controller.run(u0=problem.u_exact(0.0), t0=0.0, Tend=1.6)
iterations = [
    int(value) for key, value in sorted(stats.items(), key=lambda item: item[0].time) if key.type == "niter"
]
print(comm.rank, hashlib.sha256(solution.tobytes()).hexdigest()[:16], iterations)
print(comm.rank, repr(float(abs(solution - problem.u_exact(1.6)))))
