"""Who does what: the distribution, the operations of a step, the ways of a panel, and what all decide after a death.

    grid, columns      who holds what
    steps, broadcast   the operations of a step; the ways of a panel
    encoding, course   checksums and replaced columns; what all ranks know alike
    plan, shares       what all decide after a death; what is computed back and encoded in the background
    summa, progress    what all decide in a product; what a rank says of itself there
    joining            processes that are started meanwhile
    copies             where panels are kept when the factors are wanted

Pure. Not here: numbers (:mod:`ckpt.abft.numbers`), messages (:mod:`ckpt.abft.solver.link`).
"""
