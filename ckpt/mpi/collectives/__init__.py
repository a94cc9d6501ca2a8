"""Collective operations: builders of schedules of sends, receives and local steps.

    builders, inter, neighbor_builders   make the schedule of a call: in one group, between two groups, with neighbours
    tree, reduce                         the algorithms
    topology                             grids and graphs; pure

Not here: how a schedule runs (:mod:`ckpt.mpi.engine.schedule`), the methods that programs call (:mod:`ckpt.mpi.comm`).
"""
