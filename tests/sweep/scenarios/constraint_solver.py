"""Puzzles by constraint propagation and backtracking."""

import random

from constraint import AllDifferentConstraint, ExactSumConstraint, MinConflictsSolver, Problem

problem = Problem()
letters = "sendmory"
problem.addVariables(letters, range(10))
problem.addConstraint(lambda s, m: s and m == 1, "sm")
problem.addConstraint(AllDifferentConstraint())
problem.addConstraint(lambda d, e, y: (d + e) % 10 == y, "dey")
problem.addConstraint(
    lambda s, e, n, d, m, o, r, y: (
        1000 * (s + m) + 100 * (e + o) + 10 * (n + r) + d + e == 10000 * m + 1000 * o + 100 * n + 10 * e + y
    ),
    "sendmory",
)
print(problem.getSolution())
squares = Problem()
squares.addVariables(range(9), range(1, 10))
squares.addConstraint(AllDifferentConstraint())
for line in ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)):
    squares.addConstraint(ExactSumConstraint(15), line)
for number, solution in enumerate(squares.getSolutionIter()):
    print(number, [solution[i] for i in range(9)])
random.seed(1)
queens = Problem(MinConflictsSolver())
queens.addVariables(range(12), range(12))
for a in range(12):
    for b in range(a + 1, 12):
        queens.addConstraint(lambda x, y, d=b - a: x != y and abs(x - y) != d, (a, b))
print(queens.getSolution())
