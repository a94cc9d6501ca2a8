"""Digests of what a program holds in memory: of arrays by blocks, of single values; new arrays are zero. (driver)

    an array, a row     a digest for each of at most BLOCKS blocks
    a value             its text, see values.py; numbers are told as they are
    behind these        of arrays behind the first ARRAYS_MAX, and of values behind the first VALUES_MAX, one digest for each
                        variable that they belong to
    open                memory that a receive or a collective under way may fill at any moment; a value that is an address

A replica that has received a message already, and one that has not, differ in what is open by no fault: so they tell which
blocks are (:mod:`ckpt.redundancy.memory.comparison`).

What numpy's `empty` gives, and torch's, is whatever was in that memory before, and differs between processes. So under
``--redundancy`` it is zero (`zero_new_arrays`). What a ufunc leaves out of its result (`where` without `out`) is not made
the same.

Not here: what is found (search.py), at which place of the program this is done (question.py), the comparison
(comparison.py).
"""

from __future__ import annotations

import ctypes
import marshal
import re
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha1
from typing import Any

from ckpt.layer import Engine, unbound
from ckpt.redundancy.memory.comparison import BLOCKS, VALUE, Record
from ckpt.redundancy.memory.search import ArrayMemory, Found, Row, Value
from ckpt.redundancy.memory.values import Addresses, text_of

__all__ = ["digests", "open_memory", "zero_new_arrays"]

ARRAYS_MAX = 400
VALUES_MAX = 1000
"""So many arrays, and values, are told one by one."""

BLOCK_MIN_BYTES = 4096
BLOCK_MIN_VALUES = 16
HEX = 12

_ROOT = re.compile(r"(len\()?(\w+\(\)(\[\d+\])?\.)?\w+")


# ---- digests -----------------------------------------------------------------------------------------------


def digests(found: Found, opened: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Record]]:
    """By name of the variable, what is compared of it. `opened`: memory that may be filled at any moment: address, bytes."""
    addresses = Addresses.of_process()
    yield from _of_arrays(found.arrays, opened)
    for row in found.rows:
        yield row.name, _of_row(row, addresses)
    yield from _of_values(found.values, addresses)


def _of_arrays(
    found: Sequence[ArrayMemory], opened: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, Record]]:
    rest = _Rest("arrays")
    for at, memory in enumerate(found):
        block = block_bytes(memory.view.nbytes)
        if at >= ARRAYS_MAX:
            if not any(_overlaps(memory, 0, memory.view.nbytes, each) for each in opened):
                rest.add(memory.name, memory.form, memory.view)
            continue
        starts = range(0, memory.view.nbytes, block)
        texts = [
            sha1(memory.view[start : start + block], usedforsecurity=False).hexdigest()[:HEX]
            for start in starts
        ]
        filling = [
            number
            for number, start in enumerate(starts)
            if any(_overlaps(memory, start, min(block, memory.view.nbytes - start), each) for each in opened)
        ]
        yield memory.name, Record(memory.form, block, memory.row_bytes, tuple(texts), tuple(filling))
    yield from rest.records()


