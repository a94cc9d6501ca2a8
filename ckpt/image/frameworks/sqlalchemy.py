"""sqlalchemy: sessions, mapped classes, statements and listeners of events, as they are.

The authors' own ``__reduce__`` and ``__getstate__`` are made for copies in another place: an object leaves its session, an
attribute of a mapped class is looked up in that class (which has no attributes yet while an image is loaded), a statement
loses what the mapper has noted in it, a cached description of columns half of itself. So all of the package's objects that
are plain Python are saved raw (:mod:`ckpt.image.reducers.raw_instances`). Not so:

- An annotated element has the hash of the element, which is made from its address: it is computed anew, at once, since
  the object may be a key.
- What leads from objects to listeners for a whole class belongs to the package: it is found there again, by the class of
  events. The listeners themselves are settings.

The package has compiled modules, so its variables are no part of images. Of these are put back: the table of sessions, which
objects name by a number; the counters of such numbers, which must not come twice; the tables of mapped classes; the
listeners for a whole class (``event.listen(Session, …)``). ``event.remove`` and ``event.contains`` know a listener by
addresses: after a restart they do not know those from before (``remove`` raises).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any

from ckpt.compat.typeobjects import is_heap
from ckpt.image.frameworks.places import Places, reduce_places, reduce_to_place
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel.inspect_raw import namespace_of, package_of
from ckpt.image.reducers.raw_instances import (
    FILLED_BASES,
    attributes_of,
    has_state_in_c,
    reduce_raw,
    slots_of,
)
from ckpt.image.reducers.rebuild import fill_slots

__all__ = [
    "Sqlalchemy",
    "fill_annotated",
    "fill_dispatch",
    "make_annotated",
    "make_dispatch",
    "make_listeners",
    "of_class",
    "of_events",
    "joined_of_events",
]

_EVENTS, _LISTENERS = "sqlalchemy.event.base", "sqlalchemy.event.attr"
_MAPPER = "sqlalchemy.orm.mapper"
_COUNTERS = (("sqlalchemy.orm.session", "_new_sessionid"), ("sqlalchemy.orm.loading", "_new_runid"))
_TABLES = (
    ("sqlalchemy.orm.session", "_sessions"),
    (_MAPPER, "_mapper_registries"),
    ("sqlalchemy.orm.clsregistry", "_registries"),
    ("sqlalchemy.orm.descriptor_props", "_composite_getters"),
    ("sqlalchemy.event.registry", "_key_to_collection"),
    ("sqlalchemy.event.registry", "_collection_to_key"),
)


class Sqlalchemy(Library):
    filled_types = (
        *("sqlalchemy.sql.schema:MetaData", "sqlalchemy.sql.schema:SchemaItem"),
        *("sqlalchemy.orm.decl_api:registry", "sqlalchemy.orm.mapper:Mapper"),
        *("sqlalchemy.orm.instrumentation:ClassManager", "sqlalchemy.orm.attributes:QueryableAttribute"),
        *("sqlalchemy.orm.interfaces:MapperProperty", "sqlalchemy.orm.attributes:_AttributeImpl"),
    )

    def reducers(self) -> dict[type, Reducer]:
        return {Places: reduce_places}

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if cls.__module__.partition(".")[0] != self.name:
            return None
        for home, name, reducer in _SPECIAL:
            base = getattr(sys.modules.get(home), name, None)
            if base is not None and issubclass(cls, base):
                return reducer
        base = next(c for c in cls.__mro__ if not is_heap(c))
        is_plain = not has_state_in_c(cls) if base is object else base in FILLED_BASES
        if not is_plain or issubclass(cls, Enum):
            return None
        return reduce_of_module if libraries.is_filled(cls) else reduce_raw

    def note_settings(self) -> Any:
        tables = {place: _copied(table) for place, table in _found(_TABLES)}
        counters = {place: _next_of(counter) for place, counter in _found(_COUNTERS)}
        listeners = list(_class_listeners())
        return {"tables": tables, "counters": counters, "listeners": listeners, "classes": _mapped_classes()}

    def apply_settings(self, saved: Any) -> None:
        for place, table in _found(tuple(saved["tables"])):
            table.clear()
            table.update(saved["tables"][place])
        for place, counter in _found(tuple(saved["counters"])):
            for cell in counter.__closure__ or ():
                if type(cell.cell_contents) is itertools.count:
                    cell.cell_contents = itertools.count(saved["counters"][place])
        for cls, attributes in saved["classes"]:
            for name, value in attributes.items():
                if namespace_of(cls).get(name) is not value:
                    type.__setattr__(cls, name, value)
        for events, name, listeners in saved["listeners"]:
            level = of_class(events, name)
            for cls, functions in listeners:
                level.update_subclass(cls)
                level._clslevel[cls].clear()
                level._clslevel[cls].extend(functions)


def reduce_of_module(saver: Any, obj: Any) -> Any:
    return reduce_to_place(saver, obj, "sqlalchemy")


def _found(places: tuple[tuple[str, str], ...]) -> Iterator[tuple[tuple[str, str], Any]]:
    for module, name in places:
        value = getattr(sys.modules.get(module), name, None)
        if value is not None:
            yield (module, name), value


def _mapped_classes() -> list[tuple[type, dict[str, Any]]]:
    """The mapped classes and their bases, with those attributes that are of the package: one of an installed module may have
    got some since its import (``backref``)."""
    found: dict[type, dict[str, Any]] = {}
    for registry in list(getattr(sys.modules.get(_MAPPER), "_mapper_registries", ())):
        for mapper in list(registry.mappers):
            for cls in mapper.class_.__mro__:
                found[cls] = {
                    name: value
                    for name, value in namespace_of(cls).items()
                    if package_of(str(namespace_of(type(value)).get("__module__"))) == "sqlalchemy"
                }
    return [(cls, attributes) for cls, attributes in found.items() if attributes]


def _copied(table: Any) -> Any:
    return set(table) if isinstance(table, set) else dict(table.items())


def _next_of(counter: Any) -> int:
    """The next number of a ``sqlalchemy.util.counter()``."""
    cells = [cell.cell_contents for cell in counter.__closure__ or ()]
    count = next(content for content in cells if type(content) is itertools.count)
    following: Any = count.__reduce__()[1][0]
    return int(following)


# ---------------------------------------------------------------------- statements


def reduce_annotated(saver: Any, element: Any) -> Any:
    """An annotated element: its class in front of the element that it stands for."""
    plain = element.__dict__.get("_Annotated__element")
    if plain is None:  # it is being made
        return reduce_raw(saver, element)
    state = (plain, attributes_of(element), slots_of(saver, element))
    return make_annotated, (type(element), plain), state, None, None, fill_annotated


def make_annotated(cls: type, plain: Any) -> Any:
    element: Any = object.__new__(cls)
    element.__dict__["_hash"] = hash(plain)
    return element


def fill_annotated(element: Any, state: tuple[Any, Any, Any]) -> None:
    plain, *rest = state
    fill_slots(element, (rest[0], rest[1]))
    element.__dict__["_hash"] = hash(plain)


# ---------------------------------------------------------------------- events


def _class_listeners() -> Iterator[tuple[type, str, list[tuple[type, list[Any]]]]]:
    """``(class of events, name of an event, [(class, listeners of that class)])``."""
    for name, classes in getattr(sys.modules.get(_EVENTS), "_registrars", {}).items():
        for events in classes:
            level = getattr(events.dispatch, name)
            if len(level._clslevel):
                yield events, name, [(cls, list(found)) for cls, found in level._clslevel.items()]


def of_class(events: Any, name: str) -> Any:
    """What keeps the listeners of an event for whole classes."""
    return getattr(events.dispatch, name)


def of_events(events: Any) -> Any:
    return events.dispatch


def joined_of_events(events: Any) -> Any:
    return events.dispatch._joined_dispatch_cls


def reduce_class_level(saver: Any, level: Any) -> Any:
    """It belongs to the package: found by its class of events."""
    name = getattr(level, "name", "")
    for events in sys.modules[_EVENTS]._registrars.get(name, ()):
        if getattr(events.dispatch, name) is level:
            return of_class, (events, name)
    return reduce_raw(saver, level)


def reduce_listeners(saver: Any, listeners: Any) -> Any:
    """Listeners of one object, which has those of its class in view."""
    parent, shared = getattr(listeners, "parent", None), getattr(listeners, "parent_listeners", None)
    tables = getattr(parent, "_clslevel", {})  # not there: it is being made
    target = next((cls for cls, found in tables.items() if found is shared), None)
    if target is None:
        return reduce_raw(saver, listeners)
    slots = [slot for slot in slots_of(saver, listeners) if slot[1] not in ("parent", "parent_listeners")]
    state = (attributes_of(listeners), slots)
    return make_listeners, (type(listeners), parent, target), state, None, None, fill_slots


def make_listeners(cls: type, parent: Any, target: type) -> Any:
    listeners: Any = object.__new__(cls)
    if target not in parent._clslevel:
        parent.update_subclass(target)
    listeners.parent, listeners.parent_listeners = parent, parent._clslevel[target]
    return listeners


def reduce_dispatch(saver: Any, dispatch: Any) -> Any:
    """What leads from one object to its listeners. Its class has no name that leads to it."""
    events = getattr(dispatch, "_events", None)
    if events is None:
        return reduce_raw(saver, dispatch)
    if dispatch is events.dispatch:
        return of_events, (events,)
    is_joined = type(dispatch) is not type(events.dispatch)
    if is_joined and type(dispatch) is not events.dispatch._joined_dispatch_cls:
        return reduce_raw(saver, dispatch)
    slots = [(name, value) for _, name, value in slots_of(saver, dispatch)]
    state = (attributes_of(dispatch), slots)
    return make_dispatch, (events, is_joined), state, None, None, fill_dispatch


def make_dispatch(events: Any, is_joined: bool) -> Any:
    return object.__new__(joined_of_events(events) if is_joined else type(events.dispatch))


def fill_dispatch(dispatch: Any, state: tuple[Any, list[tuple[str, Any]]]) -> None:
    attributes, slots = state
    if attributes:
        dispatch.__dict__.update(attributes)
    for name, value in slots:
        object.__setattr__(dispatch, name, value)


_SPECIAL: tuple[tuple[str, str, Reducer], ...] = (
    ("sqlalchemy.sql.annotation", "Annotated", reduce_annotated),
    (_LISTENERS, "_ClsLevelDispatch", reduce_class_level),
    (_LISTENERS, "_EmptyListener", reduce_listeners),
    (_LISTENERS, "_ListenerCollection", reduce_listeners),
    (_EVENTS, "_DispatchCommon", reduce_dispatch),
)
