"""Memory of replicas, compared: which arrays a program holds, when they are told, and whether they are the same.

    arrays        the arrays of a program, by the names of its variables, and digests of their blocks
    question      a replica tells its arrays, at a place of its program that the controller names
    comparison    whether the replicas of a rank hold the same; pure

Not here: what follows from a difference (:mod:`ckpt.controller.replicas.memory`).
"""
