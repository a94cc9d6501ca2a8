"""Datatypes, buffers, reduction operations, and what a received message is known by."""
