"""Rings of shared memory between processes of one host: a shorter way for frames, and payloads that both sides copy.

    ring      a ring: what `_ring.c` has to do. Start reading here
    _ring     its two ends, between processes; `ring_share.c`: payloads that both sides copy
    bell      how a ring gets to the other process, and who sleeps is woken
    ringwire  the wire on top of another one

Not here: when a payload is read from the memory of its sender (:mod:`ckpt.transport.wires.directwire`); retransmission.
"""
