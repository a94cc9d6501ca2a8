"""Private CPython: every private name, layout and version of the interpreter that Python code of ckpt relies on.

    interpreter       the version, and what differs between versions in the bytecode and in dictionaries; pure
    stdlib            private names of the standard library's modules that are written in Python
    threads           those of ``threading`` that belong to one running thread
    children          those of ``subprocess``, and of what ``multiprocessing`` shares with child processes
    worker_pools      those of the pools of ``concurrent.futures`` and ``multiprocessing``
    asyncio_names     those of ``asyncio``
    asyncio_objects   structs of futures and tasks in C
    awaitables        structs of the awaitables of asynchronous generators and coroutines
    signals           the functions of ``signal``, and those in C below them
    accelerators      the standard library's modules in C that have a private name
    typeobjects       flags and sizes of types
    referents         the objects that an object in C refers to, in the order in which the garbage collector sees them
    memory            structs in memory, read and written by ctypes; functions of the C API; those of ctypes itself
    readers           structs of buffers that read
    compiled          our own modules in C that have not been built since their Python code was changed

Each function says what is private, and which versions have it. For a new minor version of Python these functions are checked
(docs/new-python.md); tests/test_private_names.py keeps the other rooms free of such names. The modules here import nothing
that the start of a rank does not import anyway.

Not here: frames and opcodes (:mod:`ckpt.image.frames`), private names in C (``frames_3NN.h``, ``private_api.h``),
private names of other libraries (:mod:`ckpt.image.libraries`, :mod:`ckpt.image.tools`), and how the rooms use these
functions.
"""
