"""What one process computes: kernels, its part of a matrix, wrong numbers found and put right. Pure.

    local, methods, dense   one process's part of a matrix, and the kernels
    triangle                the upper triangle of a matrix, as processes give it to each other
    verify, checked, seals  wrong numbers in it; a product that is checked; digests of what waits or travels
    arrays                  numpy and torch behind the same names

Pure. Not here: who computes what (:mod:`ckpt.abft.decisions`), messages (:mod:`ckpt.abft.solver.link`).
"""
