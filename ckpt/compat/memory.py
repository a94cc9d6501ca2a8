"""Structs of CPython's objects, read and written by ctypes, and functions of the C API.

What is read here is compared with what Python says of the object, wherever that is possible. If a struct differs from the
known one, the result is None or False, never a guess. For a new minor version: have the structs named below kept their
fields?

The functions of the C API come from a library object of our own: what is set on ``ctypes.pythonapi`` is the program's.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import types
from typing import Any

from ckpt.compat import interpreter, referents
from ckpt.compat.typeobjects import HEADER_BYTES, allocate, instance_bytes

__all__ = [
    "CONTIGUOUS",
    "FULL_READ_ONLY",
    "address_of",
    "batched_parts",
    "blake_state",
    "deque_was_changed",
    "enter_context",
    "entry_state",
    "exchange",
    "exporter_of",
    "function_type",
    "in_place",
    "is_code_of_thunk",
    "is_made_from_definition",
    "kept_by",
    "leave_context",
    "library_parts",
    "make_entry",
    "mark_unused",
    "move_token",
    "new_frame",
    "openssl_context",
    "ordered_iterator",
    "put_reference",
    "referent_of",
    "registered_in_poll",
    "replace_dictionary",
    "set_library_name",
    "set_local",
    "set_lru_counters",
]

_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_api = ctypes.PyDLL(None)
_OF_A_LIBRARY = ("_name", "_handle", "_FuncPtr")

# ---------------------------------------------------------------------- names of ctypes with an underscore


def kept_by(obj: Any) -> Any:
    """What an object of ctypes keeps alive: None, one object, or a dictionary of objects (``_objects``; all versions)."""
    return obj._objects


def function_type(library: ctypes.CDLL) -> Any:
    """The type of the library's functions, which each library has for itself; its ``_flags_`` are those of the library."""
    return library._FuncPtr


def library_parts(library: ctypes.CDLL) -> tuple[Any, dict[str, Any]]:
    """The name that the library was loaded by, and the attributes that the program has set or looked up."""
    own = {name: value for name, value in library.__dict__.items() if name not in _OF_A_LIBRARY}
    return library._name, own


def set_library_name(library: Any, name: Any) -> None:
    library._name = name


# ---------------------------------------------------------------------- the C API


class _Buffer(ctypes.Structure):
    """The struct `Py_buffer` (its layout is part of the stable ABI since CPython 3.11)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def set_local(frame: types.FrameType, name: str, value: Any) -> None:
    """Give a local variable of the function that runs in `frame` another value."""
    frame.f_locals[name] = value
    if not interpreter.LOCALS_ARE_WRITTEN_THROUGH:
        _api.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


CONTIGUOUS = 0  # PyBUF_SIMPLE
FULL_READ_ONLY = 0x0100 | 0x0010 | 0x0008 | 0x0004  # PyBUF_FULL_RO: indirect, strides, shape, format

_get_buffer = _api.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = _api.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None


def address_of(obj: Any, flags: int = CONTIGUOUS) -> int:
    """The address of the first byte of a buffer. The caller keeps the buffer alive and its size unchanged. ``flags``: of
    ``PyObject_GetBuffer``. Raises BufferError.
    """
    buffer = _Buffer()
    _get_buffer(obj, ctypes.byref(buffer), flags)
    try:
        return int(buffer.buf or 0)
    finally:
        _release_buffer(ctypes.byref(buffer))


def exporter_of(obj: Any) -> Any:
    """The object that a memoryview of ``obj`` refers to: another one if ``obj`` passes that on; ``obj`` without a buffer."""
    try:
        return memoryview(obj).obj
    except (TypeError, ValueError, BufferError):
        return obj


def new_frame(code: types.CodeType, namespace: dict[str, Any]) -> types.FrameType:
    """A frame that has not begun, without variables (``PyFrame_New``; all versions)."""
    make, current_thread = _api.PyFrame_New, _api.PyThreadState_Get
    make.argtypes, make.restype = (ctypes.c_void_p, *[ctypes.py_object] * 3), ctypes.py_object
    current_thread.restype = ctypes.c_void_p
    frame: types.FrameType = make(current_thread(), code, namespace, {})
    return frame


def is_made_from_definition(module: object) -> bool:
    """Was the module made from a ``PyModuleDef`` in C? Extension modules are, and modules that an extension makes."""
    definition = _api.PyModule_GetDef
    definition.restype, definition.argtypes = ctypes.c_void_p, (ctypes.py_object,)
    return isinstance(module, types.ModuleType) and definition(module) is not None


def enter_context(context: contextvars.Context) -> None:
    """Make it the current context, until :func:`leave_context`. Raises RuntimeError: it is entered already."""
    _api.PyContext_Enter(ctypes.py_object(context))


def leave_context(context: contextvars.Context) -> None:
    """The context that was current before is so again. Raises RuntimeError: ``context`` is not the current one."""
    _api.PyContext_Exit(ctypes.py_object(context))


# ---------------------------------------------------------------------- structs


def _words(obj: object, count: int) -> Any:
    """The first ``count`` machine words behind the header of an object, in place."""
    return (ctypes.c_ssize_t * count).from_address(id(obj) + HEADER_BYTES)


def in_place(obj: object, layout: type[ctypes.Structure]) -> Any:
    """The struct behind the header of an object of a library's type, in place. None: it has another size."""
    if instance_bytes(type(obj)) - HEADER_BYTES != ctypes.sizeof(layout):
        return None
    return layout.from_address(id(obj) + HEADER_BYTES)


