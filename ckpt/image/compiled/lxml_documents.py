"""lxml: elements, trees and attributes of documents that libxml2 keeps in memory.

The nodes of a document are no Python objects; lxml makes an object for a node when the program asks for it, and the
same object as long as the program holds it. So a document is saved as XML text (:class:`Document`), and each element
that the program holds as its number in this document. A restart parses the text, and finds the same elements again:
those that were in one document, or in one part that was taken out of its document, are so again. Lines of the source,
the address of the document and what stands before and behind the root come back too.

The text is parsed once before it is saved, and the result compared node by node. A document that would not come back
equal is refused by name: names that XML does not allow (they come from HTML), elements of a class of the program's
own lookup, entities that only a DTD defines.

Refused as types that cannot be pickled are parsers, stylesheets, schemas and compiled XPath expressions.
"""

from __future__ import annotations

import gc
from pickle import PicklingError
from typing import Any

from lxml import etree  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import Reducer, by_name
from ckpt.image.stdlib.c_objects import reduce_remaining

__all__ = ["Document", "reducer_for", "reducers"]

_ITERATORS = (
    *("ElementDepthFirstIterator", "ElementChildIterator", "SiblingsIterator", "AncestorsIterator"),
    *("ElementTextIterator", "_ElementIterator"),
)


def reducers() -> dict[type, Reducer]:
    return {
        **by_name("lxml.etree", dict.fromkeys(_ITERATORS, reduce_remaining)),
        **by_name(
            "lxml.etree",
            {
                "_ElementTree": reduce_tree,
                "_Attrib": reduce_attributes,
                "QName": reduce_name,
                "_ElementUnicodeResult": reduce_text,
            },
        ),
        Document: reduce_document,
    }


def reducer_for(cls: type) -> Reducer | None:
    """The reducer for elements, comments, processing instructions and entities. Where their class has a ``__reduce__``
    (lxml.objectify), that would make a document of its own of each."""
    return reduce_element if issubclass(cls, etree._Element) else None


class Document:
    """Stands for one document, or for one part without a parent: ``top`` is its root. ``nodes``: all nodes in document
    order, with those before and behind the root."""

    def __init__(self, top: Any) -> None:
        self.top = top
        self.nodes = nodes_of(top)
        self.number_of = {id(node): number for number, node in enumerate(self.nodes)}


def nodes_of(top: Any) -> list[Any]:
    before = [*top.itersiblings(preceding=True)]
    return [*reversed(before), *top.iter(), *top.itersiblings()]


def reduce_element(pickler: Any, element: Any) -> Any:
    top = element
    while (parent := top.getparent()) is not None:
        top = parent
    top = _root_beside(top)
    document = pickler.shared.get(("lxml", id(top)))
    if document is None:
        document = pickler.shared["lxml", id(top)] = Document(top)  # which keeps `top` alive, and so its id
    return find_node, (document, document.number_of[id(element)])


def _root_beside(node: Any) -> Any:
    """The root element beside a comment or processing instruction that has no parent; else the node itself."""
    if isinstance(node.tag, str):
        return node
    beside = [*node.itersiblings(), *node.itersiblings(preceding=True)]
    return next((each for each in beside if isinstance(each.tag, str)), node)


def reduce_attributes(pickler: Any, attributes: Any) -> Any:
    """``element.attrib``, which does not tell its element."""
    return getattr, (
        next(each for each in gc.get_referents(attributes) if isinstance(each, etree._Element)),
        "attrib",
    )


