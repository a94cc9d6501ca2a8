"""What carries frames: ZeroMQ, reads from the memory of the sending process; injected faults.

    wire                              the interface. Start reading here
    zmqwire, zmqsettings, addresses   ZeroMQ
    directwire, crossmemory,          large payloads, read from the sender's memory
    bufferpool
    hostwire, hubwire                 several hosts; a controller and its agents
    faultinject                       injected faults
    owned                             which descriptors and threads are the library's

Not here: rings of shared memory (:mod:`ckpt.transport.rings`); retransmission, order, epochs
(:mod:`ckpt.transport.protocol`).
"""
