"""The one interface for libraries: a class says what is special for one library; a registry finds the class.

    library     the base class of all such classes. Start reading here
    table       which class serves which library, of those that ckpt knows
    registry    finds the class; other distributions add theirs by entry points
    mappings    what is mapped into this process
    moved       new paths, where the directory of the program has moved
    turn        what a forked child reads first, while the program stands still
    transient   objects and functions at which no image is taken, because they last for a moment

Not here: the classes themselves (:mod:`ckpt.image.libraries`, `compiled`, `tools`, `stdlib` and others).
"""
