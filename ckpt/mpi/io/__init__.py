"""Parallel files: `MPI.File`, loaded at its first use. See docs/parallel-files.md.

One rank of each file, the first of its group, does all writing; the others send it what they write. It also has the shared
pointer and the size. So a change of the file is a message like any other, and an image of that rank has it, or it comes
again: the file has one writer, which a restart sets back with that rank's image.

    view.py         which bytes of the file the program's data are (pure)
    modes.py        access modes, and the error classes of system calls (pure)
    disk.py         reads and writes of pieces of a file
    wire.py         the messages
    writer.py       the file at the rank that writes
    state.py        the file at every rank: its messages, what is under way
    operations.py   an access that waits for answers
    handle.py       the base class of `File`: handles, error handlers
    collective.py   what all ranks of a file do together
    opening.py      Open, Close, Delete
    accesses.py     reads and writes, with an offset or the rank's own pointer
    shared.py       reads and writes with the shared pointer, in any order or in that of the ranks
    properties.py   size, view, info, group, atomicity; data representations
    file.py         the class
"""
