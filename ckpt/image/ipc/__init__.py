"""Interprocess communication: pipes, sockets, and the objects that wait for them.

A pipe, a pair of sockets, or a connection, of which this process has both ends is state of the program: it comes back with
what waits in it, under the same numbers. A socket that listens or is not connected is made anew with its address and
options. A connection to another process cannot be part of an image of one process: the image is refused by name, or, if the
user says so (``--connections reset``), the connection comes back as one that the peer has reset.

::

    unix_peers       which Unix sockets belong together
    socket_options   what is read from a socket, and set on a new one
    tcp_ends         which ends of TCP connections belong together
    survey           in the child: all channels of the program, before the child gives them up
    holders          which process has an address that is needed again
    remake           in the new process: pipes and pairs are made again
    connections      likewise, connections
    sockets, polls   reducers of the objects
    tls              contexts of TLS, and its sockets
    tls_resets       what stands for a connection of TLS that comes back as reset
    library          the classes that serve socket, ssl, select, selectors, and asyncio over TLS

Not here: Unix sockets and pipes of ckpt itself (:mod:`ckpt.image.files.descriptors`), files (:mod:`ckpt.image.files`), locks
and semaphores of ``multiprocessing`` (:mod:`ckpt.image.stdlib.processes`), shared memory (:mod:`ckpt.image.handles`).
"""
