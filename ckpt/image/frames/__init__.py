"""The call stack: capture, description, rebuild; everything that depends on the interpreter's frames and bytecode."""

from ckpt.image.frames import selftest as selftest  # first of all: what it has not looked at is not there
