"""Libraries that programs work with: progress bars, locks, expressions, tests, greenlets.

A module has the name of its library. Not here: how the class of a library is found (:mod:`ckpt.image.interface`).
"""
