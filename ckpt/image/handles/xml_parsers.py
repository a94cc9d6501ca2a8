"""Parsers of XML in the middle of a text: ``ElementTree.iterparse``, ``XMLPullParser``, ``XMLParser``, and parsers of expat
(``xml.sax``, ``xml.dom.minidom``, xmltodict).

What expat knows of a text is in its memory, and nobody can read it. But it follows from what the parser has been told: so
that is kept (:func:`note`), with the texts themselves, which the program has made anyway. After a restart a new parser is
told the same, with nobody listening; then it gets the handlers, and the builder its elements.

A text counts as told from the moment in which the parser gets it. No image is taken within, as handlers are called from C.
When a text has come to its end, it is dropped: a parser that has ended is made by another text that ends.

Refused by name: a parser that has been told more than :data:`MOST_BYTES`, has made parsers of external entities, or was made
before ckpt was told of the module.
"""

from __future__ import annotations

import contextlib
import functools
from pickle import PicklingError
from typing import Any

from ckpt.compat import accelerators, readers, typeobjects
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import attributes_of, set_attributes, slots_of
from ckpt.image.reducers.saver import Saver
from ckpt.image.stdlib.c_objects import reduce_remaining

__all__ = [
    "MOST_BYTES",
    "note",
    "record_expat",
    "record_trees",
    "reduce_builder",
    "reduce_expat",
    "reduce_tree_parser",
]

MOST_BYTES = 128 << 20
"""Of the texts of all parsers that are at work. Above it, those are let go that have not been told anything for the longest
time; first of all one that has got more by itself."""

Call = tuple[str, tuple[Any, ...]]
Creation = tuple[tuple[Any, ...], dict[str, Any]]


class _Told:
    """``made_with``: the arguments that the parser was made with. ``calls``: what it has been told; None: not known any
    more. ``nbytes``: of the texts in it."""

    __slots__ = ("calls", "made_with", "nbytes")

    def __init__(self, made_with: Creation, calls: list[Call] | None) -> None:
        self.made_with, self.calls, self.nbytes = made_with, calls, sum(map(_size, calls or ()))


_told: dict[int, _Told] = {}
"""By the id of a parser (there are no weak references to one), the one that was told something last at the end. The entry of
one that is gone is there until another one is made at its address, or as long as there is room."""

_TREE_CALLS = ("feed", "close", accelerators.PARSE_WHOLE, accelerators.SET_EVENTS, "flush")
_EXPAT_CALLS = (
    *("Parse", "ParseFile", "ExternalEntityParserCreate", "SetBase", "SetParamEntityParsing"),
    *("UseForeignDTD", "SetReparseDeferralEnabled"),
)
_ENDED_TREE: list[Call] = [("feed", (b"<a/>",)), ("close", ())]
_ENDED_EXPAT: list[Call] = [("Parse", (b"<a/>", True))]


def _size(call: Call) -> int:
    return len(call[1][0]) if call[0] in ("feed", "Parse") else 0


def note(parser: Any, name: str, arguments: tuple[Any, ...]) -> None:
    """The parser is about to be told this. No image is taken in here."""
    told = _told.pop(id(parser), None)
    if told is None:
        return
    _told[id(parser)] = told
    if told.calls is None:
        return
    if name == "ExternalEntityParserCreate":
        told.calls = None
    elif name in ("close", accelerators.PARSE_WHOLE):
        told.calls, told.nbytes = [*_ENDED_TREE], 0
    elif name == "ParseFile" or (name == "Parse" and any(arguments[1:])):
        told.calls, told.nbytes = [*_ENDED_EXPAT], 0
    else:
        if name == accelerators.SET_EVENTS:
            arguments = ([], *arguments[1:])  # the queue is the program's
        elif name in ("feed", "Parse") and type(arguments[0]) not in (str, bytes):
            arguments = (bytes(arguments[0]), *arguments[1:])
        told.calls.append((name, arguments))
        told.nbytes += _size(told.calls[-1])
        _let_go(told)


