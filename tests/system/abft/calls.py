"""Counts the calls of communicators in operations of ckpt.abft in which nobody dies, and prints them: "NAME | ORDER |
{"call": count, …}". A call inside another one does not count."""

import functools
import json
import os
from collections import Counter
from types import FunctionType

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft

calls: Counter[str] = Counter()
inside = False


def counted(name, method):
    @functools.wraps(method)
    def call(*args, **options):
        global inside
        if inside:
            return method(*args, **options)
        calls[name] += 1
        inside = True
        try:
            return method(*args, **options)
        finally:
            inside = False

    return call


for cls in MPI.Intracomm.__mro__:
    for name, value in list(vars(cls).items()):
        if isinstance(value, FunctionType) and not name.startswith("_"):
            setattr(cls, name, counted(name, value))

random = np.random.default_rng(1)
grid = abft.Grid(2, 2)
for order in (64, 256):
    numbers = random.uniform(-0.5, 0.5, (order, order))
    positive = numbers @ numbers.T + order * np.eye(order)
    A, B = (grid.matrix(order, nb=8, fill=each) for each in (numbers, positive))
    for name, operation in {
        "solve": lambda A=A, order=order: abft.solve(A, np.ones(order)),
        "solve, looking for wrong numbers": lambda A=A, order=order: abft.solve(A, np.ones(order), verify=1),
        "solve, look-ahead": lambda A=A, order=order: abft.solve(A, np.ones(order), look_ahead=1),
        "lu": lambda A=A: abft.lu(A),
        "cholesky": lambda B=B: abft.cholesky(B),
        "qr": lambda A=A: abft.qr(A),
        "matmul": lambda A=A: abft.matmul(A, A),
        "cg": lambda B=B, order=order: abft.cg(B, np.ones(order)),
    }.items():
        calls.clear()
        operation()
        print(name, "|", order, "|", json.dumps(calls), flush=True)
