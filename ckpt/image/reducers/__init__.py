"""Reducers for objects of Python's own types, for classes, functions and instances, and their counterparts at load."""
