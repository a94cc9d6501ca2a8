"""Objects of the standard library that are made in C.

    standard                            the classes that serve these modules, by :mod:`ckpt.image.interface.registry`. Start
                                        reading here
    c_objects, rebuild_c_objects        small objects, and the functions that make them again
    digests, blake, compressors,        one kind of object each
    compressed_files, sqlite, mapped,
    profilers
    processes, registered_children,     children, directories, finalizers, ``copyreg``, ``abc``, XML, SQLite
    temporary, finalizers, registered

Not here: types of the interpreter itself (:mod:`ckpt.image.reducers`), asyncio (:mod:`ckpt.image.loops`), sockets
(:mod:`ckpt.image.ipc`).
"""
