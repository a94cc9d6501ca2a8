"""ctypes: data of the program that C can use too: numbers, structures, unions, arrays and pointers.

Each object is one of three kinds.

- A part of another object (``structure.field``, ``array[0]``) is found again by its path from that object.
- A view of a buffer (``from_buffer``), or of another object as something else (``cast``), is made again over that, which is
  saved as what it is.
- An owner of its memory is made with its content. An address in that memory is saved as a place in the memory of an
  object that ctypes, or the program (``pointer._arr``, numpy's ``data_as``), keeps alive for it, or of another object of
  ctypes that the program has; it refers to that object again after a restart.

Refused by name: an address in memory that none of these objects has. C has given it out, or the program has made it
from a number; and nobody else has it after a restart.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pickle import PicklingError
from typing import Any

from ckpt.compat.memory import address_of, is_code_of_thunk, kept_by
from ckpt.compat.referents import function_of_thunk
from ckpt.image.errors import RestoreError
from ckpt.image.interface.mappings import segment_at
from ckpt.image.reducers.rebuild import fill_attributes

__all__ = ["is_found_again", "owns_its_memory", "reduce_data"]

_VIEW = "ffffffff"  # the key under which an object over a buffer keeps the buffer
_TEXT, _WIDE_TEXT, _ADDRESS, _OBJECT = "z", "Z", "P", "O"  # codes of c_char_p, c_wchar_p, c_void_p, py_object
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_MOST_KEPT = 1_000_000
_CALLBACK = -1  # in the place of an offset: the target is the function of the program that C calls

_DATA = (
    *(ctypes.Structure, ctypes.Union, ctypes.Array),
    *(ctypes.c_int.__mro__[1], ctypes.POINTER(ctypes.c_int).__mro__[1]),  # the bases of numbers and pointers
)

Path = tuple[Any, ...]
"""Names of fields and numbers of elements, from an object to a part of it."""


def reduce_data(pickler: Any, obj: Any) -> Any:
    state = obj.__dict__.copy() or None
    if owns_its_memory(obj):
        return _reduce_owner(obj, state)
    if (view := _view_under(obj)) is not None:
        made: Any = make_view, (type(obj), *_place_in(obj, view))
    else:
        made = _reduce_part(obj)
    return (*made, state, None, None, fill_attributes) if state else made


def owns_its_memory(obj: Any) -> bool:
    """Is it neither a part of another object, nor over a buffer, nor over memory of C?"""
    return obj._b_base_ is None and _view_under(obj) is None and bool(obj._b_needsfree_)


def _view_under(obj: Any) -> memoryview | None:
    """The buffer in which the object lies. (``cast`` gives a pointer what its argument keeps, that buffer too.)"""
    view = _kept_directly(obj).get(_VIEW)
    if isinstance(view, memoryview) and view.c_contiguous:
        at = ctypes.addressof(obj) - address_of(view)
        if 0 <= at <= view.nbytes - ctypes.sizeof(obj):
            return view
    return None


def _place_in(obj: Any, view: memoryview) -> tuple[Any, int]:
    """The buffer that the object is to be made over again, and where in it. ``view`` may show a part of its exporter."""
    whole = memoryview(view.obj)
    base = whole if whole.c_contiguous else view
    return (view.obj if base is whole else view), ctypes.addressof(obj) - address_of(base)


def is_found_again(obj: Any) -> bool:
    """Is its memory that of an object which an image holds? Of one at a mere address (``from_address``), that is not asked
    of all objects: it takes long, and libraries look at much memory of C in this way."""
    if obj._b_base_ is None and not _kept_directly(obj):
        return False
    try:
        reduce_data(None, obj)
    except PicklingError:
        return False
    return True


def _reduce_owner(obj: Any, state: dict[str, Any] | None) -> Any:
    content = ctypes.string_at(ctypes.addressof(obj), ctypes.sizeof(obj))
    kept = _Kept(obj)
    addresses = [_reference(obj, kept, path, cls, at) for path, cls, at in _address_slots(type(obj))]
    used = [reference for reference in addresses if reference is not None]
    if used or state:
        return make_owner, (type(obj), content), (used, state), None, None, fill_owner
    return make_owner, (type(obj), content)


def _reduce_part(obj: Any) -> Any:
    """A part of another object; also what a pointer refers to (``pointer.contents``), which is no part of the pointer."""
    address = ctypes.addressof(obj)
    top: Any = obj
    while top._b_base_ is not None:
        top = top._b_base_
    offset = address - ctypes.addressof(top)
    if top is obj or not 0 <= offset < ctypes.sizeof(top):
        found = _Kept(obj).at(address) or (None, 0)
        top, offset = found
        while getattr(top, "_b_base_", None) is not None:
            top = top._b_base_
            offset = address - ctypes.addressof(top)
    if top is not None and not hasattr(top, "_b_base_"):
        return make_view, (type(obj), top, offset)
    if top is None and (segment := segment_at(address, ctypes.sizeof(obj))) is not None:
        return make_view, (type(obj), segment, address - segment.address)
    path = None if top is None else _path_to(type(top), type(obj), offset)
    if path is None and top is not None and 0 <= offset <= ctypes.sizeof(top) - ctypes.sizeof(obj):
        return make_view, (type(obj), top, offset)  # the same memory as something else (``cast``)
    if path is None:
        raise PicklingError(
            f"the memory of a {type(obj).__name__} (ctypes: from_address, in_dll, contents of a pointer) belongs to C, "
            "or to no object that is known; look at it again in ckpt.on_restart"
        )
    return find_part, (top, path)


def _kept_directly(obj: Any) -> dict[Any, Any]:
    kept = kept_by(obj)
    return kept if isinstance(kept, dict) else {}


# ---------------------------------------------------------------------- parts


def _fields_of(cls: Any) -> Iterator[tuple[str, Any, int]]:
    """``(name, type, offset)`` of the fields of a structure or union, those of its bases included; without bit fields."""
    for base in reversed(cls.__mro__):
        for name, kind, *bits in base.__dict__.get("_fields_", ()):
            if not bits:
                yield name, kind, getattr(cls, name).offset


def _path_to(cls: Any, wanted: type, at: int) -> Path | None:
    """The path to the part of this type that lies at an offset."""
    if cls is wanted and at == 0:
        return ()
    if issubclass(cls, ctypes.Array):
        size = ctypes.sizeof(cls._type_)
        number = at // size if size else 0
        if number >= cls._length_:
            return None
        path = _path_to(cls._type_, wanted, at - number * size)
        return None if path is None else (number, *path)
    if issubclass(cls, (ctypes.Structure, ctypes.Union)):
        for name, kind, start in _fields_of(cls):
            if start <= at < start + max(1, ctypes.sizeof(kind)):
                path = _path_to(kind, wanted, at - start)
                if path is not None:
                    return (name, *path)
    return None


def _address_slots(cls: Any) -> Iterator[tuple[Path, Any, int]]:
    """``(path, type, offset)`` of all places in an object of this type that hold an address."""
    if issubclass(cls, ctypes.Array):
        inner = list(_address_slots(cls._type_))
        size = ctypes.sizeof(cls._type_)
        for number in range(cls._length_ if inner else 0):
            yield from (((number, *path), kind, number * size + at) for path, kind, at in inner)
    elif issubclass(cls, (ctypes.Structure, ctypes.Union)):
        for name, field, start in _fields_of(cls):
            yield from (((name, *path), kind, start + at) for path, kind, at in _address_slots(field))
    elif _is_pointer(cls) or getattr(cls, "_type_", None) in (_TEXT, _WIDE_TEXT, _ADDRESS, _OBJECT):
        yield (), cls, 0


def _is_pointer(cls: Any) -> bool:
    code = getattr(cls, "_type_", None)
    return (
        hasattr(cls, "contents")
        or code is None
        or (isinstance(code, type) and not issubclass(cls, ctypes.Array))
    )


# ---------------------------------------------------------------------- addresses


class _Kept:
    """The objects that are kept alive for an object of ctypes, by their memory."""

    def __init__(self, obj: Any) -> None:
        self.objects = list(_all_kept(obj))
        self.extents = [(*_extent(kept), kept) for kept in self.objects]
        self._by_start = {start: kept for start, _, kept in reversed(self.extents)}

    def at(self, address: int) -> tuple[Any, int] | None:
        """An object that has this address in its memory, and the offset there."""
        if address in self._by_start:
            return self._by_start[address], 0
        for start, size, kept in self.extents:
            if start <= address < start + size:
                return kept, address - start
        found = _owner_of(address)
        return None if found is None else (found, address - ctypes.addressof(found))


def _reference(obj: Any, kept: _Kept, path: Path, cls: Any, at: int) -> tuple[Path, Any, int] | None:
    """``(path, what is referred to, offset in it or _CALLBACK)``; None: a null pointer. Raises PicklingError: it is in
    nobody's memory."""
    address = ctypes.c_void_p.from_address(ctypes.addressof(obj) + at).value
    if not address:
        return None
    code = getattr(cls, "_type_", None)
    if code == _OBJECT:
        return path, ctypes.py_object.from_address(ctypes.addressof(obj) + at).value, 0
    for each in kept.objects if code is None or code == _WIDE_TEXT else ():
        if hasattr(each, "argtypes") and ctypes.c_void_p.from_buffer(each).value == address:
            return path, each, 0
        called = function_of_thunk(each)
        if called is not None and is_code_of_thunk(each, address):
            return path, called, _CALLBACK
        # Memory that ctypes has made for a text
        if code == _WIDE_TEXT and type(each).__name__ == "PyCapsule":
            return path, ctypes.c_wchar_p(address).value, 0
    found = kept.at(address)
    if found is not None:
        return path, *found
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    raise PicklingError(
        f"the address in {type(obj).__name__}{where} (ctypes) is not in the memory of any object that is kept alive "
        "for it: C has given it out, and does not have it after a restart; keep the objects that pointers refer to by "
        "ctypes.pointer or byref instead of numbers; make the others again in ckpt.on_restart"
    )


