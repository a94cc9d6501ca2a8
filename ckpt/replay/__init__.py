"""Checkpoints of what a program registers, between the steps of its loops; :mod:`ckpt.replay.program` has the whole."""
