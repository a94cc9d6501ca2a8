"""Checkpoint/restart for message-passing Python."""
