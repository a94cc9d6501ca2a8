"""Libraries that programs work with: progress bars, locks, expressions, tests, greenlets.

A module has the name of its library. A library may fit more than one such room: the table
:data:`ckpt.image.interface.table.BUILT_IN` says where each is.

Not here: how the class of a library is found (:mod:`ckpt.image.interface`).
"""
