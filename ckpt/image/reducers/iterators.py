"""Iterators over the interpreter's own containers, and views of them: they keep their container over a restart, so that
they see what is done to it afterwards, and the place where they are.

``pickle`` makes most of them iterators over a copy of what remains, or refuses. What is in the image is the container,
the kind of the iterator and how many items it has handed out; that is found by listing what remains, which C does on
a copy of the iterator. One whose container has been changed under it raises RuntimeError at its next step, after the
items that it hands out before; it is saved as that (:class:`Changed`).

At load
    An iterator may be met while its container is being loaded: it is part of an item of it (an object in a list that
    walks over that list). It can be made, or put into its place, only when the container is complete. Until then a
    shell stands for it, an iterator over nothing of the same type; :func:`finish` gives it what belongs into it.
    Complete is what has as many items as it had; containers that are filled a second time
    (:mod:`ckpt.image.pickling.containers`) are told to :func:`finish`.

The names of what is called at load (:func:`make`, :func:`place`, :func:`make_view`, :class:`Changed`) are part of the
image format.
"""

from __future__ import annotations

import gc
import itertools
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

T = TypeVar("T")

__all__ = ["REDUCERS", "Changed", "by_using_up", "class_of_dict", "finish", "make", "make_view", "place"]

# ---------------------------------------------------------------------- kinds

_VIEWS = ("keys", "values", "items")
_EMPTY: dict[type, Callable[[], Any]] = {
    **{base: base for base in (dict, OrderedDict, set, deque)},
    frozenset: set,
}
_OVER: dict[str, Callable[[Any], Any]] = {
    "list": list.__iter__,
    "list backwards": list.__reversed__,
    "backwards": reversed,
}

Kind = tuple[type, str, bool]
"""(container's type, view or "", reversed)"""


def fresh(kind: Kind, container: Any) -> Any:
    """An iterator of that kind that has handed out nothing yet; by the type's own methods, not the program's."""
    base, view, backwards = kind
    if base is OrderedDict:
        source = getattr(OrderedDict, view)(container)
    elif base is dict:  # or the dictionary of a class, which is a proxy
        source = getattr(dict, view)(container) if isinstance(container, dict) else getattr(container, view)()
    elif base is deque:
        return deque.__reversed__(container) if backwards else deque.__iter__(container)
    else:
        return set.__iter__(container) if isinstance(container, set) else frozenset.__iter__(container)
    return reversed(source) if backwards else iter(source)


def _kinds(base: type, views: tuple[str, ...]) -> dict[type, Kind]:
    both = itertools.product(views, (False, True))
    kinds: list[Kind] = [(base, view, backwards) for view, backwards in both]
    return {type(fresh(kind, _EMPTY[base]())): kind for kind in kinds}


_DICT = _kinds(dict, _VIEWS)
_SET: Kind = (set, "", False)
_DEQUE: dict[type, Kind] = {
    type(iter(deque())): (deque, "", False),
    type(reversed(deque())): (deque, "", True),
}
_ORDERED: type = type(iter(OrderedDict()))

# ---------------------------------------------------------------------- at load

_late: list[tuple[Any, Callable[[], Any], Any, bool]] = []
"""(iterator, makes the right one, its container, is it a shell?): those that were made since the last `finish`."""


class Changed:
    """What an iterator does whose container was changed under it: some items, then RuntimeError."""

    def __init__(self, items: list[Any], text: str) -> None:
        self.items = iter(items)
        self.text = text

    def __iter__(self) -> Changed:
        return self

    def __next__(self) -> Any:
        for item in self.items:
            return item
        raise RuntimeError(self.text)


def make(kind: Kind, container: Any, size: int, done: int) -> Any:
    """One that has handed out `done` items of a container that had `size` when the image was made."""

    def right() -> Any:
        made = fresh(kind, container)
        next(itertools.islice(made, done, done), None)
        return made

    is_there = _length(kind[0], container) == size
    made = right() if is_there else fresh(kind, _EMPTY[kind[0]]())
    _late.append((made, right, container, not is_there))
    return made


def place(name: str, container: Any, size: int, index: int) -> Any:
    """One over a list that had `size` items, or over a sequence of the program's own (-1), at `index`."""

    def right() -> Any:
        made = _OVER[name](container)
        made.__setstate__(index)
        return made

    if size >= 0 and list.__len__(container) == size:
        return right()
    made: Any = _OVER[name](() if size < 0 else [])
    _late.append((made, right, None, True))
    return made


def make_view(base: type, mapping: Any, view: str) -> Any:
    """A view of a dictionary, by the type's own method."""
    return getattr(base, view)(mapping) if isinstance(mapping, base) else getattr(mapping, view)()


def finish(refilled: list[Any]) -> None:
    """Everything is loaded: give shells, and iterators over containers that were filled again, what belongs into them."""
    late, _late[:] = _late[:], []
    again = {id(container) for container in refilled}
    for made, right, container, is_shell in late:
        if is_shell or id(container) in again:
            _exchange(made, right())


def _exchange(one: Any, other: Any) -> None:
    """Two iterators of one type become each other: what follows the header of their objects changes places, references
    included, so that nothing is counted anew."""
    import ctypes

    if type(one) is not type(other):
        raise TypeError(f"{type(one)} and {type(other)} cannot change places")
    head, size = object.__basicsize__, type(one).__basicsize__ - object.__basicsize__
    kept = ctypes.string_at(id(one) + head, size)
    ctypes.memmove(id(one) + head, id(other) + head, size)
    ctypes.memmove(id(other) + head, kept, size)


# ---------------------------------------------------------------------- at an image

_used_up: dict[int, tuple[Any, Any]] = {}
"""Objects that were used up in this process, a forked child: by id, the object and what was in it."""


