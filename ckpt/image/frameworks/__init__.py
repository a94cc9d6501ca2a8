"""Libraries that work with the program's own classes, functions and files, and keep what they know of them in their own
modules or objects.

    sqlalchemy      sessions, mapped classes, statements, listeners of events
    places          objects that an installed module has made: filled in their places
    pony            caches by addresses, pools of connections
    dask            the configuration, pools of threads, callbacks
    absl            flags
    structlog       the configuration, loggers that write to files
    shapely         prepared geometries
    igraph          vertices and edges of graphs
    mdanalysis      files that have been written, what its parser of selections has been told
    polars          frames, series, expressions, plans
    msgspec         encoders and decoders
    zope_interface  interfaces, and what classes implement
    traits          listeners of objects with traits: traits, traitlets
    psygnal         signals with their listeners
    pydantic_core   arguments of a call that is validated

Not here: connections to files of SQLite (:mod:`ckpt.image.stdlib.sqlite`), django (:mod:`ckpt.image.tools.django`).
"""