def _all_kept(obj: Any) -> Iterator[Any]:
    """The objects that are kept alive for an object of ctypes."""
    waiting: list[Any] = []
    while obj is not None:  # what a pointer refers to has the pointer as its base, and that keeps the object
        waiting += [kept_by(obj), getattr(obj, "__dict__", None)]
        obj = obj._b_base_
    seen = set[int]()
    while waiting and len(seen) < _MOST_KEPT:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, (dict, tuple, list)):
            waiting.extend(each.values() if isinstance(each, dict) else each)
        elif isinstance(each, memoryview):
            yield each.obj
        else:
            yield each
            if hasattr(each, "_b_base_"):
                waiting.extend((each._b_base_, kept_by(each), getattr(each, "__dict__", None)))


def _owner_of(address: int) -> Any:
    """The object of ctypes that owns the memory at an address, kept alive or not: ``cast(byref(x), …)`` keeps nothing."""
    for obj in gc.get_objects():
        if issubclass(type(obj), _DATA) and obj._b_needsfree_ and obj._b_base_ is None:
            start = ctypes.addressof(obj)
            if start <= address < start + ctypes.sizeof(obj):
                return obj
    return None


def _extent(kept: Any) -> tuple[int, int]:
    """Address and size of the memory of an object."""
    if hasattr(kept, "_b_base_"):
        return ctypes.addressof(kept), ctypes.sizeof(kept)
    try:
        with memoryview(kept) as view:
            return address_of(view) if view.c_contiguous else 0, view.nbytes + isinstance(kept, bytes)
    except (TypeError, BufferError, ValueError):
        return 0, 0


