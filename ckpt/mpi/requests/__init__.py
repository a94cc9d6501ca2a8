"""Requests, their completion, and matched messages, as programs hold them."""
