"""call.py FILE FUNCTION [NAME=INTEGER …]: imports a program and calls its function, with keywords it has for its sizes."""

import importlib
import os
import sys

file, function, *settings = sys.argv[1:]
sys.path.insert(0, os.path.dirname(file))
program = importlib.import_module(os.path.basename(file).removesuffix(".py"))
getattr(program, function)(
    **{name: int(value) for name, value in (setting.split("=") for setting in settings)}
)
