"""The rank's channel to the controller, and what is told there.

    control          the channel: packets in both directions
    reports          packets that the rank sends by itself: of its state, of peers
    program_events   entries of the program for the job's event log
    inputs           standard input
    commands         the words of processes that the program starts
    held_output      output that a full disk has refused

Not here: what a rank does with the controller's packets (:mod:`ckpt.rank.packets`).
"""
