"""Structs of buffers that read (``Modules/_io/bufferedio.c``): the two of a pair; what a buffer knows while a thread is
inside of one of its calls. What a text layer has taken. Codecs (``Modules/cjkcodecs/multibytecodec.h``). Picklers and
unpicklers (``Modules/_pickle.c``), members of zip files, builders of trees (``Modules/_elementtree.c``).

For a new minor version: have ``buffered``, ``rwpair``, ``TreeBuilderObject`` and readers and writers of codecs kept their
fields, and ``PicklerObject`` and ``UnpicklerObject`` those from ``dispatch_table`` and ``input_len`` on? Those that are used
are compared with what Python says of the object.
"""

from __future__ import annotations

import ctypes
import gc
import io
import sys
import types
from typing import Any

from ckpt.compat.typeobjects import HEADER_BYTES, instance_bytes

__all__ = [
    "CODEC_WORDS",
    "MEMBER_CALLS",
    "buffers_of_pair",
    "codec_words",
    "find_place_of_member",
    "has_taken_text",
    "is_in_use",
    "parts_of_member",
    "parts_of_pickler",
    "parts_of_builder",
    "parts_of_unpickler",
    "put_handlers",
    "set_parts_of_builder",
    "taken_of_line",
    "window_of",
]

_WORDS = 17
_RAW, _PLACE, _BUFFER, _AT, _FILLED = 0, 4, 5, 6, 7
_END, _WRITE_BEGIN, _WRITE_END, _OWNER, _SIZE = 8, 9, 10, 12, 13
_NEWLINE = b"\n"


def _words(reader: io.BufferedReader | io.BufferedRandom) -> Any:
    """The words of the struct, in place. None: another layout."""
    if instance_bytes(io.BufferedReader) != HEADER_BYTES + _WORDS * ctypes.sizeof(ctypes.c_void_p):
        return None
    words = (ctypes.c_ssize_t * _WORDS).from_address(id(reader) + HEADER_BYTES)
    size = reader.__sizeof__() - instance_bytes(type(reader))
    return words if words[_RAW] == id(reader.raw) and words[_SIZE] == size else None


Window = tuple[int, bytes, int, tuple[int, bytes] | None]
"""What a buffer over a file has read: where this begins in the file, the bytes, the program's place in them; and what the
program has written over them, and at which place in them, which the file does not have yet."""


def window_of(buffer: io.BufferedReader | io.BufferedRandom) -> Window | None:
    """None: another layout, or nothing that is still of use. No method of the buffer is called."""
    words = _words(buffer)
    if words is None or words[_PLACE] < 0:
        return None
    filled, end, written = words[_FILLED], words[_END], None
    if isinstance(buffer, io.BufferedRandom) and words[_WRITE_END] != -1:
        written = words[_WRITE_BEGIN], words[_WRITE_END]
        end = max(end, written[1])
    if not 0 <= words[_AT] <= end <= words[_SIZE] or not 0 <= filled <= end or (not written and filled < end):
        return None
    if written and words[_END] < 0 and filled:
        return None
    held = ctypes.string_at(words[_BUFFER], end)
    return words[_PLACE] - filled, held[:filled], words[_AT], written and (written[0], held[slice(*written)])


def buffers_of_pair(pair: io.BufferedRWPair) -> tuple[Any, Any] | None:
    """The reader and the writer of a pair of buffers (``rwpair``; all versions). None: another layout."""
    if instance_bytes(io.BufferedRWPair) != HEADER_BYTES + 4 * ctypes.sizeof(ctypes.c_void_p):
        return None
    words = (ctypes.c_ssize_t * 2).from_address(id(pair) + HEADER_BYTES)
    found = [ctypes.cast(word, ctypes.py_object).value for word in words]
    is_known = [type(each) for each in found] == [io.BufferedReader, io.BufferedWriter]
    return (found[0], found[1]) if is_known else None


def is_in_use(reader: io.BufferedReader) -> bool:
    """Is a thread inside of a call of the reader? In a forked child such a thread does not exist, and nobody may call any of
    the reader's methods that need its lock."""
    words = _words(reader)
    return words is not None and words[_OWNER] != 0


def taken_of_line(reader: io.BufferedReader, *, is_listed: bool = True) -> bytes | None:
    """What a call of ``readline`` that waits for more below has taken already; None: that is not known.

    It has taken all that the buffer had been filled with, from some place on; there is no end of a line in it. So nothing
    has been taken if the last byte in the buffer is one. Else the pieces are in a list that C code alone holds
    (``is_listed``), of which the latest is the end of the buffer. Where several readers have the same end, each must have
    such a list, with the same pieces.
    """
    filled = _filled(reader)
    if filled is None or not filled or filled.endswith(_NEWLINE):
        return None if filled is None else b""
    if not is_listed:
        return None
    of_c = _held_by_c([part for part in gc.get_objects() if type(part) is list and _are_pieces(part, filled)])
    if not of_c:
        return b""
    in_use = [each for each in gc.get_objects() if type(each) is io.BufferedReader and is_in_use(each)]
    ends = tuple(part[-1] for part in of_c)
    alike = [each for each in in_use if (_filled(each) or b"").endswith(ends)]
    lines = {b"".join(part) for part in of_c}
    return lines.pop() if len(lines) == 1 and len(alike) == len(of_c) else None


