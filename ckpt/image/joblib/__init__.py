"""joblib: pools of processes of its own kind (loky).

Not here: pools of the standard library (:mod:`ckpt.image.pools`).
"""
