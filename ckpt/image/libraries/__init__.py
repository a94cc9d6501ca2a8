"""Installed libraries: what their objects in C need, what they keep in force, which moments to avoid."""
