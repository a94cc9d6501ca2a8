"""`MPI.Pickle` and `MPI.pickle`: the serialization of objects for the lower-case methods (send, bcast …).

By default the engine calls the module `pickle` directly. When a program changes the functions or the protocol of
`MPI.pickle`, the engine calls that object instead.
"""

from __future__ import annotations

import pickle as _pickle
from collections.abc import Callable, Iterable
from typing import Any

from ckpt.mpi.base.process import process_state
from ckpt.mpi.engine import worlds

THRESHOLD = 1 << 18
"""Size in bytes from which `dumps_oob` returns a buffer out of band (PEP 574), not inside the pickle."""


class Pickle:
    """A serializer: a pair of functions that the program chooses, a pickle protocol, or both."""

    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[..., Any] | None = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ) -> None:
        self._dumps = dumps
        self._loads = loads
        self._protocol = protocol if dumps is not None or protocol is not None else _pickle.HIGHEST_PROTOCOL
        self._threshold = THRESHOLD if threshold is None else threshold
        self._changed()

    def _changed(self) -> None:
        """Called after a setting has changed; ModulePickle overrides it."""

    @property
    def _plain(self) -> bool:
        return self._dumps is None and self._loads is None and self._protocol == _pickle.HIGHEST_PROTOCOL

    @property
    def PROTOCOL(self) -> int | None:
        return self._protocol

    @PROTOCOL.setter
    def PROTOCOL(self, protocol: int | None) -> None:
        if protocol is None and self._dumps is None:
            protocol = _pickle.HIGHEST_PROTOCOL
        self._protocol = protocol
        self._changed()

    @property
    def THRESHOLD(self) -> int:
        return self._threshold

    @THRESHOLD.setter
    def THRESHOLD(self, threshold: int | None) -> None:
        self._threshold = THRESHOLD if threshold is None else threshold

    def dumps(self, obj: Any) -> bytes:
        dumps = _pickle.dumps if self._dumps is None else self._dumps
        return dumps(obj) if self._protocol is None else dumps(obj, self._protocol)

    def loads(self, data: Any) -> Any:
        return _pickle.loads(data) if self._loads is None else self._loads(data)

    def dumps_oob(self, obj: Any) -> tuple[bytes, list[Any]]:
        """(pickle, list of its large buffers). The buffers share the object's memory; they are not copies."""
        from ckpt.mpi.datatypes.memory import buffer_type

        window = buffer_type().frombuffer
        buffers: list[Any] = []

        def keep(found: _pickle.PickleBuffer) -> bool:
            view = found.raw()
            if view.nbytes < self._threshold:
                return True
            buffers.append(window(view, readonly=view.readonly))
            return False

        dumps = _pickle.dumps if self._dumps is None else self._dumps
        protocol = _pickle.HIGHEST_PROTOCOL if self._protocol is None else self._protocol
        return dumps(
            obj, max(protocol, 5) if self._dumps is None else protocol, buffer_callback=keep
        ), buffers

    def loads_oob(self, data: Any, buffers: Iterable[Any]) -> Any:
        loads = _pickle.loads if self._loads is None else self._loads
        return loads(data, buffers=buffers)


class ModulePickle(Pickle):
    """The class of `MPI.pickle`: the engine uses its settings, and the image holds them."""

    def _changed(self) -> None:
        process_state().codec = None if self._plain else self._settings()
        worlds.codec_changed(None if self._plain else self)

    def _settings(self) -> tuple[Any, ...]:
        return self._dumps, self._loads, self._protocol, self._threshold

    def _adopt(self, settings: tuple[Any, ...]) -> None:
        self._dumps, self._loads, self._protocol, self._threshold = settings

    def __reduce__(self) -> str:
        return "pickle"


pickle = ModulePickle.__new__(ModulePickle)
pickle._adopt((None, None, _pickle.HIGHEST_PROTOCOL, THRESHOLD))


def restored() -> ModulePickle | None:
    """Give `MPI.pickle` the settings of the process state and return it. None: the settings are the default."""
    settings = process_state().codec
    if settings is None:
        return None
    pickle._adopt(settings)
    return pickle
