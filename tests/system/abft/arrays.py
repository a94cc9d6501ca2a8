"""Encoded arrays made before and after deaths, with two columns of checksums. Twelve ranks."""

import math
import os
import signal

import numpy as np

from ckpt import MPI, abft

world = MPI.COMM_WORLD
grid = abft.Grid(2, 3, redundant=2)
random = np.random.default_rng(0)
a, b, c = (random.normal(size=(2, 3, 4)) for _ in range(3))


def die(*ranks):
    """They are dead before anybody goes on: a receive from each of them ends."""
    if world.rank in ranks:
        os.kill(os.getpid(), signal.SIGKILL)
    for rank in ranks:
        try:
            world.recv(source=rank, tag=99)
        except MPI.Exception:
            pass


def far(array, truth):
    return float(np.abs(array.parts() - truth).max())


x = abft.Encoded(a, grid=grid)
die(1)
assert x.replace().happened == (("replaced", 1),) and x.replace() is None
y = abft.Encoded(lambda p, q: b[p, q], grid=grid)  # made of checksums where these have taken the place
z = x + 2 * y
assert z.verify() < 1e-12
die(5)
assert z.replace().happened == (("replaced", 0),)
late = abft.Encoded(c, grid=grid)
assert far(z - late, a + 2 * b - c) < 1e-12 and far(x, a) < 1e-12 and 1 < z.condition < 100
assert math.isnan(z.verify())  # no checksums are left
z.recover(late)
assert z.condition == 1 and far(z + late, a + 2 * b + c) < 1e-12 and z.verify() < 1e-12
for stale in (x.parts, lambda: x + z, lambda: x.scale(2), x.recover):
    try:
        stale()
    except abft.InputError as error:
        assert "not named when recover() moved" in str(error)
    else:
        raise AssertionError("a stale array was used")
die(0, 2, 3)
for call in (z.replace, z.parts):
    try:
        call()
    except abft.TooManyLost as error:
        print("lost", error, flush=True)
print("end", flush=True)