def has_taken_text() -> bool:
    """May a call of ``readline`` of a text layer, which waits for more below, have taken a part of its line? What it takes
    is in a list that C code alone holds, to which it adds one piece after the other (``Modules/_io/textio.c``: chunks; all
    versions). The variables of functions that run in this thread refer to lists, too, and are not seen."""
    found = [part for part in gc.get_objects() if type(part) is list and _are_texts(part)]
    ours = {id(value) for frame in _frames_above() for value in frame.f_locals.values()}
    return any(id(part) not in ours for part in _held_by_c(found))


def _frames_above() -> list[types.FrameType]:
    """Those of the functions that have called the one that calls this, which would refer to itself if it asked for its own
    variables."""
    frame: types.FrameType | None = sys._getframe(2)
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _are_texts(part: list[Any]) -> bool:
    """Could it be a list of pieces, each added to it, none of them a line?"""
    if not part or not all(type(piece) is str and piece and "\n" not in piece for piece in part):
        return False
    grown: list[Any] = []
    for piece in part:
        grown.append(piece)  # noqa: PERF402  # a copy made in one go has another size
    return part.__sizeof__() == grown.__sizeof__()


def _held_by_c(found: list[list[Any]]) -> list[list[Any]]:
    """Those of the lists to which no object refers but ``found``. Objects hold the variables of captured functions. All
    objects are looked at once, and not once for each list."""
    arguments = tuple(found)
    holders = [each for each in gc.get_referrers(*arguments) if each is not found and each is not arguments]
    held = {id(item) for each in holders for item in gc.get_referents(each)}
    return [part for part in found if id(part) not in held]


def _filled(reader: io.BufferedReader) -> bytes | None:
    """What the buffer has been filled with, read or not. None: another layout."""
    words = _words(reader)
    if words is None or not 0 <= words[_FILLED] <= words[_SIZE]:
        return None
    return ctypes.string_at(words[_BUFFER], words[_FILLED])


def _are_pieces(part: list[Any], filled: bytes) -> bool:
    if not part or type(part[-1]) is not bytes or not filled.endswith(part[-1]):
        return False
    return all(type(piece) is bytes and piece and _NEWLINE not in piece for piece in part)


# ---------------------------------------------------------------------- picklers; all places are counted from the end

_WRITE, _PROTOCOL, _FAST, _FIX_IMPORTS = -12, -8, -4, -3
_READ, _READLINE, _PEEK = -11, -9, -8
_ENCODING, _ERRORS, _MARKS, _LATEST_PROTOCOL = -6, -5, -3, -1
_INT = 1 << 32


def parts_of_pickler(pickler: Any) -> tuple[Any, int, bool] | None:
    """``write``, protocol and ``fix_imports`` of a pickler in C that is in no call. None: another layout, or it has hooks of
    its own (``persistent_id``, ``reducer_override``, a table, ``buffer_callback``)."""
    words = _all_words(pickler)
    write = _referred(pickler, words[_WRITE])
    hooks = (*words[3 : _WRITE - 2], words[_WRITE - 2], words[_WRITE - 1], words[-1])
    protocol, is_binary = words[_PROTOCOL] % _INT, words[_PROTOCOL] // _INT
    is_known = is_binary == pickler.bin == (protocol > 0) and words[_FAST] % _INT == int(pickler.fast)
    if write is None or any(hooks) or protocol > 5 or not is_known or words[_FIX_IMPORTS] % _INT > 1:
        return None
    return write, protocol, bool(words[_FIX_IMPORTS] % _INT)


def parts_of_unpickler(unpickler: Any) -> tuple[dict[str, Any], bool, str, str] | None:
    """The methods of its file by name, ``fix_imports``, ``encoding`` and ``errors`` of an unpickler in C that is in no call.
    None: another layout, or it has hooks of its own (``persistent_load``, ``buffers``)."""
    words = _all_words(unpickler)
    names = ("read", "readinto", "readline", "peek")
    found = {
        name: _referred(unpickler, words[_READ + at]) for at, name in enumerate(names) if words[_READ + at]
    }
    fix_imports = words[_LATEST_PROTOCOL] // _INT
    if found.keys() < {"read", "readline"} or None in found.values() or any(words[6:-26]) or words[_PEEK + 1]:
        return None
    if words[_MARKS] or fix_imports not in (0, 1) or not (words[_ENCODING] and words[_ERRORS]):
        return None
    encoding, errors = (ctypes.string_at(words[at]).decode("ascii") for at in (_ENCODING, _ERRORS))
    return found, bool(fix_imports), encoding, errors


