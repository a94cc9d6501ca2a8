"""Checkpoints of what a program registers, between the steps of its loops; :mod:`ckpt.explicit.way` has the whole."""
