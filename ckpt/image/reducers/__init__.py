"""Reducers for objects of Python's own types, for classes, functions and instances, and their counterparts at load.

    saver                     what a reducer is, and what it may ask of the pickler
    by_value                  functions, classes and instances of the program; the contract of a reducer. Start reading here
    classes, raw_instances,   classes, and instances without calling their methods
    installed_classes
    builtin_types             the table of types; iterators, buffers, contexts, tracebacks, type_parameters, thread_objects,
                              logs
    dill_adapter              what saves types that have no reducer here
    rebuild                   the functions that an image calls at load

Not here: open files (:mod:`ckpt.image.files`), objects of C (:mod:`ckpt.image.stdlib`), libraries
(:mod:`ckpt.image.libraries`).
"""
