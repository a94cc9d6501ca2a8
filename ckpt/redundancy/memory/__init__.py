"""Memory of replicas, compared: what a program holds, when that is told, and whether it is the same.

    search        arrays and single values, by the names of the variables that lead to them
    values        single values as text
    tensors       tensors of torch
    arrays        what is told of them: digests of the blocks of arrays, and texts
    question      a replica tells that, at a place of its program that the controller names
    comparison    whether the replicas of a rank hold the same; pure
    flips         bits that flip on purpose
    content       a digest of one object, equal where the values are: for programs
    pickles       tensors of torch are pickled alike

Not here: what follows from a difference (:mod:`ckpt.controller.replicas.memory`).
"""
