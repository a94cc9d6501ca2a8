"""Communicators, groups and sessions, as programs use them."""
