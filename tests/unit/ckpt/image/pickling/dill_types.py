"""Run by test_dill_types.py, in a process of its own: saves and loads each object of dill's own list of types, and prints
what has come of it as JSON, ``{name: outcome}``.

The outcomes: ``same`` (saved by name: the very object), ``equal`` (the copy is equal), ``type`` (an object of the same type,
which cannot be compared), ``other type: …``, ``differs``, ``refused: …``.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from typing import Any

import dill._objects as objects

from ckpt.image.files.open_files import FileSaver
from ckpt.image.files.saved_files import SavedFiles
from ckpt.image.modules.references import References
from ckpt.image.pickling.pickler import ImagePickler, Stream, on_deep_stack
from ckpt.image.pickling.unpickler import ImageUnpickler
from ckpt.image.process import moment
from tests.unit.ckpt.image.support import MemorySink

warnings.simplefilter("ignore")


def copy_of(obj: object, references: References) -> Any:
    """As in support.py, with one :class:`References` for all."""
    references.refresh()
    sink = MemorySink()
    stream = Stream(sink)
    notes = moment.read(moment.note()).files
    files = FileSaver(notes, is_disposable=False, saved_files=SavedFiles(os.getpid()))
    pickler = ImagePickler(stream, references, extra_reducers=files.reducers())
    pickler.dump(obj)
    pickler.dump(pickler.deferred)
    stream.flush()
    unpickler = ImageUnpickler(io.BytesIO(bytes(sink.data)), [memoryview(raw) for raw in sink.raw], {})
    copy, calls = unpickler.load(), unpickler.load()
    unpickler.finish()
    for function, args in calls:
        function(*args)
    return copy


def outcome(obj: Any, references: References) -> str:
    try:
        copy = copy_of(obj, references)
    except Exception as refusal:
        return f"refused: {refusal}"
    if copy is obj:
        return "same"
    names = [f"{type(each).__module__}.{type(each).__qualname__}" for each in (obj, copy)]
    if names[0] != names[1]:
        return f"other type: {names[1]}"
    if type(obj).__eq__ is object.__eq__:
        return "type"
    try:
        return "equal" if bool(copy == obj) else "differs"
    except Exception:
        return "type"


def main() -> None:
    known = {**objects.registered, **objects.succeeds, **objects.failures}
    references = References()
    found = on_deep_stack(lambda: {name: outcome(obj, references) for name, obj in sorted(known.items())})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
