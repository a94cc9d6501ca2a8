"""Info objects: ordered mappings from strings to strings, with MPI's methods and those of a dictionary.

Several Python objects may refer to one info: `Info(info)` makes one more reference, `Dup` and `copy` make a new info.
Freeing one reference frees the info for all of them. The null info is empty and cannot be changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import ERROR_CLASSES, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.integers import argument

Items: TypeAlias = "Info | Mapping[str, str] | Iterable[tuple[str, str]]"


class InfoContent:
    """The content of an info. All Python objects that refer to the same info share one InfoContent."""

    __slots__ = ("freed", "items")

    def __init__(self, items: dict[str, str] | None = None) -> None:
        self.items: dict[str, str] = {} if items is None else items
        self.freed = False


class Info(Handle):
    """A reference to an info. `bool(info)` is False for the null info, and when the info is freed."""

    __slots__ = ("__weakref__", "_content")
    _constants: ClassVar[tuple[str, ...]] = ("INFO_NULL", "INFO_ENV")

    _content: InfoContent | None

    def __new__(cls, info: Info | None = None) -> Self:
        expect(cls, info, Info)
        self = super().__new__(cls)
        self._content = None if info is None else info._content
        return self

    @classmethod
    def _make(cls, items: dict[str, str]) -> Info:
        info = cls()
        info._content = InfoContent(items)
        return info

    def _items(self) -> dict[str, str]:
        content = self._content
        if content is None or content.freed:
            raise MpiException(ERROR_CLASSES["ERR_INFO"], "the info is null or freed")
        return content.items

    def __bool__(self) -> bool:
        return self._content is not None and not self._content.freed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Info):
            return NotImplemented
        return self._content is other._content if self and other else bool(self) == bool(other)

    def __reduce__(self) -> Any:
        name = self._named()
        if name is not None:
            return name
        if self == INFO_ENV:
            return type(self), (INFO_ENV,)
        return type(self), (), (None, {"_content": self._content})

    @classmethod
    def Create(cls, items: Items | None = None) -> Info:
        info = cls._make({})
        if items is not None:
            info.update(items)
        return info

    @classmethod
    def Create_env(cls, args: Sequence[str] | None = None) -> Info:
        """An info that describes how the program was started: thread_level, command, argv (MPI's INFO_ENV)."""
        words = list(sys.argv) if args is None else list(args)
        items = {"thread_level": "MPI_THREAD_MULTIPLE"}
        if words:
            items["command"] = words[0]
        if words[1:]:
            items["argv"] = " ".join(words[1:])
        return cls._make(items)

    def Free(self) -> None:
        self._items()
        assert self._content is not None
        if self._content is INFO_ENV._content:
            if self is INFO_ENV:
                raise MpiException(ERROR_CLASSES["ERR_INFO"], "INFO_ENV cannot be freed")
        else:
            self._content.freed = True
        self._content = None

    def _discard(self) -> None:
        self.Free()

    def Dup(self) -> Info:
        return type(self)._make(dict(self._items()))

    def Get(self, key: str) -> str | None:
        return self._items().get(_key(key))

    def Set(self, key: str, value: str) -> None:
        items = self._items()
        if len(value) > NUMBERS["MAX_INFO_VAL"]:
            raise MpiException(ERROR_CLASSES["ERR_INFO_VALUE"], "the value is too long")
        items[_key(key)] = value

    def Delete(self, key: str) -> None:
        if self._items().pop(_key(key), None) is None:
            raise MpiException(ERROR_CLASSES["ERR_INFO_NOKEY"], repr(key))

    def Get_nkeys(self) -> int:
        return len(self._items())

    def Get_nthkey(self, n: int) -> str:
        n = argument(n)
        keys = list(self._items())
        if not 0 <= n < len(keys):
            raise MpiException(ERROR_CLASSES["ERR_ARG"], f"key {n} of {len(keys)}")
        return keys[n]

    # -- as a dictionary ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._items()) if self else 0

    def __contains__(self, key: object) -> bool:
        return bool(self) and key in self._items()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, key: str) -> str:
        if key not in self:
            raise KeyError(key)
        return self._items()[key]

    def __setitem__(self, key: str, value: str) -> None:
        if not self:
            raise KeyError(key)
        self.Set(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self.Delete(key)

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._items().get(key, default) if self else default

    def keys(self) -> list[str]:
        return list(self._items()) if self else []

    def values(self) -> list[str]:
        return list(self._items().values()) if self else []

    def items(self) -> list[tuple[str, str]]:
        return list(self._items().items()) if self else []

    def update(self, items: Items = (), **kwds: str) -> None:
        if not self:
            raise KeyError("the info is null")
        if isinstance(items, (Info, Mapping)) or hasattr(items, "keys"):
            mapping: Any = items
            keys = mapping.keys()
            items = [(key, mapping[key]) for key in keys]
        for key, value in items:
            self.Set(key, value)
        for key, value in kwds.items():
            self.Set(key, value)

    def pop(self, key: str, *default: Any) -> Any:
        if len(default) > 1:
            raise TypeError(f"pop expected at most 2 arguments, got {1 + len(default)}")
        if key in self:
            value = self._items()[key]
            self.Delete(key)
            return value
        if default:
            return default[0]
        raise KeyError(key)

    def popitem(self) -> tuple[str, str]:
        if not len(self):
            raise KeyError("popitem(): info is empty")
        return self._items().popitem()

    def copy(self) -> Info:
        return self.Dup() if self else type(self)()

    def clear(self) -> None:
        if self:
            self._items().clear()


def _key(key: str) -> str:
    if not key or len(key) > NUMBERS["MAX_INFO_KEY"]:
        raise MpiException(ERROR_CLASSES["ERR_INFO_KEY"], "an empty key or one that is too long")
    return key


INFO_NULL = Info()
INFO_ENV = Info.Create_env(["python"])


class HasInfo:
    """Mixin for Comm, Win and File: hints."""

    __slots__ = ()

    def _hints(self) -> dict[str, str]:
        """The object's hints, which can be changed. Raises MpiException for the null object."""
        raise NotImplementedError

    def Set_info(self, info: Info) -> None:
        """Store hints, for Get_info. No hint has an effect."""
        self._hints().update(info.items())

    def Get_info(self) -> Info:
        return Info.Create(self._hints())

    @property
    def info(self) -> Info:
        return self.Get_info()

    @info.setter
    def info(self, info: Info) -> None:
        self.Set_info(info)
