"""What parsers of XML have been told is kept, up to a bound: :mod:`ckpt.image.handles.xml_parsers`.

In processes of their own, since the methods of the parsers stay replaced.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

BEGIN = """
import pickle, xml.sax, xml.etree.ElementTree as ET
from types import SimpleNamespace
from xml.parsers import expat
from ckpt.image.handles import xml_parsers
xml_parsers.MOST_BYTES = 1000
xml_parsers.record_trees()
xml_parsers.record_expat()
pickler = SimpleNamespace(slots={}, defer=lambda *call: deferred.append(call))
deferred = []
"""


def run(program: str) -> list[str]:
    code = BEGIN + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_a_parser_that_has_got_too_much_is_refused_by_name_and_others_are_not() -> None:
    found = run("""
        long, short = expat.ParserCreate(), ET.XMLParser()
        short.feed("<r>")
        for _ in range(2):
            long.Parse("<a>" * 200)
        xml_parsers.reduce_tree_parser(pickler, short)
        try:
            xml_parsers.reduce_expat(pickler, long)
        except pickle.PicklingError as refused:
            print(refused)
    """)
    assert len(found) == 1
    assert "where it has got more than 0 MiB, or has external entities; read the text as a whole" in found[0]


def test_the_text_of_a_parser_that_has_ended_is_dropped() -> None:
    assert run("""
        tree, flat, whole = ET.XMLParser(), expat.ParserCreate(), expat.ParserCreate()
        tree.feed("<r>" + "x" * 300 + "</r>")
        flat.Parse("<r>" + "x" * 300 + "</r>", True)
        print(sum(told.nbytes for told in xml_parsers._told.values()))
        tree.close()
        print(sum(told.nbytes for told in xml_parsers._told.values()))
        xml_parsers.reduce_tree_parser(pickler, tree)
        make, made_with, state, _, _, fill = xml_parsers.reduce_expat(pickler, flat)
        again = make(*made_with)
        fill(again, state)
        try:
            again.Parse("x")
        except expat.ExpatError as error:
            print(error.code == expat.errors.codes[expat.errors.XML_ERROR_FINISHED])
    """) == ["307", "0", "True"]


def test_a_parser_whose_address_another_one_has_had_knows_only_its_own_texts() -> None:
    assert run("""
        for _ in range(50):
            parser = ET.XMLParser()
            parser.feed("<r>")
            del parser
        print(len(xml_parsers._told) < 5, {len(told.calls) for told in xml_parsers._told.values()})
    """) == ["True {1}"]


def test_a_parser_of_an_external_entity_is_refused() -> None:
    assert run("""
        outer = expat.ParserCreate()
        inner = []
        outer.ExternalEntityRefHandler = lambda *names: inner.append(outer.ExternalEntityParserCreate(names[0])) or 1
        outer.Parse("<!DOCTYPE r [<!ENTITY e SYSTEM 'e.xml'>]><r>&e;")
        for parser in (outer, *inner):
            try:
                xml_parsers.reduce_expat(pickler, parser)
            except pickle.PicklingError as refused:
                print(type(refused).__name__)
    """) == ["PicklingError", "PicklingError"]
