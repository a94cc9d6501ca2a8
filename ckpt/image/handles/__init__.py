"""Handles of C that ordinary programs hold: directories being read, libraries of ctypes, shared memory,
cursors, parsers of XML, codecs.

    ctypes_library, ctypes_data   libraries, functions and data of ctypes
    directories                   iterators of ``os.scandir``
    shared_memory                 blocks of ``multiprocessing.shared_memory``
    shared_heap                   the memory of ``multiprocessing.Value`` and ``Array``
    file_maps                     files that are mapped for shared writing
    shared_copies                 all three of these are copied before a fork
    cursors                       rows that cursors of sqlite3 have not given yet
    xml_parsers                   parsers of XML in the middle of a text
    codec_states                  codecs of East Asia in the middle of a text
    semaphores                    events, conditions and semaphores of ``multiprocessing``

Not here: descriptors (:mod:`ckpt.image.files`), objects of ``mmap`` (:mod:`ckpt.image.stdlib.mapped`).
"""
