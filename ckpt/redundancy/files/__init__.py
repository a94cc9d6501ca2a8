"""Files of a program with replicas: each change is made once, by the leader, when all replicas have come to it.

    together      who has come to which change, and do all mean the same? Pure
    changes       what is made together, and what comes of it
    objects       file objects that the program gets
    opening       os.open for writing
    descriptors,  functions of `os` that take what it gives
    calls
    images        what is in images of open files; going back to one
    random_access buffers of those that are read and written
    names         functions of `os` that the program gets
    parallel      files of `MPI.File`
    notes         what going back has to undo: what was there before
    going_back    undoes it
    meeting       a replica comes to a change: its digest is told, and which replicas are late

Not here: who leads (:mod:`ckpt.redundancy.agreement.order`).
"""
