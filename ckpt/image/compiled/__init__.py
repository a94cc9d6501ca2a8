"""Libraries whose objects live in C or C++: factorised matrices, trained models, documents, files in progress.

A module has the name of its library. Not here: how the class of a library is found (:mod:`ckpt.image.interface`).
"""
