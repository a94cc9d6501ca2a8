"""What carries frames: ZeroMQ, shared memory of two processes, and wires that lose and reorder."""
