"""The transport: reliable, ordered messages between ranks over a wire that may lose, double, reorder and damage frames.

    protocol/    the state machines (sequence numbers, acknowledgements, retransmission, credit, epochs); pure
    driver/      the port, which runs the state machines with a clock, a lock and a helper thread
    wires/       what carries frames: ZeroMQ, rings of shared memory, the memory of the sender; injected faults
    boards/      memory in which members of a group on one host show what they contribute to a collective
    records, namedtuples, jsontext   classes that are defined fast; JSON that another process has written
    integers, _integers   slots that hold numbers, which C reads where they lie
    finder       modules of this package, found fast
    errors       the exceptions

What does not belong here: what a message means (MPI), and how an image is taken or stored.
"""
