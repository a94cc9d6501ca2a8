"""Modules: which are saved by value, which by reference, and what a program has changed in installed packages."""
