"""Small collectives of a few ranks of one host: each member contributes once, and every reader combines by itself.

    exchange      numbers, carriers (boards, messages) and waiting. Start reading here
    collectives   barrier, bcast, reduce, allreduce, allgather, alltoall on it
    direct        allgather, alltoall, allreduce and reduce of long buffers: the members read each other's memory

Not here: boards (:mod:`ckpt.transport.boards`), all other collectives (:mod:`ckpt.mpi.collectives`).
"""
