"""Maintenance of a job directory: verify, inspect and prune its lines."""
