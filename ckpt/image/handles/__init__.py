"""Handles of C that ordinary programs hold: directories being read, databases, libraries of ctypes, shared memory."""
