"""lxml: elements, trees and attributes of documents that libxml2 keeps in memory.

The nodes of a document are no Python objects; lxml makes an object for a node when the program asks for it, and the same object as
long as the program holds it. So a document is saved as XML text (:class:`Document`), and each element that the program holds as
its number in this document. A restart parses the text, and finds the same elements again: those that were in one document, or in one
part that was taken out of its document, are so again. Lines of the source, the address of the document and what stands before
and behind the root come back too.

The text is parsed once before it is saved, and the result compared node by node. A document that would not come back equal is
refused by name: names that XML does not allow (they come from HTML), elements of a class of the program's own lookup, entities
that only a DTD defines.

Refused as types that cannot be pickled are parsers, stylesheets, schemas and compiled XPath expressions.
"""

from __future__ import annotations

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
            {"_ElementTree": reduce_tree, "_Attrib": reduce_attributes, "QName": reduce_name},
        ),
        Document: reduce_document,
    }


def reducer_for(cls: type) -> Reducer | None:
    """The reducer for elements, comments, processing instructions and entities, of classes without pickling of their own."""
    return reduce_element if issubclass(cls, etree._Element) and "__reduce__" not in cls.__dict__ else None


class Document:
    """Stands for one document, or for one part without a parent: ``top`` is its root. ``nodes``: all nodes in document order,
    with those before and behind the root."""

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


def reduce_document(pickler: Any, document: Document) -> Any:
    top = document.top
    is_element = isinstance(top.tag, str)
    tree = top.getroottree()
    text = etree.tostring(tree if is_element else top, encoding="utf-8", with_tail=False)
    info = tree.docinfo
    state = (text, is_element, _lookup_of(top), info.URL, [node.sourceline for node in document.nodes], top.tail)
    try:
        again = parse(*state)
    except etree.XMLSyntaxError as failure:
        raise PicklingError(f"a document of lxml (root <{top.tag}>) cannot be written as XML: {failure}") from failure
    other = nodes_of(again)
    if len(other) != len(document.nodes) or not all(map(_is_equal, document.nodes, other)):
        raise PicklingError(
            f"a document of lxml (root <{top.tag}>) would not come back as it is: its parser makes elements of other classes, "
            "or it has entities or names that XML text cannot hold; keep its source, and parse it again in on_restart"
        )
    return make_document, state


def _is_equal(one: Any, other: Any) -> bool:
    parts = [
        (type(each), each.tag, each.text, each.tail, each.prefix, dict(each.nsmap), [*each.attrib.items()])
        if isinstance(each.tag, str)
        else (type(each), each.tag, each.text, each.tail)
        for each in (one, other)
    ]
    return parts[0] == parts[1]


def _lookup_of(top: Any) -> str:
    """The module whose lookup chooses the classes of elements: lxml.html for documents that its parsers have made."""
    return "lxml.html" if type(top).__module__ == "lxml.html" else ""


def reduce_tree(pickler: Any, tree: Any) -> Any:
    return make_tree, (tree.getroot(),)


def reduce_attributes(pickler: Any, attributes: Any) -> Any:
    owner = attributes._element
    return attributes_of, (owner,)


def reduce_name(pickler: Any, name: Any) -> Any:
    return etree.QName, (name.text,)


# ---------------------------------------------------------------------- called while loading


def parse(
    text: bytes, is_element: bool, lookup: str, url: str | None, lines: list[int | None], tail: str | None
) -> Any:
    parser = etree.XMLParser(
        strip_cdata=False,
        resolve_entities=False,
        huge_tree=True,
        load_dtd=False,
        no_network=True,
        remove_blank_text=False,
    )
    if lookup:
        from lxml import html  # type: ignore[import-not-found, import-untyped, unused-ignore]

        parser.set_element_class_lookup(html.HtmlElementClassLookup())
    if is_element:
        top = etree.fromstring(text, parser, base_url=url)
    else:
        around = etree.fromstring(b"<around>%s</around>" % text, parser, base_url=url)
        top = around[0]
        around.remove(top)
    top.tail = tail
    for node, line in zip(nodes_of(top), lines, strict=False):
        if line is not None and node.sourceline != line:
            node.sourceline = line
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


def attributes_of(element: Any) -> Any:
    return element.attrib
