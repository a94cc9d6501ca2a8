"""The call stack: capture, description, rebuild; everything that depends on the interpreter's frames and bytecode.

    stack                            captures a stack and describes it. Start reading here; running: a captured stack runs
                                     again
    suspended, generators, tracing   one frame, one generator, trace functions, as values
    c_calls                          a frame that waits for C code which has entered Python; c_waits: one that waits for C
                                     code alone
    call_operands, call_paths,       what such a call works on, and which function it enters
    attribute_paths
    unrecordable                     frames that no image can have
    opcodes, tables                  what the bytecode says; what differs between versions
    selftest                         whether the extension fits this interpreter
    _frames                          the extension in C; extension/: its other files, which `extension/frames.h` lists
    stand_ins/                       loops in C in the place of functions of the interpreter whose state cannot be read

Not here: private names in Python (:mod:`ckpt.compat`), how the objects in a frame are saved (:mod:`ckpt.image.reducers`).
"""

from ckpt.image.frames import selftest as selftest  # first: the extension gets its functions after it
