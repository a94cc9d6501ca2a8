"""Iterators over builtin containers, and views of dictionaries: a restart restores their container and position.

``pickle`` saves most of these iterators as iterators over a copy of the remaining items, or refuses. But the iterator of a
program must see later changes of its container. So an image holds the container, the kind of the iterator, and the number of
items that it has returned. This number is found by listing the remaining items, which C does on a copy of the iterator. If
the container has been changed during the iteration, the iterator raises RuntimeError, perhaps after some more items; it is
saved as these items and the error (:class:`Changed`).

At load
    An iterator may be loaded before its container is complete, because it is part of an item of the container (an object in
    a list that iterates over that list). Until the container is complete, the iterator is a shell: an iterator of the same
    type over an empty container. :func:`finish` then gives the shell its real content. A container is complete if it has as
    many items as in the image. Containers that are filled a second time (:mod:`ckpt.image.pickling.containers`) are given to
    :func:`finish`, and their iterators are made again.

Sets
    A set has another order in a new process if its members hash differently there, as all do that are hashed by identity.
    So the image also has the remaining items of an iterator over such a set (:func:`_has_certain_order` tells them apart).
    If the order differs after the restart, the iterator is restored as one over a set of its own, which has the remaining
    items in the order that they had: each item is returned once. Such an iterator does not see later changes of the set.
    So are iterators over sets of addresses (:mod:`ckpt.image.pickling.id_tables`), when these have become the new ones.

Groups
    An ``itertools.groupby`` that has given out all it has taken (as after ``next(group)``) must still know the key of the
    group that it has begun: it passes over the rest of that group. Its own ``__reduce__`` leaves that key out.

The names of what is called at load (:func:`make`, :func:`go_through`, :func:`place`, :func:`make_view`, :func:`make_groups`,
:class:`Changed`) are part of the image format.
"""

from __future__ import annotations

import gc
import itertools
import operator
import struct
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, TypeVar

from ckpt.compat.memory import deque_was_changed, exchange, ordered_iterator
from ckpt.compat.referents import mapping_of, state_of_groups
from ckpt.image.lowlevel import _lookup

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

T = TypeVar("T")

__all__ = [
    "REDUCERS",
    "Changed",
    "by_exhausting",
    "class_of_dict",
    "finish",
    "go_through",
    "make",
    "make_groups",
    "make_view",
    "place",
]

# ---------------------------------------------------------------------- kinds

_HASHED_BY_VALUE = frozenset({int, bool, float, complex, str, bytes})
"""Not ``None``, which Python 3.11 hashes by its address."""
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

IteratorKind = tuple[type, str, bool]
"""(Type of the container, "keys", "values", "items" or "", is the iterator reversed?)."""


def new_iterator(kind: IteratorKind, container: Any) -> Any:
    """A new iterator of that kind, at the beginning; made by the builtin type's own methods, not the program's."""
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


def _kinds(base: type, views: tuple[str, ...]) -> dict[type, IteratorKind]:
    both = itertools.product(views, (False, True))
    kinds: list[IteratorKind] = [(base, view, backwards) for view, backwards in both]
    return {type(new_iterator(kind, _EMPTY[base]())): kind for kind in kinds}


_DICT = _kinds(dict, _VIEWS)
_SET: IteratorKind = (set, "", False)
_DEQUE: dict[type, IteratorKind] = {
    type(iter(deque())): (deque, "", False),
    type(reversed(deque())): (deque, "", True),
}
_ORDERED: type = type(iter(OrderedDict()))
_GROUP: type = type(next(itertools.groupby("a"))[1])
_STATE_WITH_ITEM = 3  # the key of the group, the key of the item, the item

# ---------------------------------------------------------------------- at load

_unfinished: list[tuple[Any, Callable[[], Any], Any, bool]] = []
"""Iterators made since the last `finish`: (iterator, function that makes the final one, container, is it a shell?)."""


class Changed:
    """Stands for an iterator whose container was changed during the iteration: returns some items, then raises
    RuntimeError.
    """

    def __init__(self, items: list[Any], text: str) -> None:
        self.items = iter(items)
        self.text = text

    def __iter__(self) -> Changed:
        return self

    def __next__(self) -> Any:
        for item in self.items:
            return item
        raise RuntimeError(self.text)


