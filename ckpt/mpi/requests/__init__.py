"""Requests as programs hold them, and their completion, one at a time or several together."""
