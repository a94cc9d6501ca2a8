"""Communicators, matched messages and sessions: the objects and methods that programs use.

    communicator                        Comm and Intracomm, composed of the classes in the modules beside it. Start reading
                                        here
    comm_base                           group, context number, routes to peers
    object_messages, buffer_messages,   the calls
    object_collectives,
    buffer_collectives
    comm_inter, comm_topology,          other communicators, and other methods
    comm_factories, comm_failure,
    comm_object
    guard                               error handlers; message, session: two more classes; unsupported: what is not offered

Not here: matching and waiting (:mod:`ckpt.mpi.engine`), algorithms (:mod:`ckpt.mpi.collectives`).
"""
