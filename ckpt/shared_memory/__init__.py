"""Memory that ranks of one host share, as a part of their images: windows (`MPI.Win.Allocate_shared`), and files that
several ranks have mapped for shared writing (`numpy.memmap`, `mmap`, `multiprocessing.shared_memory`).

A store into such memory is no message, so nothing tells whether it came before an image or after it. Therefore the ranks
that share memory take their images at one instant: all of them stand still, each copies its own part, and only then do they
go on. To the protocol of messages these are images like all others.

    rules       who may stand, copy and go on, and when. Pure; start reading here
    table       what the ranks of a host know of each other, in memory, under a lock
    host        the memory of one host: allocated, mapped, freed; the waits
    pages       how memory is reserved, copied and given back
    segment     one piece of it in one rank, as a program holds it and as an image has it; _mapping: how it is mapped

Not here: windows (:mod:`ckpt.mpi.rma`), when an image is due (:mod:`ckpt.capture`), who makes the file of a host
(``ckpt.controller.launch.agent``), memory that a program shares with its own child processes
(:mod:`ckpt.image.handles.shared_copies`).
"""