def put_reference(address: int, *value: object) -> None:
    """Put a reference to the object into the field at this address; no object: the field gets empty. What was there is
    released."""
    field = ctypes.c_void_p.from_address(address)
    before, after = field.value, id(value[0]) if value else None
    if after:
        _api.Py_IncRef(ctypes.c_void_p(after))
    field.value = after
    if before:
        _api.Py_DecRef(ctypes.c_void_p(before))


def is_code_of_thunk(thunk: object, address: int) -> bool:
    """Is this the address at which C calls the function behind a ``CThunkObject`` (``pcl_exec``,
    ``Modules/_ctypes/ctypes.h``)?
    It is among the first words of the struct: number of items, two addresses of the code."""
    return address in _words(thunk, 3)[1:]


def exchange(one: object, other: object) -> None:
    """Exchange the content of two objects of one type: the bytes of their structs behind the header. References are
    exchanged too, so no reference count changes. Raises TypeError for different types.
    """
    if type(one) is not type(other):
        raise TypeError(f"{type(one)} and {type(other)} cannot change places")
    size = instance_bytes(type(one)) - HEADER_BYTES
    content = ctypes.string_at(id(one) + HEADER_BYTES, size)
    ctypes.memmove(id(one) + HEADER_BYTES, id(other) + HEADER_BYTES, size)
    ctypes.memmove(id(other) + HEADER_BYTES, content, size)


def replace_dictionary(module: types.ModuleType, attributes: dict[str, Any]) -> bool:
    """Make ``attributes`` itself the dictionary of the module. False: the struct of the module has its dictionary in another
    place, and nothing was changed.

    ``PyModuleObject`` (``Include/internal/pycore_moduleobject.h``, ``Objects/moduleobject.c``): the dictionary comes first.
    """
    slot = ctypes.c_void_p.from_address(id(module) + HEADER_BYTES)
    old = module.__dict__
    if slot.value != id(old):
        return False
    _api.Py_IncRef(ctypes.py_object(attributes))
    slot.value = id(attributes)
    _api.Py_DecRef(ctypes.py_object(old))
    return True


