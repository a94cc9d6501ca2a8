"""Data-parallel training with uneven steps: with a quorum a slow rank does not hold up the others.

    ckpt run -n 4 --job training examples/uneven_training.py                    # everybody is waited for
    ckpt run -n 4 --job training examples/uneven_training.py --quorum 0.75      # three of four are enough
    ckpt run -n 4 --on-failure continue --job training examples/uneven_training.py --quorum 0.5 --kill 2

Each rank has its own part of the data and computes gradients of a logistic regression; one rank is slower by a factor. A
gradient that comes too late is carried into the next step, and weights keep the mean a mean. Printed are loss and time.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

import numpy as np

import ckpt
import ckpt.reduction

SAMPLES, FEATURES = 2000, 50
Array = np.ndarray[Any, Any]


def data_of(rank: int) -> tuple[Array, Array]:
    """The samples of one rank, and their classes."""
    truth = np.random.default_rng(1).standard_normal(FEATURES)
    random = np.random.default_rng(100 + rank)
    x = random.standard_normal((SAMPLES, FEATURES))
    return x, (x @ truth + 0.5 * random.standard_normal(SAMPLES) > 0).astype(float)


def loss_and_gradient(weights: Array, x: Array, y: Array) -> tuple[float, Array]:
    p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
    loss = -np.mean(y * np.log(p + 1e-12) + (1 - y) * np.log(1 - p + 1e-12))
    return float(loss), x.T @ (p - y) / len(y)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--steps", type=int, default=40, help="(40)")
    options.add_argument(
        "--quorum", type=float, default=None, help="fraction of ranks that ends a step (all)"
    )
    options.add_argument(
        "--slow", type=float, default=0.03, help="seconds that the last rank takes longer (0.03)"
    )
    options.add_argument("--kill", type=int, default=-1, metavar="RANK", help="this rank dies half-way")
    given = options.parse_args()

    comm = ckpt.enable()
    x, y = data_of(comm.rank)
    weights = np.zeros(FEATURES)
    comm.barrier()
    began = time.perf_counter()
    together = 0.0
    for step in range(given.steps):
        loss, gradient = loss_and_gradient(weights, x, y)
        if comm.rank == comm.size - 1:
            time.sleep(given.slow)
        if comm.rank == given.kill and step == given.steps // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        both = np.append(gradient, loss)
        future = ckpt.reduction.allreduce(
            both, name="step", quorum=given.quorum, late="carry", on_loss="partial", copies=0
        )
        mean = future.result() / future.weight
        weights -= 2.0 * mean[:-1]
        together += len(future.contributors)
        if comm.rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {mean[-1]:.4f}, {together / (step + 1):.2f} ranks a step")
    if comm.rank == 0:
        print(f"{given.steps} steps in {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
