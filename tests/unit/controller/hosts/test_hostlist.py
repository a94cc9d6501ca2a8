"""Names of hosts with their slots, from the command line and from files."""

from __future__ import annotations

import pytest

from ckpt.controller.errors import UsageError
from ckpt.controller.hosts import hostlist
from ckpt.controller.supervision.plan import Node


def test_a_list() -> None:
    assert hostlist.of_text("a:4, b,user@c.example.org:2") == [
        Node("a", 4),
        Node("b", 1),
        Node("user@c.example.org", 2),
    ]
    assert hostlist.text_of(hostlist.of_text("a:4,b")) == "a:4,b:1"


def test_a_file() -> None:
    text = "# my hosts\na slots=4\n\nb:2  # the small one\nc\n"
    assert hostlist.of_file(text, "f") == [Node("a", 4), Node("b", 2), Node("c", 1)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a slots=4 max=8", "f, line 1: 'a slots=4 max=8' is no host"),
        ("a\n-x", "f, line 2: '-x' is no host"),
        ("a\na:2", "f: a more than once"),
        ("# nothing", "f: 0 hosts"),
        ("a slots=0", "f: 0 slots"),
        ("a;rm", "f, line 1: 'a;rm' is no host: one host in a line"),
    ],
)
def test_a_file_that_cannot_be_used(text: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        hostlist.of_file(text, "f")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a:2;b:2", "'a:2;b:2' is no host: separate hosts by commas: a:2,b:2"),
        ("a:2 b:2", "'a:2 b:2' is no host: separate hosts by commas: a:2,b:2"),
        ("c,[fd00::1]:2; b", "'[fd00::1]:2; b' is no host: separate hosts by commas: [fd00::1]:2,b"),
        ("fd00::1", "'fd00::1' is no host: an IPv6 address stands in brackets: [ADDRESS] or [ADDRESS]:SLOTS"),
        ("fd00::1:4", "an IPv6 address stands in brackets"),
        ("1:2:3:4:5:6:7:8:4", "an IPv6 address stands in brackets"),
        ("a:2:b:2", "'a:2:b:2' is no host: use NAME, NAME:SLOTS, or [ADDRESS]:SLOTS for an IPv6 address"),
        ("a=4", "'a=4' is no host: use NAME, NAME:SLOTS, or"),
        ("a 4", "'a 4' is no host: use NAME, NAME:SLOTS, or"),
        ("[fd00::1:4", "'[fd00::1:4' is no host: use NAME, NAME:SLOTS, or"),
        ("", "--hosts: '' is no host: use NAME"),
    ],
)
def test_a_list_that_cannot_be_used(text: str, says: str) -> None:
    """Of `a:2;b:2` it was said that addresses stand in brackets."""
    with pytest.raises(UsageError) as raised:
        hostlist.of_text(text)
    assert says in str(raised.value)


def test_ranks_that_do_not_fit() -> None:
    hostlist.check_size(5, hostlist.of_text("a:4,b"))
    with pytest.raises(UsageError, match=r"6 ranks do not fit into the 5 slots of a:4,b:1: name more hosts"):
        hostlist.check_size(6, hostlist.of_text("a:4,b"))
