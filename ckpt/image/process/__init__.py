"""State of the process: signals, limits, exit functions, environment, directory.

    moment                               what a forked child could not read: timers, signal mask, offsets. Noted before the
                                         fork
    resources                            everything that is in no variable. Start reading here
    signals, limits, exits, directory,   one part of it each
    settings, finders,
    interpreter_settings
    clocks, clock_offsets                monotonic clocks that never go back
    unsupported                          state that no image can hold, for which an image is refused

Not here: variables and the stack (:mod:`ckpt.image.pairs`), open files (:mod:`ckpt.image.files`).
"""
