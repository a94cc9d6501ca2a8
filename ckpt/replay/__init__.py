"""Explicit checkpoints: the objects that a program registers, saved between the steps of its loops."""
