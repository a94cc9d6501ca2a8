"""Handles of C that ordinary programs hold: directories being read, libraries of ctypes, shared memory."""