# ---------------------------------------------------------------------- called while loading


def make_owner(cls: Any, content: bytes) -> Any:
    made = cls()
    if ctypes.sizeof(made) != len(content):
        ctypes.resize(made, len(content))
    ctypes.memmove(ctypes.addressof(made), content, len(content))
    return made


def fill_owner(obj: Any, state: tuple[list[tuple[Path, Any, int]], dict[str, Any] | None]) -> None:
    references, attributes = state
    for path, target, offset in references:
        _refer(obj, path, target, offset)
    obj.__dict__.update(attributes or {})


def _refer(obj: Any, path: Path, target: Any, offset: int) -> None:
    """Have the slot of the object refer to the target, and keep the target alive, as ctypes does."""
    holder = obj
    for step in path[:-1]:
        holder = holder[step] if isinstance(step, int) else getattr(holder, step)
    cls = type(obj)
    for step in path:
        cls = cls._type_ if isinstance(step, int) else {name: kind for name, kind, _ in _fields_of(cls)}[step]
    code = getattr(cls, "_type_", None)
    if offset == _CALLBACK:
        value: Any = cls(target)
    elif (
        code == _OBJECT
        or (code in (_TEXT, _WIDE_TEXT) and offset == 0 and isinstance(target, (bytes, str)))
        or hasattr(target, "argtypes")
    ):
        value = target
    else:
        value = ctypes.cast(_addressable(target), cls)
        place = ctypes.c_void_p.from_buffer(value)
        place.value = (place.value or 0) + offset
    if not path:
        _take_over(obj, value, target)
    elif isinstance(path[-1], int):
        holder[path[-1]] = value
    else:
        setattr(holder, path[-1], value)


def _addressable(target: Any) -> Any:
    """What ``ctypes.cast`` takes for the address of the target."""
    if isinstance(target, (bytes, str)):
        return target
    if hasattr(target, "_b_base_"):
        return ctypes.pointer(target)
    try:
        return (ctypes.c_char * memoryview(target).nbytes).from_buffer(target)
    except TypeError as failure:
        raise RestoreError(f"a pointer of ctypes into memory that is not writable: {failure}") from failure


def _take_over(obj: Any, value: Any, target: Any) -> None:
    """Make a pointer that stands for itself equal to another one."""
    code = getattr(type(obj), "_type_", None)
    if code == _OBJECT or (code in (_TEXT, _WIDE_TEXT) and isinstance(target, (bytes, str))):
        obj.value = target
        return
    ctypes.c_void_p.from_buffer(obj).value = ctypes.c_void_p.from_buffer(value).value
    obj.__dict__["kept"] = value


def find_part(top: Any, path: Path) -> Any:
    for step in path:
        top = top[step] if isinstance(step, int) else getattr(top, step)
    return top


def make_view(cls: Any, buffer: Any, offset: int) -> Any:
    return cls.from_buffer(buffer, offset)
