"""What carries frames: ZeroMQ, reads from the memory of the sending process, and a wire that injects faults."""
