"""The store's interface to the operating system: files, owners, threads, memory for large blocks; and a simulated disk.

    fsio                    the system calls, and the commit sequence of one file. Start reading here
    simulated               the same on a simulated disk, for tests
    replacing               a small file as a whole or not at all
    privacy, memory, pool   owners and modes; aligned memory; threads that work in a forked child

Not here: formats and names of files (:mod:`ckpt.store.records`, :mod:`ckpt.store.job`).
"""