def set_lru_counters(cached: Any, counters: tuple[int, int]) -> None:
    """Set the numbers of hits and misses of an object that ``functools.lru_cache`` has returned. They are not changed if the
    struct does not agree with ``cache_info()``. Successive fields of ``lru_cache_object`` (``Modules/_functoolsmodule.c``):
    dictionary, hits, function, size, misses.
    """
    cache, function, _, _ = referents.lru_parts(cached)
    words: Any = (ctypes.c_ssize_t * (instance_bytes(type(cached)) // _POINTER_BYTES)).from_address(
        id(cached)
    )
    info = cached.cache_info()
    for at in range(2, len(words) - 4):
        if (words[at], words[at + 2]) != (id(cache), id(function)):
            continue
        if (words[at + 1], words[at + 4]) == (info.hits, info.misses):
            words[at + 1], words[at + 4] = counters
        return


def batched_parts(batches: Any) -> tuple[Any, int, bool] | None:
    """``(source, size of a batch, must all batches be full?)`` of an ``itertools.batched`` (since 3.12). None: finished.
    ``batchedobject`` (``Modules/itertoolsmodule.c``): source, size, and the byte ``strict`` since 3.13.
    """
    found = [item for item in gc.get_referents(batches) if item is not type(batches)]
    words = _words(batches, 2)
    if not found or words[0] != id(found[0]):
        return None
    is_strict = False
    if interpreter.BATCHED_CAN_BE_STRICT:
        is_strict = ctypes.c_bool.from_address(ctypes.addressof(words) + ctypes.sizeof(words)).value
    return found[0], words[1], is_strict


def ordered_iterator(iterator: Any, mapping: Any) -> tuple[str, bool] | None:
    """``("keys", "values" or "items"; is it reversed?)`` of an iterator over this ``OrderedDict``. None: the struct differs.
    ``odictiterobject`` (``Objects/odictobject.c``): flags (1 reversed, 2 keys, 4 values, 6 items), dictionary.
    """
    words = _words(iterator, 2)
    if words[1] != id(mapping):
        return None
    flags = words[0] & 0xFFFF
    return {2: "keys", 4: "values", 6: "items"}[flags & 6], bool(flags & 1)


def deque_was_changed(iterator: Any, items: Any) -> bool:
    """Has this deque been changed since the iteration over it began? ``dequeiterobject``
    (``Modules/_collectionsmodule.c``) has block, index, deque and the deque's number of changes, which is the sixth
    field of ``dequeobject``.
    """
    words = _words(iterator, 4)
    return bool(words[2] == id(items) and words[3] != _words(items, 6)[5])


_ENTRY_BYTES = HEADER_BYTES + 6 * _POINTER_BYTES + ctypes.sizeof(ctypes.c_ssize_t)
_ENTRY_TYPE_BITS, _INT_BITS = 0xFF, 0xFFFFFFFF


EntryState = tuple[Any, Any, tuple[Any, ...], tuple[Any, ...], int, int, int]
"""Name, path, the result of ``stat()`` if it is known (else an empty tuple), the same of
``stat(follow_symlinks=False)``, type (``d_type`` of readdir(3)), inode, descriptor of the directory."""


def entry_state(entry: Any) -> EntryState | None:
    """The content of an ``os.DirEntry``. None: the struct differs. ``DirEntry`` (``Modules/posixmodule.c``): name, path, two
    results of ``stat`` or NULL, a byte for the type, inode, an int for the descriptor of the directory.
    """
    if instance_bytes(type(entry)) != _ENTRY_BYTES:
        return None
    words = _words(entry, 7)
    if (words[0], words[1]) != (id(entry.name), id(entry.path)) or words[5] % 2**64 != entry.inode():
        return None
    results = [ctypes.cast(word, ctypes.py_object).value if word else None for word in (words[2], words[3])]
    known = [() if result is None else (result,) for result in results]
    directory = ctypes.c_int(words[6] & _INT_BITS).value
    return entry.name, entry.path, known[0], known[1], words[4] & _ENTRY_TYPE_BITS, words[5], directory


def make_entry(cls: Any, state: EntryState) -> Any:
    """A new ``os.DirEntry`` (``cls``) with the content that :func:`entry_state` has returned. None: the struct differs."""
    if instance_bytes(cls) != _ENTRY_BYTES:
        return None
    entry = allocate(cls)
    name, path, stat, lstat, kind, inode, directory = state
    words = _words(entry, 7)
    for at, value in enumerate((name, path, *(stat or (None,)), *(lstat or (None,)))):
        if at < 2 or value is not None:
            _api.Py_IncRef(ctypes.py_object(value))
            words[at] = id(value)
    words[4], words[5] = kind, inode
    words[6] = directory & _INT_BITS
    return entry


def registered_in_poll(poll: Any) -> dict[int, int] | None:
    """Descriptor → events, of a ``select.poll`` object, in place. None: the struct differs. ``pollObject``
    (``Modules/selectmodule.c``): the dictionary, three integers that say whether a copy of it is up to date, the copy.
    """
    if instance_bytes(type(poll)) - HEADER_BYTES != 4 * _POINTER_BYTES:
        return None
    address = _words(poll, 1)[0]
    if ctypes.c_ssize_t.from_address(address + _POINTER_BYTES).value != id(dict):  # ob_type
        return None
    found: Any = ctypes.cast(address, ctypes.py_object).value
    return found if all(type(key) is type(value) is int for key, value in found.items()) else None


def referent_of(proxy: Any) -> tuple[Any, ...]:
    """The object that a weak proxy refers to, in a tuple; (): the object is gone (``PyWeakref_GetObject``)."""
    get = _api.PyWeakref_GetObject
    get.restype = ctypes.c_void_p  # a borrowed reference
    address = get(
        ctypes.c_void_p(id(proxy))
    )  # as an object, it would be asked for attributes of its referent
    return () if address == id(None) else (ctypes.cast(address, ctypes.py_object).value,)


def mark_unused(token: contextvars.Token[Any]) -> bool:
    """Remove the mark "used" of a token. False: the struct differs, and nothing was changed. ``PyContextToken``
    (``Include/internal/pycore_context.h``): context, variable, old value, mark.
    """
    variable = ctypes.c_void_p.from_address(id(token) + HEADER_BYTES + _POINTER_BYTES).value
    mark = ctypes.c_int.from_address(id(token) + HEADER_BYTES + 3 * _POINTER_BYTES)
    if variable != id(token.var) or mark.value != 1:
        return False
    mark.value = 0
    return True


def move_token(token: contextvars.Token[Any], context: contextvars.Context) -> bool:
    """Make it a token of that context. False: the struct differs, and nothing was changed. ``PyContextToken``: see
    :func:`mark_unused`."""
    address = id(token) + HEADER_BYTES
    made_in = referents.context_of_token(token)
    if made_in is None or ctypes.c_void_p.from_address(address).value != id(made_in):
        return False
    put_reference(address, context)
    return True


# ---------------------------------------------------------------------- digests

BLAKE_SIZES = {
    (3, 11): {"blake2b": (448, 438), "blake2s": (240, 230)},
    (3, 12): {"blake2b": (448, 438), "blake2s": (240, 230)},
    (3, 13): {"blake2b": (440, 438), "blake2s": (232, 230)},
}
"""Sizes of ``BLAKE2bObject`` (``Modules/_blake2/``), in bytes: of the whole object, and of the part before the lock at its
end. Objects of a version that is not listed are not touched. Since 3.14 another implementation (HACL*) keeps the state
in another place."""


def blake_state(digest: Any) -> Any:
    """The bytes of the state of a ``blake2b`` or ``blake2s``, in place: valid as long as the digest object lives. They hold
    no address (RFC 7693: parameters, chaining value, counts, an unfinished block). None: their place is not known.
    """
    cls = type(digest)
    sizes = BLAKE_SIZES.get(interpreter.MINOR, {}).get(cls.__name__)
    if sizes is None or sizes[0] != instance_bytes(cls):
        return None
    return (ctypes.c_ubyte * (sizes[1] - HEADER_BYTES)).from_address(id(digest) + HEADER_BYTES)


_OPENSSL_BYTES = 32


def openssl_context(digest: Any) -> int | None:
    """The address of OpenSSL's context in a ``HASH``, ``HASHXOF`` or ``HMAC`` of ``_hashlib``; None: the struct differs.

    ``EVPobject`` and ``HMACobject`` (``Modules/_hashopenssl.c``), of 32 bytes: header, context, lock; ``HMAC`` until 3.13.
    """
    is_known = type(digest).__name__ != "HMAC" or interpreter.HMAC_IS_KNOWN
    if _POINTER_BYTES != 8 or instance_bytes(type(digest)) != _OPENSSL_BYTES or not is_known:
        return None
    return int(_words(digest, 1)[0])
