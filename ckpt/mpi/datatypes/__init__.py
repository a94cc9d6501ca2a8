"""Datatypes, buffers, reduction operations, and Status (source, tag and size of a message)."""