def reduce_document(pickler: Any, document: Document) -> Any:
    """Written and parsed as XML; where that does not give an equal document, as HTML. ``node``: a comment, say, alone."""
    top = document.top
    is_element = isinstance(top.tag, str)
    tree: Any = top.getroottree() if is_element else None
    is_whole = is_element and tree.getroot() is top  # else a part that was taken out of its document
    info: Any = tree.docinfo if is_whole else None
    lines = [node.sourceline for node in document.nodes]
    for method in ("xml", "html") if is_whole else ("xml",) if is_element else ("node",):
        options: dict[str, Any] = {"encoding": "utf-8", "with_tail": False}
        if method == "html":
            options["method"] = "html"
        elif is_whole and info.encoding:
            options |= {"xml_declaration": True, "standalone": info.standalone, "encoding": info.encoding}
        text = etree.tostring(tree if is_whole else top, **options)
        state = (text, method, _lookup_of(top), info.URL if is_whole else None, lines, top.tail)
        try:
            again = parse(*state)
        except etree.XMLSyntaxError:
            continue
        other = nodes_of(again)
        if len(other) == len(document.nodes) and all(map(_is_equal, document.nodes, other)):
            return make_document, state
    raise PicklingError(
        f"a document of lxml (root <{top.tag}>) would not come back from its text as it is: its parser makes elements of "
        "classes of its own, or it has names, characters or entities that its text cannot hold; keep the source, and parse "
        "it again in on_restart"
    )


def _is_equal(one: Any, other: Any) -> bool:
    parts = [
        (type(each), each.tag, each.text, each.tail, each.prefix, dict(each.nsmap), [*each.attrib.items()])
        if isinstance(each.tag, str)
        else (type(each), each.tag, each.text, each.tail)
        for each in (one, other)
    ]
    return parts[0] == parts[1]


def _lookup_of(top: Any) -> str:
    """The module whose lookup chooses the classes of the elements; "": etree's own."""
    name: str = type(top).__module__
    return name if name in ("lxml.html", "lxml.objectify") else ""


def reduce_tree(pickler: Any, tree: Any) -> Any:
    return make_tree, (tree.getroot(),)


def reduce_name(pickler: Any, name: Any) -> Any:
    return etree.QName, (name.text,)


def reduce_text(pickler: Any, text: Any) -> Any:
    """A text that XPath has found, and that knows its element."""
    kind = "attribute" if text.is_attribute else "tail" if text.is_tail else "text"
    return find_text, (str(text), text.getparent(), kind, text.attrname)


# ---------------------------------------------------------------------- called while loading


def parse(
    text: bytes, method: str, lookup: str, url: str | None, lines: list[int | None], tail: str | None
) -> Any:
    options = {"remove_blank_text": False, "strip_cdata": False, "no_network": True, "huge_tree": True}
    if method == "html":
        parser = etree.HTMLParser(**options)
    else:
        parser = etree.XMLParser(**options, resolve_entities=False, load_dtd=False)
    if lookup == "lxml.html":
        from lxml import html  # type: ignore[import-not-found, import-untyped, unused-ignore]

        parser.set_element_class_lookup(html.HtmlElementClassLookup())
    elif lookup:
        from lxml import objectify  # type: ignore[import-not-found, import-untyped, unused-ignore]

        parser.set_element_class_lookup(objectify.ObjectifyElementClassLookup())
    if method == "node":
        around = etree.fromstring(b"<around>%s</around>" % text, parser, base_url=url)
        top = around[0]
        around.remove(top)
    else:
        top = etree.fromstring(text, parser, base_url=url)
    if tail is not None:
        top.tail = tail
    for node, line in zip(nodes_of(top), lines, strict=False):
        if line is not None and node.sourceline != line:
            etree._Element.sourceline.__set__(node, line)  # of lxml.objectify, an attribute is a child
    return top


def make_document(*state: Any) -> Document:
    try:
        return Document(parse(*state))
    except etree.XMLSyntaxError as failure:
        raise RestoreError(f"a document of lxml cannot be parsed again: {failure}") from failure


def find_node(document: Document, number: int) -> Any:
    return document.nodes[number]


def make_tree(root: Any) -> Any:
    return etree.ElementTree(root)


def find_text(text: str, parent: Any, kind: str, name: str | None) -> Any:
    """The text as XPath finds it now. It is a plain text if the element has another one by now."""
    if parent is None:
        return text
    path = {"attribute": "@*", "tail": "following-sibling::text()", "text": "text()"}[kind]
    found = (each for each in parent.xpath(path) if each == text and each.attrname == name)
    return next((each for each in found if each.getparent() is parent), text)
