"""Objects as they are in memory, inspected without running any of their code; sets and persistent ids; the deep C stack.

    inspect_raw      attributes, keys and items, read past the methods of a class
    _lookup          in C: the pickler's question about every object; the tables of sets; searches of the imported modules;
                     comparisons with notes
    import_times     values that are times of the moment
    keyed            dictionaries and sets that are filled before their keys are complete
    _clock           clocks that show something else than the host's
    inflate_state    the memory of a decompressor of zlib, anywhere in a stream
    inflating        what a decompressor knows of a stream, asked of copies of it
    c_stack, _deep   the stack of C: is it large enough; a call on a larger one

Not here: frames (:mod:`ckpt.image.frames`), private names in Python (:mod:`ckpt.compat`).
"""