def make(kind: IteratorKind, container: Any, size: int, done: int, remaining: list[Any] | None = None) -> Any:
    """An iterator that has returned `done` items of a container that had `size` items when the image was taken.
    ``remaining``: the other items in their order, for a set whose order may differ in this process.
    """

    def make_final() -> Any:
        made = new_iterator(kind, container)
        next(itertools.islice(made, done, done), None)
        if remaining is not None and not _are_same(made.__reduce__()[1][0], remaining):
            return _iterator_in_order(remaining)
        return made

    is_complete = remaining is None and _length(kind[0], container) == size
    made = make_final() if is_complete else new_iterator(kind, _EMPTY[kind[0]]())
    _unfinished.append((made, make_final, container, not is_complete))
    return made


def _are_same(items: list[Any], others: list[Any]) -> bool:
    return len(items) == len(others) and all(map(operator.is_, items, others))


def _iterator_in_order(items: list[Any]) -> Any:
    """An iterator over a set of its own, in which the items stand one behind the other."""
    own = _lookup.new_frozenset()
    places = struct.pack(f"{len(items)}I", *range(len(items)))
    hashes = struct.pack(f"{len(items)}q", *map(hash, items))
    mask = max(8, 1 << (len(items) + 1).bit_length()) - 1
    _lookup.restore(own, items, places, hashes, mask, 0)
    return frozenset.__iter__(own)


def go_through(iterator: Any, items: list[Any]) -> None:
    """In the end, when numbers that are addresses have become the new ones, which also gives their set another order: have
    an iterator over that set return these items in their order."""
    exchange(iterator, _iterator_in_order(items))


def place(name: str, container: Any, size: int, index: int) -> Any:
    """An iterator, at `index`, over a list that had `size` items, or over a sequence of a class of the program (`size` -1).

    ``name``: a key of ``_OVER``, the kind of the iterator.
    """

    def make_final() -> Any:
        made = _OVER[name](container)
        made.__setstate__(index)
        return made

    if size >= 0 and list.__len__(container) == size:
        return make_final()
    made: Any = _OVER[name](() if size < 0 else [])
    _unfinished.append((made, make_final, None, True))
    return made


def make_view(base: type, mapping: Any, view: str) -> Any:
    """A view ("keys", "values", "items") of a dictionary, made by the method of the builtin type."""
    return getattr(base, view)(mapping) if isinstance(mapping, base) else getattr(mapping, view)()


def make_groups(iterator: Any, function: Any, *state: Any) -> Any:
    """An ``itertools.groupby`` as :func:`~ckpt.compat.referents.state_of_groups` has described it."""
    groups: Any = itertools.groupby(iterator, function)
    if state:
        key, item_key, item = state if len(state) == _STATE_WITH_ITEM else (state[0], state[0], None)
        groups.__setstate__((item_key, item, key))
        if len(state) != _STATE_WITH_ITEM:
            # Take the item that there was not. The keys are one object, so nothing is compared.
            next(_GROUP(groups, key))
    return groups


def finish(refilled: list[Any]) -> None:
    """Everything is loaded: give their final content to shells, and to iterators over the containers in ``refilled``."""
    unfinished, _unfinished[:] = _unfinished[:], []
    refilled_ids = {id(container) for container in refilled}
    for made, make_final, container, is_shell in unfinished:
        if is_shell or id(container) in refilled_ids:
            exchange(made, make_final())


# ---------------------------------------------------------------------- at an image

_used_up: dict[int, tuple[Any, Any]] = {}
"""Objects that were used up in this process, a forked child: id → (object, its state)."""


def by_exhausting(obj: Any, read_state: Callable[[Any], T]) -> T:
    """The state of an object by `read_state(obj)`, which uses the object up. `read_state` is called once per object; later
    calls, as for a trial that pickles the object again, return the same result.
    """
    known = _used_up.get(id(obj))
    if known is None:
        known = _used_up[id(obj)] = obj, read_state(obj)
    found: T = known[1]
    return found


def _items_before_error(obj: Any) -> tuple[list[Any], str]:
    items: list[Any] = []
    try:
        items.extend(obj)  # extend() takes the items one by one, so those before the error are kept
    except RuntimeError as changed:
        return items, str(changed)
    return items, "the container was changed during iteration"


def _reduce(pickler: Saver, obj: Any, kind: IteratorKind, container: Any) -> Any:
    """The reduce tuple of an iterator over ``container``: it has returned all items except the remaining ones, which its own
    ``__reduce__`` lists.
    """
    size = _length(kind[0], container)
    try:
        remaining = obj.__reduce__()[1][0]
    except RuntimeError as changed:
        if not pickler.is_disposable:
            reason = f"{type(obj).__name__}: {changed}; such an iterator cannot be saved without fork"
            raise PicklingError(reason) from None
        return Changed, by_exhausting(obj, _items_before_error)
    is_set = kind[0] in (set, frozenset)
    if is_set and pickler.id_tables.note_items(container, remaining):
        pickler.defer(go_through, obj, remaining)
        return make, (kind, container, size, size - len(remaining))
    may_differ = is_set and not _has_certain_order(pickler, container)
    return make, (kind, container, size, size - len(remaining), *([remaining] if may_differ else []))


