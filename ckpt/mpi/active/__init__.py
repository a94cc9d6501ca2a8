"""Active messages: small handlers that are called by whoever makes progress.

    channel    `ckpt.ActiveMessages`. Start reading here
    table      which handler is called next; pure
    handlers   who calls it, under which lock

Not here: matching of other messages (:mod:`ckpt.mpi.engine`).
"""
