"""Operations beside the solve: checked products, products on the grid, iterations on encoded arrays, factors.

    product, matmul   checked products on one process, and on the grid
    encoded, ledger   arrays of the program with checksums, for linear iterations
    cg, factors       conjugate gradients; LU, Cholesky and QR factors

Not here: the solution of systems of equations (:mod:`ckpt.abft.solver.solve`).
"""