def _let_go(latest: _Told) -> None:
    total = sum(told.nbytes for told in _told.values())
    for told in [latest] if latest.nbytes > MOST_BYTES else _told.values():
        if total <= MOST_BYTES:
            break
        total -= told.nbytes
        if told.nbytes:
            told.calls, told.nbytes = None, 0


def _noting(name: str, original: Any) -> Any:
    @functools.wraps(original)
    def method(parser: Any, /, *arguments: Any, **options: Any) -> Any:
        note(parser, name, arguments)
        return original(parser, *arguments, **options)

    return method


def _replace_methods(cls: type, names: tuple[str, ...]) -> None:
    for name in names:
        original = cls.__dict__.get(name)
        if original is not None:
            typeobjects.replace_method(cls, name, _noting(name, original))


def record_trees() -> None:
    """From now on, what parsers of ``xml.etree.ElementTree`` are told is kept. A second time it does nothing."""
    cls: Any = getattr(accelerators.loaded(accelerators.ELEMENT_TREE), "XMLParser", None)
    if cls is None or hasattr(cls.feed, "__wrapped__"):
        return
    original = cls.__init__

    @functools.wraps(original)
    def initialize(parser: Any, /, *arguments: Any, **options: Any) -> None:
        original(parser, *arguments, **options)
        encoding = {key: value for key, value in options.items() if key == "encoding"}
        _told[id(parser)] = _Told(((), encoding), [])

    if typeobjects.replace_slot(cls, "__init__", initialize):
        _replace_methods(cls, _TREE_CALLS)


def record_expat() -> None:
    """From now on, what parsers of expat are told is kept. A second time it does nothing."""
    expat: Any = accelerators.loaded(accelerators.EXPAT[0])
    create = expat.ParserCreate
    if not hasattr(create, "__wrapped__"):

        @functools.wraps(create)
        def parser_create(*arguments: Any, **options: Any) -> Any:
            made = create(*arguments, **options)
            _told[id(made)] = _Told((arguments, options), [])
            return made

        expat.ParserCreate = parser_create
        _replace_methods(expat.XMLParserType, _EXPAT_CALLS)
    public: Any = accelerators.loaded(accelerators.EXPAT[1])
    if public is not None and getattr(public, "ParserCreate", None) is expat.ParserCreate.__wrapped__:
        public.ParserCreate = expat.ParserCreate


# ---------------------------------------------------------------------- reducers


def _known(parser: Any) -> _Told:
    told = _told.get(id(parser))
    if told is None or told.calls is None:
        kind = type(parser).__qualname__
        raise PicklingError(
            f"a parser of XML ({kind}; ElementTree.iterparse, XMLPullParser, xml.sax) in the middle of its text cannot be "
            f"saved where it has got more than {MOST_BYTES >> 20} MiB, or has external entities; read the text as a whole "
            "(ElementTree.parse), or parts of it one after the other, each with a parser of its own"
        )
    return told


def reduce_builder(pickler: Saver, obj: Any) -> Any:
    parts = readers.parts_of_builder(obj)
    if parts is None:
        raise PicklingError(
            "a TreeBuilder cannot be saved in this Python: the layout of its memory is another one"
        )
    state = (parts, attributes_of(obj), slots_of(pickler, obj))
    return make_builder, (type(obj),), state, None, None, fill_builder


def reduce_tree_parser(pickler: Saver, obj: Any) -> Any:
    told, attributes = _known(obj), (attributes_of(obj), slots_of(pickler, obj))
    pickler.defer(fill_tree_parser, obj, told.made_with, told.calls, obj.target, obj.entity)
    return make_tree_parser, (type(obj),), attributes, None, None, fill_attributes


