"""Reliable messages between endpoints: sequence numbers, acks, timeouts, retransmission over an unreliable
wire."""
