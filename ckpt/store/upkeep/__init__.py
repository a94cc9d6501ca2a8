"""Maintenance of a job directory: verify, inspect and prune its lines.

    verification, inspection, pruning   `ckpt verify`, `ckpt inspect`, `ckpt prune`

Not here: the text for people (``ckpt.controller.cli``).
"""
