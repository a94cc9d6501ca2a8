"""The pickler of images, and the search for the object that could not be saved.

    pickler           writes an image. Start reading here
    unpickler         loads it
    containers        sets, dictionaries and floats that pickle would not restore exactly
    id_tables         tables by ``id()``
    diagnose, sizes   the path to an object that cannot be saved; how large each variable is

Not here: how a type is taken apart (:mod:`ckpt.image.reducers`), what an image consists of (:mod:`ckpt.image.pairs`).
"""
