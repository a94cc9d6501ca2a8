"""Definitions that every room of ckpt.mpi uses: constants, errors, handles, infos, attributes, groups, envelopes.

    progress, layer                    the interface to what is below the engine
    envelope                           the 32 bytes in front of every message
    constants, errors, null_handles,   what all objects share
    integers, handle, process
    group, info, attributes,           objects and mixins without messages
    errhandler
    commands                           the arguments of Spawn
    handlers                           what the engine asks of active messages

Not here: anything that sends, receives or waits.
"""
