"""Boards: memory in which each member of a group on one host shows the others what it contributes to a collective.

    board             what a board does: the specification, in Python
    keeper            makes boards, and hands their memory to the other members
    _board, board.h   the same between processes, in C
    offers            memory of the program itself, which the others may read for a while

Not here: how a board's memory reaches the others (:mod:`ckpt.transport.rings`), collectives (:mod:`ckpt.mpi.slots`).
"""
