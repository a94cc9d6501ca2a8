"""The engine of one rank: matching, operations under way, failures of ranks. Communicators call the engine.

    engine                            joins all of it. Start reading here
    matching, operations, schedule,   messages and receives, and what is under way
    partitioned
    failures, agreement               failed ranks
    spawning                          processes that are started, or were started so
    comm_state, imports, windows,     communicators and windows as the engine knows them
    worlds
    quick, _quick                     the fast path in C; pickling: ``MPI.pickle``

Not here: the methods that programs call (:mod:`ckpt.mpi.comm`), the transport (:mod:`ckpt.mpi.base.progress`).
"""
