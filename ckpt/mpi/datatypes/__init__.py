"""Datatypes, buffers, reduction operations, and Status (source, tag and size of a message).

    buffers                              buffer arguments in all forms of mpi4py. Start reading here
    datatypes, datatype_info, derived,   datatypes
    layout, packing, typenames, gaps
    op, small_reductions                 operations of reductions
    status, memory, addresses,           Status; addresses, and what was told of them; ``MPI.buffer``
    mpi_buffer

Not here: messages and collectives that use them (:mod:`ckpt.mpi.comm`).
"""