def reduce_expat(pickler: Saver, obj: Any) -> Any:
    told = _known(obj)
    settings = {name: getattr(obj, name) for name in _SETTINGS if hasattr(obj, name)}
    names = (name for name in dir(type(obj)) if "Handler" in name)
    handlers = {name: found for name in names if (found := getattr(obj, name)) is not None}
    state = (told.made_with, told.calls, settings, handlers)
    return make_expat, (told.made_with,), state, None, None, fill_expat


_SETTINGS = ("namespace_prefixes", "ordered_attributes", "specified_attributes", "buffer_text", "buffer_size")


# ---------------------------------------------------------------------- called while loading


def make_builder(cls: Any) -> Any:
    made: Any = cls.__new__(cls)
    _class("TreeBuilder").__init__(made)
    return made


def fill_builder(builder: Any, state: Any) -> None:
    parts, *attributes = state
    readers.set_parts_of_builder(builder, parts)
    set_attributes(builder, *attributes)


def make_tree_parser(cls: Any) -> Any:
    return cls.__new__(cls)


def fill_attributes(obj: Any, state: Any) -> None:
    set_attributes(obj, *state)


def fill_tree_parser(parser: Any, made_with: Creation, calls: list[Call], target: Any, entity: Any) -> None:
    cls, has_builder = _class("XMLParser"), type(target) is _class("TreeBuilder")
    meanwhile = _class("TreeBuilder")() if has_builder else _nobody_like(target)
    cls.__init__(parser, target=meanwhile, **made_with[1])
    typeobjects.set_member(parser, cls.__dict__["entity"], entity)
    for name, arguments in calls:
        with contextlib.suppress(SyntaxError):  # as the program has been told before
            getattr(cls, name)(parser, *arguments)
    readers.put_handlers(parser, meanwhile, target)
    typeobjects.set_member(parser, cls.__dict__["target"], target)
    _told[id(parser)] = _Told(made_with, calls)


_TARGET_METHODS = ("start_ns", "end_ns", "start", "data", "end", "comment", "pi", "close", "doctype")


def _nobody_like(target: Any) -> Any:
    """An object with the methods of the target that does nothing."""

    def method(name: str) -> Any:
        def ignore(self: Any, *arguments: Any) -> None: ...

        ignore.__name__ = name
        return ignore

    return type("Nobody", (), {name: method(name) for name in _TARGET_METHODS if hasattr(target, name)})()


def make_expat(made_with: Creation) -> Any:
    from xml.parsers import expat

    arguments, options = made_with
    return expat.ParserCreate(*arguments, **options)


def fill_expat(parser: Any, state: Any) -> None:
    made_with, calls, settings, handlers = state
    for name, value in settings.items():
        setattr(parser, name, value)
    for name, arguments in calls:
        with contextlib.suppress(Exception):  # as the program has been told before
            getattr(type(parser), name)(parser, *arguments)
    for name, handler in handlers.items():
        setattr(parser, name, handler)
    _told[id(parser)] = _Told(made_with, calls)


def _class(name: str) -> Any:
    import xml.etree.ElementTree as etree

    return getattr(etree, name)


# ---------------------------------------------------------------------- the classes that serve the modules

_MOMENTS = ((f"{__name__}:note", "a parser of XML gets a text"),)


class Expat(Library):
    """``pyexpat``, and ``xml.parsers.expat``, which has its names."""

    transient_functions = _MOMENTS

    def when_imported(self) -> None:
        record_expat()

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, {"XMLParserType": reduce_expat})


class ElementTree(Library):
    """``_elementtree``: iterators over elements, parsers and builders."""

    transient_functions = _MOMENTS

    def when_imported(self) -> None:
        record_trees()

    def reducers(self) -> dict[type, Reducer]:
        """The type of iterators over elements has no name."""
        make = getattr(self.module, "Element", None)
        return {} if make is None else {type(make("_").iter()): reduce_remaining}

    def reducer_by_base(self, cls: type) -> Reducer | None:
        for name, reduce in (("XMLParser", reduce_tree_parser), ("TreeBuilder", reduce_builder)):
            if issubclass(cls, getattr(self.module, name, ())):
                return reduce
        return None
