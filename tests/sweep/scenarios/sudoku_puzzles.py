"""Sudokus made and solved."""

from sudoku import Sudoku

for seed in range(30):
    puzzle = Sudoku(3, seed=seed).difficulty(0.55)
    solution = puzzle.solve()
    print(seed, "".join(str(cell or ".") for row in puzzle.board for cell in row))
    print(seed, "".join(str(cell or ".") for row in solution.board for cell in row))
