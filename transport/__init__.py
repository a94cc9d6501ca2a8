"""The transport: reliable, ordered messages between ranks over a wire that may lose, double, reorder and damage frames.

    protocol/    the state machines (sequence numbers, acknowledgements, retransmission, credit, epochs); pure
    driver/      the port, which runs the state machines with a clock, a lock and a helper thread
    wires/       what carries frames: ZeroMQ, the memory of the sender, and a wire that injects faults

What does not belong here: what a message means (MPI), and how an image is taken or stored.
"""
