"""Libraries that work with the program's own classes and functions, and keep what they know of them in their own modules.

    sqlalchemy      sessions, mapped classes, statements, listeners of events
    dask            the configuration, pools of threads, callbacks

Not here: connections to files of SQLite (:mod:`ckpt.image.stdlib.sqlite`), django (:mod:`ckpt.image.tools.django`).
"""
