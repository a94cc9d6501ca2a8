"""One-sided communication: `MPI.Win`. The room is loaded when a program uses the name `MPI.Win` or `MPI.WIN_NULL`.

    window                   `Win`, composed of handle, synchronization and transfers. Start reading here
    state                    one window at one rank: origin (the rank that works on others' memory) and target (whose memory
                             it is)
    epochs, locks, exposed   when which access is allowed, and to what
    wire, direct             messages between members; reads without a message
    shared                   memory that all members load from and store to directly
    operations               what a program waits for
    _exporter                lets a class in Python export a buffer

Not here: how a message of a window reaches it (:mod:`ckpt.mpi.engine.windows`).
"""
