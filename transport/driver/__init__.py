"""The port: drives the state machines with sockets, clocks and a helper thread.

    port                   endpoint, wire, clock and lock. Start reading here
    helper                 makes progress while the program computes
    interrupts             defers the program's signal handlers
    waiters                threads of the program that wait at once
    refused, linkwatcher   frames that a wire does not take; links to other hosts that are late
    originals              own copies of modules that programs patch
    _lane, _express        fast paths in C

Not here: rules of the protocol (:mod:`ckpt.transport.protocol`), sockets (:mod:`ckpt.transport.wires`).
"""
