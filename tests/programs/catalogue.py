"""The programs. `command`: {demo} is mpi4py's own demo directory, {here} that of our scenarios.

A program may use what the interface documents; nobody has changed any of them for us. Those of mpi4py are run as they are
shipped; `call.py` calls a program's own function with the keywords it has for its sizes. Packages that are libraries are
used by a scenario of a few lines.

`times`: what the program prints of clocks, masked before outputs are compared. `sample`: part of `make test`. `threads`: the
program computes with threads of its own, which no image can hold: its rounds are burnt, and when it is killed it starts
again from its beginning. `silent`: it prints nothing; what is compared is that it converges and ends well. `unlike`: why it
does not compute the same each time, so that it cannot run with replicas. `brief`: it is through before a replica is killed.
"""

from __future__ import annotations

from dataclasses import dataclass

_LATENCIES = r"(?<=\d) +\d+\.\d\d$"
_SECONDS = r" *\d+\.\d+ ?s(econds)?\b"


@dataclass(frozen=True)
class Program:
    """One program and how it is run. `module`: run by `python -m` this, with the command as its arguments."""

    name: str
    source: str
    command: tuple[str, ...]
    ranks: int = 4
    module: str = ""
    times: str = ""
    stderr_too: bool = False
    sample: bool = False
    threads: bool = False
    silent: bool = False
    unlike: str = ""
    brief: bool = False


def _osu(function: str, ranks: int = 4, *settings: str, sample: bool = False) -> Program:
    command = ("{here}/call.py", f"{{demo}}/{function}.py", function, *settings)
    return Program(f"demo/{function}", "mpi4py", command, ranks, times=_LATENCIES, sample=sample)


PROGRAMS = (
    Program("demo/mandelbrot", "mpi4py", ("{demo}/mandelbrot/mandelbrot.py",), times=_SECONDS),
    Program(
        "demo/reductions",
        "mpi4py",
        ("{demo}/reductions/test_reductions.py", "-v"),
        times=_SECONDS,
        stderr_too=True,
    ),
    Program("demo/sequential", "mpi4py", ("{demo}/sequential/test_seq.py",)),
    Program("demo/threads", "mpi4py", ("{demo}/threads/sendrecv.py",), silent=True, brief=True),
    Program(
        "demo/mpi-ref-v1/ex-2.16 (Jacobi)",
        "mpi4py",
        ("{demo}/mpi-ref-v1/ex-2.16.py",),
        silent=True,
    ),
    Program(
        "demo/mpi-ref-v1/ex-2.32 (Jacobi, persistent)",
        "mpi4py",
        ("{demo}/mpi-ref-v1/ex-2.32.py",),
        silent=True,
    ),
    _osu("osu_latency", 2, "MAX_MSG_SIZE=65536", "loop=300"),
    _osu("osu_multi_lat", 4, "MAX_MSG_SIZE=65536", "loop_small=200", "skip_small=10", "loop_large=50"),
    _osu("osu_bibw", 2, "MAX_MSG_SIZE=65536", "loop=20"),
    _osu("osu_bcast", 4, "MAX_MSG_SIZE=65536", "loop=200", sample=True),
    _osu("osu_allgather", 4, "MAX_MSG_SIZE=4096", "loop=50", "skip=10"),
    _osu("osu_alltoallv", 4, "MAX_MSG_SIZE=4096", "loop=50", "skip=10"),
    Program(
        "demo/futures/run_primes",
        "mpi4py",
        ("{demo}/futures/run_primes.py",),
        module="mpi4py.futures",
        threads=True,
    ),
    Program("emcee", "emcee, schwimmbad", ("{here}/emcee_pool.py",), sample=True),
    Program("deap OneMax", "deap, schwimmbad", ("{here}/deap_onemax.py",), ranks=3),
    Program(
        "PTMCMCSampler",
        "ptmcmcsampler",
        ("{here}/ptmcmc.py",),
        sample=True,
        unlike="it writes a set of functions, whose order follows from their addresses",
    ),
    Program(
        "libEnsemble",
        "libensemble",
        ("{here}/libensemble_sims.py",),
        ranks=3,
        unlike="which worker makes the next points depends on time",
    ),
    Program("pySDC heat equation", "pySDC", ("{here}/pysdc_heat.py",)),
)
