"""Modules: which are saved by value, which by reference, and what a program has changed in installed packages.

    origins, references, definitions     which modules are saved by value; what an image refers to by a name or a path
    package_baseline, package_changes,   installed packages: noted, compared, restored
    package_restore, plain_values
    standard_baseline,                   the same for the standard library
    standard_changes, lazy,
    standard_streams
    held_locks                           locks of modules that the program holds
    search_path, versions, names         ``sys.path``; what must be the same, and be there, where an image is loaded

Not here: how the objects of a module are taken apart (:mod:`ckpt.image.reducers`), settings that a library keeps elsewhere
(:mod:`ckpt.image.process.settings`).
"""
