"""Communicators, matched messages and sessions: the objects and methods that programs use."""
