"""What is written in a job directory, as records: job, manifest, control file, with their MACs.

    formats, shapes              the one definition of all records. Start reading here; schema: the same for pydantic
    authenticated                the envelope with the MAC
    manifest, control, journal   records as Python objects

Pure. Not here: files (:mod:`ckpt.store.job`, :mod:`ckpt.store.images`).
"""