def by_using_up(obj: Any, look: Callable[[Any], T]) -> T:
    """`look(obj)`, which uses the object up: once, whoever asks (an object may be pickled a second time, for a trial)."""
    known = _used_up.get(id(obj))
    if known is None:
        known = _used_up[id(obj)] = obj, look(obj)
    found: T = known[1]
    return found


def _to_the_error(obj: Any) -> tuple[list[Any], str]:
    items: list[Any] = []
    try:
        items.extend(obj)  # one by one: what came before the error stays
    except RuntimeError as changed:
        return items, str(changed)
    return items, "the container was changed during iteration"


def _reduce(pickler: Saver, obj: Any, kind: Kind, container: Any) -> Any:
    """With a container of which this iterator has handed out all but what is listed as remaining."""
    size = _length(kind[0], container)
    try:
        remaining = obj.__reduce__()[1][0]
    except RuntimeError as changed:
        if not pickler.is_disposable:
            reason = f"{type(obj).__name__}: {changed}; such an iterator cannot be saved without fork"
            raise PicklingError(reason) from None
        return Changed, by_using_up(obj, _to_the_error)
    return make, (kind, container, size, size - len(remaining))


def _length(base: type, container: Any) -> int:
    by_type = isinstance(container, base)
    return base.__len__(container) if by_type else len(container)  # type: ignore[attr-defined]


def reduce_dict_iterator(pickler: Saver, obj: Any) -> Any:
    kind = _DICT[type(obj)]
    mapping: Any = next((item for item in gc.get_referents(obj) if isinstance(item, dict)), None)
    if mapping is None:  # finished
        return make, (kind, {}, 0, 0)
    owner = class_of_dict(mapping)
    if owner is not None and pickler.references.names(owner):  # filled when it is found, unlike one by value
        mapping = owner.__dict__
    return _reduce(pickler, obj, kind, mapping)


def reduce_set_iterator(pickler: Saver, obj: Any) -> Any:
    container = next((item for item in gc.get_referents(obj) if isinstance(item, (set, frozenset))), None)
    if container is None:
        return make, (_SET, frozenset(), 0, 0)
    return _reduce(pickler, obj, (_SET[0] if isinstance(container, set) else frozenset, "", False), container)


def reduce_ordered_iterator(pickler: Saver, obj: Any) -> Any:
    """What it hands out stands before the pointer to its dictionary: 1 backwards, 2 keys, 4 values."""
    found = [item for item in gc.get_referents(obj) if isinstance(item, OrderedDict)]
    if not found:  # finished
        return make, ((OrderedDict, "keys", False), OrderedDict(), 0, 0)
    words = _words(obj, 2)
    if words[1] != id(found[0]):
        raise PicklingError("an iterator of an OrderedDict has another layout than is known; finish it first")
    what = words[0] & 0xFFFF
    view = {2: "keys", 4: "values", 6: "items"}[what & 6]
    return _reduce(pickler, obj, (OrderedDict, view, bool(what & 1)), found[0])


def reduce_deque_iterator(pickler: Saver, obj: Any) -> Any:
    """Its type has a name that leads nowhere in some versions. Behind its block, its place and its deque it has the
    count of changes that it knows, which stands behind four fields in the deque."""
    _, (items, *done) = obj.__reduce__()
    words = _words(obj, 4)
    if words[2] == id(items) and words[3] != _words(items, 6)[5]:
        return Changed, ([], "deque mutated during iteration")
    return make, (_DEQUE[type(obj)], items, deque.__len__(items), *(done or (0,)))


def _words(obj: Any, count: int) -> Any:
    """The first words behind the header of an object."""
    import ctypes

    return (ctypes.c_ssize_t * count).from_address(id(obj) + object.__basicsize__)


def reduce_list_iterator(pickler: Saver, obj: Any) -> Any:
    _, (container, *_), *index = obj.__reduce__()
    name = "list" if type(obj) is type(iter([])) else "list backwards"
    return place, (name, container, list.__len__(container), *(index or (0,)))


def reduce_reversed(pickler: Saver, obj: Any) -> Any:
    """Over a sequence of the program's own, whose length is asked for."""
    _, (container, *_), *index = obj.__reduce__()
    return place, ("backwards", container, -1, *(index or (-1,)))


def reduce_view(pickler: Saver, obj: Any) -> Any:
    base, view = _VIEW_TYPES[type(obj)]
    mapping = gc.get_referents(obj)[0]
    owner = class_of_dict(mapping)
    return make_view, (base, mapping if owner is None else owner.__dict__, view)


def class_of_dict(mapping: Any) -> type | None:
    """The class whose attributes these are; the dictionary itself is in no image."""
    if type(mapping) is not dict or "__module__" not in mapping:
        return None
    for value in mapping.values():
        if isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            owner: type = value.__objclass__
            if gc.get_referents(owner.__dict__)[0] is mapping:
                return owner
    for found in gc.get_referrers(mapping):
        if isinstance(found, type) and gc.get_referents(found.__dict__)[0] is mapping:
            return found
    return None


_VIEW_TYPES = {type(getattr(base(), view)()): (base, view) for base in (dict, OrderedDict) for view in _VIEWS}

REDUCERS: dict[type, Callable[[Saver, Any], Any]] = {
    **dict.fromkeys(_DICT, reduce_dict_iterator),
    **dict.fromkeys(_DEQUE, reduce_deque_iterator),
    **dict.fromkeys(_VIEW_TYPES, reduce_view),
    type(iter(set())): reduce_set_iterator,
    _ORDERED: reduce_ordered_iterator,
    type(iter([])): reduce_list_iterator,
    type(reversed([])): reduce_list_iterator,
    reversed: reduce_reversed,
}
"""By exact type."""
