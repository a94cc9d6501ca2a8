"""One rank's image on disk: its blocks, the pack file that holds them, and the writer and reader of both.

    writer, reader   one image. Start reading here
    packs, source    the files that hold blocks
    base, likeness   which blocks of an earlier image are used again
    codec            how a block is compressed
    _likeness, _shuffle   parts of both in C

Not here: what is in an image (:mod:`ckpt.image`), its manifest (:mod:`ckpt.store.records.manifest`).
"""