CODEC_WORDS = {"MultibyteStreamReader": 8, "MultibyteStreamWriter": 7}
"""Header (two words), codec, state, errors, what waits (of a reader: bytes, and their number), stream."""


def codec_words(coder: Any) -> Any:
    """The words of a reader or writer of text in C, in place; None: the struct differs."""
    base = next(each for each in type(coder).__mro__ if each.__name__ in CODEC_WORDS)
    count = CODEC_WORDS[base.__name__]
    if instance_bytes(base) != count * ctypes.sizeof(ctypes.c_void_p):
        return None
    words = (ctypes.c_ssize_t * count).from_address(id(coder))
    return words if (words[1], words[-1]) == (id(type(coder)), id(coder.stream)) else None


def _all_words(obj: Any) -> Any:
    size = instance_bytes(type(obj)) // ctypes.sizeof(ctypes.c_void_p)
    return list((ctypes.c_ssize_t * size).from_address(id(obj)))


def _referred(obj: Any, address: int) -> Any:
    """The object at this address, if ``obj`` refers to it; None: it does not."""
    return next((each for each in gc.get_referents(obj) if id(each) == address), None)


# ---------------------------------------------------------------------- xml.etree.ElementTree

_BUILDER_WORDS = 13, 18  # of all versions: the words from ``root`` to ``pi_event_obj``, and all of them
_STACK, _DEPTH = 5, 6
BuilderParts = tuple[dict[int, Any], list[Any], bytes]
"""Of a ``TreeBuilder``: its fields with an object, by number; the elements that are open; the two flags."""


def parts_of_builder(builder: Any) -> BuilderParts | None:
    """None: another layout."""
    words = _builder_words(builder)
    if words is None:
        return None
    found = {at: _referred(builder, words[at]) for at in _builder_fields() if words[at]}
    stack, depth = found.pop(_STACK, None), words[_DEPTH]
    if any(each is None and words[at] != id(None) for at, each in found.items()):
        return None
    if type(stack) is not list or not 0 <= depth <= len(stack):
        return None
    return found, stack[:depth], (words[17] & 0xFFFF).to_bytes(2, "little")


def set_parts_of_builder(builder: Any, parts: BuilderParts) -> bool:
    """Give a new ``TreeBuilder`` these parts. False: another layout."""
    from ckpt.compat.memory import put_reference

    words = _builder_words(builder)
    if words is None:
        return False
    found, stack, flags = parts
    place = id(builder) + HEADER_BYTES
    for at in _builder_fields():
        value = (list(stack),) if at == _STACK else (found[at],) if at in found else ()
        put_reference(place + at * 8, *value)
    words[_DEPTH] = len(stack)
    words[17] = words[17] & ~0xFFFF | int.from_bytes(flags, "little")
    return True


def _builder_fields() -> list[int]:
    return [at for at in range(17) if at != _DEPTH]


def _builder_words(builder: Any) -> Any:
    if instance_bytes(type(builder)) < HEADER_BYTES + 18 * 8:
        return None
    return (ctypes.c_ssize_t * 18).from_address(id(builder) + HEADER_BYTES)


def put_handlers(parser: Any, before: Any, target: Any) -> None:
    """The fields of an ``XMLParser`` in C that hold methods of ``before``, for which it was made, get those of
    ``target``."""
    from ckpt.compat.memory import put_reference

    methods = {
        id(each): each for each in gc.get_referents(parser) if getattr(each, "__self__", None) is before
    }
    for at, word in enumerate(_all_words(parser)):
        if word in methods:
            put_reference(id(parser) + at * 8, getattr(target, methods[word].__name__))


# ---------------------------------------------------------------------- zipfile


MEMBER_CALLS = tuple(
    f"zipfile:ZipExtFile.{name}"
    for name in ("__init__", "read", "read1", "_read1", "_read2", "_update_crc", "peek", "readline", "seek")
)
"""Its methods in Python that read."""


def parts_of_member(member: Any) -> tuple[dict[str, Any], int | None]:
    """The attributes of a ``zipfile.ZipExtFile`` without what decompresses and decrypts, and its place; None: none to be
    found again. All versions."""
    attributes = {**member.__dict__, **dict.fromkeys(("_decompressor", "_decrypter"))}
    has_place = attributes.get("_seekable") and not member.closed
    return attributes, member.tell() if has_place else None


def find_place_of_member(member: Any, place: int) -> None:
    """Have such an object read again from its beginning up to the place (``seek``; all versions)."""
    if member._pwd:
        member._decrypter = len  # it is to be made again
    member._left, member._readbuffer, member._offset = -1, b"", 0  # as behind its end: seek() begins anew
    member.seek(place)
