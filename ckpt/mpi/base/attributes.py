"""Attributes: objects that a program attaches to communicators and datatypes, under keys that the program created
(MPI standard, "Attribute caching").

A key is valid for one kind of object ("Comm", "Datatype", "Win"). Keys belong to the process, not to an object: they
are in process.py. The `copy_fn` of a key decides which attribute a duplicate of the object gets. The `delete_fn` of a
key is called before an attribute is deleted or replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckpt.mpi.base.errors import ERR_KEYVAL, ERR_OTHER, MpiException
from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.process import Keyval, process_state

KEYVAL_INVALID = 0


class HasAttributes:
    """Mixin for Comm, Datatype and Win."""

    __slots__ = ()

    def _attribute_table(self) -> dict[int, Any]:
        """The object's attributes: key number -> (Keyval, value). Raises MpiException for the null object."""
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
        """The number of a new key.

        copy_fn: None or False (a duplicate gets no attribute), True (a duplicate gets the same value), or a function
        of (object, key, value) that returns the duplicate's value, or NotImplemented for no attribute.
        delete_fn: a function of (object, key, value). nopython: the values must be integers."""
        state = process_state()
        number = state.next_keyval
        state.next_keyval += 1
        state.keyvals[number] = Keyval(cls._keyval_kind(), copy_fn, delete_fn, nopython)
        return number

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """Free a key and return KEYVAL_INVALID. MpiException (ERR_KEYVAL): there is no such key.

        Attributes under the key stay with their objects until they are deleted (MPI standard, "Attribute caching": the key
        is freed when the last of them is). Get_attr finds them, Delete_attr deletes them, duplicates get them. An object
        that has none refuses the key (ERR_KEYVAL), and Set_attr does in any case."""
        if process_state().keyvals.pop(argument(keyval), None) is None:
            raise MpiException(ERR_KEYVAL, f"{keyval} is no key")
        return KEYVAL_INVALID

    def _keyval(self, number: int) -> Keyval:
        found = process_state().keyvals.get(number)
        if found is None or found.kind != self._keyval_kind():
            raise MpiException(ERR_KEYVAL, f"{number} is no key for a {self._keyval_kind()}")
        return found

    def Get_attr(self, keyval: int) -> Any:
        """The attribute, or None. MpiException (ERR_KEYVAL): there is no such key."""
        keyval = argument(keyval)
        table = self._attribute_table()
        if 1000 < keyval < 1012:
            return self._predefined_attr(keyval)
        if keyval in table:
            return table[keyval][1]
        self._keyval(keyval)
        return None

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        keyval = argument(keyval)
        table = self._attribute_table()
        key = self._keyval(keyval)
        if key.nopython and not isinstance(attrval, int):
            raise TypeError("an attribute under a nopython key must be an integer")
        if keyval in table:
            self._before_delete(keyval, *table.pop(keyval))
        table[keyval] = (key, attrval)

    def Delete_attr(self, keyval: int) -> None:
        keyval = argument(keyval)
        table = self._attribute_table()
        if keyval not in table:
            self._keyval(keyval)
            raise MpiException(ERR_KEYVAL, "no attribute under this key")
        self._before_delete(keyval, *table.pop(keyval))

    def _before_delete(self, keyval: int, key: Keyval, value: Any) -> None:
        if key.delete is not None:
            _guard(key.delete, self, keyval, value)

    def _delete_attributes(self) -> None:
        """Delete all attributes, because the object is being freed."""
        table = self._attribute_table()
        for keyval in list(table):
            self._before_delete(keyval, *table.pop(keyval))

    def _copy_attributes(self, target: HasAttributes) -> None:
        """Copy attributes to `target`, a new duplicate of this object, as the `copy_fn` of each key says."""
        table = self._attribute_table()
        for keyval, (key, value) in list(table.items()):
            if key.copy is None or key.copy is False:
                continue
            new = value if key.copy is True else _guard(key.copy, self, keyval, value)
            if new is not NotImplemented:
                target._attribute_table()[keyval] = (key, new)


def _guard(function: Any, *args: Any) -> Any:
    """Call a function that the program gave. Its exception is printed and becomes MpiException (ERR_OTHER), as in mpi4py."""
    try:
        return function(*args)
    except Exception as error:
        import traceback

        traceback.print_exception(error)
        raise MpiException(ERR_OTHER, f"attribute function failed: {error!r}") from None