def _has_certain_order(pickler: Saver, container: Any) -> bool:
    """Will this set have the same order in the new process? It will if it is saved by value, by its exact type (its table is
    then rebuilt), and if each member hashes to the same number there.
    """
    references = pickler.references
    if type(container) not in (set, frozenset) or references.name_of(container) is not None:
        return False
    return id(container) not in references.changed.ids and all(map(_has_certain_hash, container))


def _has_certain_hash(member: Any) -> bool:
    """Is the hash computed from the value alone? That of text and bytes depends on the hash seed too, but an image is loaded
    under the same seed only (:func:`ckpt.image.modules.versions.compare_versions`). A nan is hashed by its address.
    """
    if type(member) is tuple:
        return all(map(_has_certain_hash, member))
    return type(member) in _HASHED_BY_VALUE and bool(member == member)


def _length(base: type, container: Any) -> int:
    by_type = isinstance(container, base)
    return base.__len__(container) if by_type else len(container)  # type: ignore[attr-defined]


def reduce_dict_iterator(pickler: Saver, obj: Any) -> Any:
    kind = _DICT[type(obj)]
    mapping: Any = next((item for item in gc.get_referents(obj) if isinstance(item, dict)), None)
    if mapping is None:  # finished
        return make, (kind, {}, 0, 0)
    owner = class_of_dict(mapping)
    # A by-reference class is complete at load
    if owner is not None and pickler.references.is_importable(owner):
        mapping = owner.__dict__
    return _reduce(pickler, obj, kind, mapping)


def reduce_set_iterator(pickler: Saver, obj: Any) -> Any:
    container = next((item for item in gc.get_referents(obj) if isinstance(item, (set, frozenset))), None)
    if container is None:
        return make, (_SET, frozenset(), 0, 0)
    return _reduce(pickler, obj, (_SET[0] if isinstance(container, set) else frozenset, "", False), container)


def reduce_ordered_iterator(pickler: Saver, obj: Any) -> Any:
    found = [item for item in gc.get_referents(obj) if isinstance(item, OrderedDict)]
    if not found:  # finished
        return make, ((OrderedDict, "keys", False), OrderedDict(), 0, 0)
    kind = ordered_iterator(obj, found[0])
    if kind is None:
        raise PicklingError("an iterator of an OrderedDict has another layout than is known; finish it first")
    return _reduce(pickler, obj, (OrderedDict, *kind), found[0])


def reduce_deque_iterator(pickler: Saver, obj: Any) -> Any:
    """The type cannot be found by its name in some versions of Python."""
    _, (items, *done) = obj.__reduce__()
    if deque_was_changed(obj, items):
        return Changed, ([], "deque mutated during iteration")
    return make, (_DEQUE[type(obj)], items, deque.__len__(items), *(done or (0,)))


def reduce_list_iterator(pickler: Saver, obj: Any) -> Any:
    _, (container, *_), *index = obj.__reduce__()
    name = "list" if type(obj) is type(iter([])) else "list backwards"
    return place, (name, container, list.__len__(container), *(index or (0,)))


def reduce_reversed(pickler: Saver, obj: Any) -> Any:
    """``reversed`` over a sequence of a class of the program. Making it at load calls the class's ``__len__``."""
    _, (container, *_), *index = obj.__reduce__()
    return place, ("backwards", container, -1, *(index or (-1,)))


def reduce_groups(pickler: Saver, obj: Any) -> Any:
    return make_groups, tuple(state_of_groups(obj))


def reduce_view(pickler: Saver, obj: Any) -> Any:
    base, view = _VIEW_TYPES[type(obj)]
    mapping = mapping_of(obj)
    owner = class_of_dict(mapping)
    return make_view, (base, mapping if owner is None else owner.__dict__, view)


def class_of_dict(mapping: Any) -> type | None:
    """The class of which ``mapping`` is the ``__dict__``, or None. The dictionary of a class itself is in no image."""
    if type(mapping) is not dict or "__module__" not in mapping:
        return None
    for value in mapping.values():
        if isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            owner: type = value.__objclass__
            if mapping_of(owner.__dict__) is mapping:
                return owner
    for found in gc.get_referrers(mapping):
        if isinstance(found, type) and mapping_of(found.__dict__) is mapping:
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
    itertools.groupby: reduce_groups,
}
"""Reducers by exact type."""