def _of_row(row: Row, addresses: Addresses) -> Record:
    count = max(BLOCK_MIN_VALUES, -(-len(row.values) // BLOCKS))
    texts, opened = [], []
    for number, start in enumerate(range(0, len(row.values), count)):
        block = list(row.values[start : start + count])
        # version 2 has neither references nor marks of interned text: equal values give equal bytes
        texts.append(sha1(marshal.dumps(block, 2), usedforsecurity=False).hexdigest()[:HEX])
        if any(map(addresses.has_part, block)):
            opened.append(number)
    return Record(row.form, count, 1, tuple(texts), tuple(opened))


def _of_values(found: Sequence[Value], addresses: Addresses) -> Iterator[tuple[str, Record]]:
    numpy = sys.modules.get("numpy")
    rest = _Rest("values")
    count = 0
    for name, value, *_ in found:
        text = text_of(value, addresses, numpy)
        if text is None:
            continue
        count += 1
        if count <= VALUES_MAX:
            yield name, Record(VALUE, 1, 1, (text,), () if text else (0,))
        elif text:
            rest.add(name, "", text.encode())
    yield from rest.records()


class _Rest:
    """One digest for all that a variable has, beside what is told one by one. Compared where all replicas have the same."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.found: dict[str, tuple[Any, Any, list[int]]] = {}

    def add(self, name: str, form: str, content: Any) -> None:
        root = _ROOT.match(name)
        key = f"{self.what} in {root[0] if root else name}"
        if key not in self.found:
            self.found[key] = sha1(usedforsecurity=False), sha1(usedforsecurity=False), [0]
        names, contents, count = self.found[key]
        count[0] += 1
        names.update(f"{name} {form} ".encode("utf-8", "surrogatepass"))
        contents.update(content)
        contents.update(b"\0")

    def records(self) -> Iterator[tuple[str, Record]]:
        for key, (names, contents, count) in self.found.items():
            form = f"{count[0]} {self.what} {names.hexdigest()[:HEX]}"
            yield f"({key})", Record(form, 1, 1, (contents.hexdigest()[:HEX],), ())


def block_bytes(nbytes: int) -> int:
    """The size of the blocks of an array: a power of two, so that there are at most BLOCKS of them."""
    return max(BLOCK_MIN_BYTES, 1 << max(0, -(-nbytes // BLOCKS) - 1).bit_length())


def _overlaps(memory: ArrayMemory, start: int, nbytes: int, other: tuple[int, int]) -> bool:
    first = memory.address + start
    return bool(memory.address) and first < other[0] + other[1] and other[0] < first + nbytes


def open_memory(engine: Engine) -> list[tuple[int, int]]:
    """Memory that messages may fill, or collectives may use, while the program does something else: address, bytes."""
    targets: list[Any] = []
    for context in list(engine.matcher.contexts.values()):
        receives = [
            *context.wild,
            *(each for channel in context.channels.values() for each in channel.posted),
        ]
        for receive in receives:
            targets += [receive.target, getattr(receive.owner, "spec", None)]
    for shared in list(engine.shared.values()):
        for chain in list(shared.pending.values()):
            for schedule in chain:  # results are stored by its last steps, from what these name
                targets += _leaves([schedule.values, schedule.spots, schedule.program])
    for window in list(engine.windows.open.values()):
        targets += window.open_memory()
    return [place for place in map(_place, targets) if place is not None]


def _leaves(part: Any) -> Iterator[Any]:
    """What lists, tuples and dictionaries of a schedule hold."""
    if isinstance(part, list | tuple):
        for each in part:
            yield from _leaves(each)
    elif isinstance(part, dict):
        yield from _leaves(list(part.values()))
    else:
        yield part


def _place(target: Any) -> tuple[int, int] | None:
    is_view = isinstance(target, memoryview)  # all of it: that of a message that is read into it directly
    obj = target if is_view else getattr(target, "obj", None)
    if obj is None or not hasattr(target, "nbytes"):
        return None
    view = memoryview(obj)
    if view.readonly or not view.nbytes or not view.contiguous:
        return None
    interface = getattr(obj, "__array_interface__", None)
    if interface is not None:
        address = interface["data"][0]
    else:
        address = ctypes.addressof(ctypes.c_char.from_buffer(obj))
    is_part = not is_view and target.dense
    return (address + target.offset, target.nbytes) if is_part else (address, view.nbytes)


# ---- new arrays are zero ---------------------------------------------------------------------------------


def zero_new_arrays() -> None:
    """From now on `empty` and `empty_like` of numpy and torch give arrays of zeros, where these are loaded. Else nothing
    happens.

    The functions are found by their names in this module, so an image refers to them."""
    numpy: Any = sys.modules.get("numpy")
    if getattr(numpy, "zeros_like", None) is not None and not _is_replaced(numpy, numpy_empty):
        _replace(numpy, {"empty": numpy_empty, "empty_like": numpy_empty_like})
    torch: Any = sys.modules.get("torch")
    if getattr(torch, "no_grad", None) is not None and not _is_replaced(torch, torch_empty):
        for name in ("empty", "empty_like"):
            if hasattr(torch, name):
                _of_torch.setdefault(name, getattr(torch, name))
        _replace(torch, {"empty": torch_empty, "empty_like": torch_empty_like})


def _is_replaced(module: Any, empty: Any) -> bool:
    present = getattr(module, "empty", None)
    return getattr(present, "func", present) is empty


def _replace(module: Any, functions: dict[str, Any]) -> None:
    if all(hasattr(module, name) for name in functions):
        for name, made in functions.items():
            genuine = getattr(module, name)
            made.__doc__ = genuine.__doc__
            setattr(module, name, made if hasattr(type(genuine), "__get__") else unbound(made, name))


def numpy_empty(*arguments: Any, **named: Any) -> Any:
    return _of_nothing(sys.modules["numpy"].zeros(*arguments, **named))


def numpy_empty_like(*arguments: Any, **named: Any) -> Any:
    return _of_nothing(sys.modules["numpy"].zeros_like(*arguments, **named))


def _of_nothing(made: Any) -> Any:
    if made.dtype.char == "O":
        made.fill(None)
    return made


_of_torch: dict[str, Any] = {}
"""The genuine functions; none in a process without replicas, which has loaded an image: there torch has its own."""


def torch_empty(*arguments: Any, **named: Any) -> Any:
    return _zeroed("empty", arguments, named)


def torch_empty_like(*arguments: Any, **named: Any) -> Any:
    return _zeroed("empty_like", arguments, named)


def _zeroed(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    torch: Any = sys.modules["torch"]
    made = _of_torch.get(name, getattr(torch, name))(*arguments, **named)
    if made.device.type == "cpu" and made.layout is torch.strided:
        with torch.no_grad():
            made.zero_()
    return made
