"""Stacking partial images: reductions with data and an operation of the program's own, that wait for no late rank.

    ckpt run -n 4 --job stack examples/stack.py
    ckpt run -n 4 --on-failure continue --job stack examples/stack.py --kill 2

Each rank migrates shots, as a seismic processing program does: every shot adds its image to the rank's partial one. After
some shots the partial images are stacked at rank 0, while all ranks compute the next ones. Shots take uneven time, and
nobody waits before the last stack. With `--kill` a rank dies in the middle of a stack: its images are in it all the same.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import numpy as np

import ckpt
import ckpt.reduction


class Stack(ckpt.reduction.Body):
    """An image, and of how many shots it is the sum."""

    def __init__(self, image: np.ndarray[Any, Any], shots: int) -> None:
        self.image, self.shots = image, shots

    def combine(self, other: Stack) -> Stack:
        return Stack(self.image + other.image, self.shots + other.shots)

    def size(self) -> object:
        return self.image.shape


def migrate(shot: int, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """The image of one shot: reflections from a layer, with noise; a shot takes more or less time."""
    random = np.random.default_rng(shot)
    depth, x = np.mgrid[: shape[0], : shape[1]]
    image = np.exp(-(((depth - 30 - 10 * np.sin(x / 20)) / 2.0) ** 2))
    for _ in range(1 + shot % 7):
        image = image + 0.1 * random.standard_normal(shape)
    return image


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--stacks", type=int, default=6, help="how many stacks (6)")
    options.add_argument("--shots", type=int, default=8, help="of each rank for each stack (8)")
    options.add_argument("--kill", type=int, default=-1, metavar="RANK", help="this rank dies in the middle")
    given = options.parse_args()

    comm = ckpt.enable()
    shape = (64, 256)
    stacks = []
    for number in range(given.stacks):
        image = np.zeros(shape)
        for shot in range(given.shots):
            image += migrate((number * given.shots + shot) * comm.size + comm.rank, shape)
        body = Stack(image, given.shots)
        dead = number > given.stacks // 2
        stacks.append(
            ckpt.reduction.reduce(
                body, root=0, name=f"stack-{number}", copies=2, on_loss="partial" if dead else "raise"
            )
        )
        if number == given.stacks // 2:
            if comm.rank == given.kill:
                while not stacks[-2].done():
                    pass
                os.kill(os.getpid(), signal.SIGKILL)
            stacks[-1].result()
    for future in stacks:
        stack = future.result()
        if comm.rank == 0:
            ranks = ", ".join(map(str, future.contributors))
            print(
                f"{future.name}: {stack.shots} shots of ranks {ranks}, peak {stack.image.max() / stack.shots:.3f}"
            )


if __name__ == "__main__":
    main()
