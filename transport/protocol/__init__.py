"""The state machines of the transport: links, windows, credit, frames.

Pure: each module takes frames and the time as arguments and returns frames, messages and events. None of them reads a
clock, opens a socket or starts a thread.

    endpoint                       all links of one rank. Start reading here
    link, window, units, ledger,   one link: its sender's side, its receiver's side, its timers
    timeout, rangeset
    frames, batches, _batch        what is on the wire, byte for byte; checksum.c: its crc32
    events, state, config          what an endpoint reports, saves, and is made with
    watch                          whether a late link is down
    simulation                     many endpoints on a simulated network
"""
