"""Requests as programs hold them, and their completion, one at a time or several together.

    request      Request and Prequest; grequest: Grequest
    completion   calls on several requests
    handling     error handlers, for communicators too

Not here: the operations that requests hold (:mod:`ckpt.mpi.engine.operations`).
"""
