"""Attributes: objects that a program hangs onto communicators and datatypes under keys it created.

Keys belong to a kind of object and to the process (process.py). `copy_fn` decides what a duplicate gets,
`delete_fn` is called before an attribute goes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from ckpt.mpi.base.errors import ERR_KEYVAL, ERR_OTHER, MpiException
from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.process import Keyval, process_state

KEYVAL_INVALID = 0


class HasAttributes:
    """Mixin for Comm and Datatype (and Win's stub)."""

    __slots__ = ()

    def _attribute_table(self) -> dict[int, Any]:
        """Where this object's attributes are; raises for the null object."""
        raise NotImplementedError

    @classmethod
    def _keyval_kind(cls) -> str:
        raise NotImplementedError

    def _predefined_attr(self, keyval: int) -> Any:
        return None

    @classmethod
    def Create_keyval(
        cls,
        copy_fn: Callable[..., Any] | bool | None = None,
        delete_fn: Callable[..., Any] | None = None,
        nopython: bool = False,
    ) -> int:
        """A new key. copy_fn: None or False (duplicates get nothing), True (the same object) or a function
        of (object, key, value) that returns the copy or NotImplemented."""
        state = process_state()
        number = state.next_keyval
        state.next_keyval += 1
        state.keyvals[number] = Keyval(cls._keyval_kind(), copy_fn, delete_fn, nopython)
        return number

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """KEYVAL_INVALID; the key's attributes stay reachable until they are deleted."""
        if process_state().keyvals.pop(argument(keyval), None) is None:
            raise MpiException(ERR_KEYVAL, f"{keyval} is no key")
        return KEYVAL_INVALID

    def _keyval(self, number: int) -> Keyval:
        found = process_state().keyvals.get(number)
        if found is None or found.kind != self._keyval_kind():
            raise MpiException(ERR_KEYVAL, f"{number} is no key for a {self._keyval_kind()}")
        return found

    def Get_attr(self, keyval: int) -> Any:
        """The attribute, or None."""
        keyval = argument(keyval)
        table = self._attribute_table()
        if 1000 < keyval < 1012:
            return self._predefined_attr(keyval)
        self._keyval(keyval)
        held = table.get(keyval)
        return None if held is None else held[1]

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        keyval = argument(keyval)
        table = self._attribute_table()
        key = self._keyval(keyval)
        if key.nopython and not isinstance(attrval, int):
            raise TypeError("an attribute under a nopython key must be an integer")
        if keyval in table:
            self._before_delete(keyval, table.pop(keyval))
        table[keyval] = (key, attrval)

    def Delete_attr(self, keyval: int) -> None:
        keyval = argument(keyval)
        table = self._attribute_table()
        self._keyval(keyval)
        held = table.pop(keyval, None)
        if held is None:
            raise MpiException(ERR_KEYVAL, "no attribute under this key")
        self._before_delete(keyval, held)

    def _before_delete(self, keyval: int, held: tuple[Keyval, Any]) -> None:
        if held[0].delete is not None:
            _guard(held[0].delete, self, keyval, held[1])

    def _delete_attributes(self) -> None:
        """The object is freed."""
        table = self._attribute_table()
        for keyval in list(table):
            self._before_delete(keyval, table.pop(keyval))

    def _copy_attributes(self, target: HasAttributes) -> None:
        """The object is duplicated."""
        table = self._attribute_table()
        for keyval, (key, value) in list(table.items()):
            if key.copy is None or key.copy is False:
                continue
            new = value if key.copy is True else _guard(key.copy, self, keyval, value)
            if new is not NotImplemented:
                target._attribute_table()[keyval] = (key, new)


def _guard(function: Any, *args: Any) -> Any:
    """Call a function of the program's own: its exception is printed and becomes ERR_OTHER, as in mpi4py."""
    try:
        return function(*args)
    except Exception as error:
        traceback.print_exception(error)
        raise MpiException(ERR_OTHER, f"attribute function failed: {error!r}") from None
