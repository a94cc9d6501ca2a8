"""What windows and files have in common: each is one thing that the members of a group share.

    handle    the base class of `Win` and `File`
    state     the thing at one member: its messages, and what waits for their answers

Not here: what a window is (:mod:`ckpt.mpi.rma`), and a file (:mod:`ckpt.mpi.io`).
"""
