"""What carries frames: ZeroMQ, rings of shared memory, reads from the memory of the sending process; injected faults.

    wire                              the interface. Start reading here
    zmqwire, zmqsettings, addresses   ZeroMQ
    ringwire, ring, _ring, bell       rings of shared memory between processes of one host
    directwire, crossmemory,          large payloads, read from the sender's memory
    bufferpool
    hostwire, hubwire                 several hosts; a controller and its agents
    faultinject                       injected faults
    owned                             which descriptors and threads are the library's

Not here: retransmission, order, epochs (:mod:`ckpt.transport.protocol`).
"""
