"""Packets: what passes the gate, what does not, and how they travel."""

from __future__ import annotations

import pytest

from ckpt.controller.errors import MalformedPacket
from ckpt.controller.supervision import messages

VOTE = {
    "m": "voted",
    "epoch": 3,
    "label": [2, 3],
    "manifest": "images/rank-00000/x.json",
    "digest": "ab" * 32,
    "vectors": {"0": [1, 0, 1], "1": [0, 0, 0]},
}


@pytest.mark.parametrize(
    "packet",
    [
        {"m": "hello", "address": "ipc://x", "pid": 1},
        {"m": "captured", "epoch": 1, "pause_ns": 5},
        VOTE,
        {"m": "refused", "epoch": 1, "reason": "sum()"},
        {"m": "finished", "exit_code": 0},
        {"m": "error", "exit_code": 1, "traceback": None},
        {"m": "status", "something": "a newer rank says more"},
    ],
)
def test_well_formed_packets_pass_unchanged(packet: messages.Packet) -> None:
    assert messages.parse_rank(packet) is packet


@pytest.mark.parametrize(
    ("packet", "complaint"),
    [
        ([], "JSON object"),
        ({}, "unknown kind None"),
        ({"m": "sing"}, "unknown kind 'sing'"),
        ({"m": ["voted"]}, "unknown kind"),
        ({"m": "captured"}, "captured: epoch is missing"),
        ({"m": "captured", "epoch": "1"}, "captured: epoch: '1' is no whole number"),
        ({"m": "finished", "exit_code": True}, "exit_code: True is no"),
        ({**VOTE, "label": [3]}, "label"),
        ({**VOTE, "label": [-1, 3]}, "label"),
        ({**VOTE, "vectors": {"x": [0, 0, 0]}}, "vectors: 'x' does not match"),
        ({**VOTE, "vectors": {"01": [0, 0, 0]}}, "vectors: '01' does not match"),
        ({**VOTE, "vectors": {"\u0661": [0, 0, 0]}}, "vectors: .* does not match"),
        ({**VOTE, "epoch": True}, "epoch: True is no whole number"),
        ({**VOTE, "vectors": {"0": [0, 0]}}, "vectors: .* has not the 3 places"),
        ({**VOTE, "vectors": {"0": [0, 0, -1]}}, "vectors.rx: -1 is not from 0"),
    ],
)
def test_malformed_packets_are_refused_by_name(packet: object, complaint: str) -> None:
    with pytest.raises(MalformedPacket, match="(?i)" + complaint.replace("[", r"\[")):
        messages.parse_rank(packet)


def test_the_table_is_keyed_by_text_because_json_is() -> None:
    assert messages.table({1: (2, "b"), 0: (2, "a")}) == {
        "m": "table",
        "peers": {"0": [2, "a"], "1": [2, "b"]},
    }


def test_many_files_that_do_not_come_back_take_several_packets() -> None:
    paths = [f"/{number}" for number in range(45)]
    packets = messages.files({"files_put_back": True, "files_problems": paths, "files_recorded": []})
    assert [packet["more"] for packet in packets] == [True, True, False]
    assert [path for packet in packets for path in packet["options"]["files_problems"]] == paths
    assert packets[-1]["options"]["files_put_back"] is True
    assert messages.files({}) == [{"m": "files", "options": {"files_problems": []}, "more": False}]


def test_exact_bytes_of_a_packet() -> None:
    assert messages.encode(messages.abort(7, "Platte voll ü")) == (
        b'{"m":"abort","epoch":7,"reason":"Platte voll \\u00fc"}'
    )
    assert messages.encode_line(messages.release()) == b'{"m":"release"}\n'


def test_a_packet_never_contains_a_line_end() -> None:
    line = messages.encode_line(messages.stop(1, "two\nlines"))
    assert line.count(b"\n") == 1
    assert messages.decode(line)["reason"] == "two\nlines"


def test_lines_come_out_whole_however_the_stream_is_cut() -> None:
    packets = [messages.checkpoint(n, "fork") for n in range(5)]
    stream = b"".join(map(messages.encode_line, packets))
    for cut in range(1, 40):
        lines = messages.LineDecoder()
        got = [packet for at in range(0, len(stream), cut) for packet in lines.feed(stream[at : at + cut])]
        assert got == packets


def test_a_line_without_end_is_an_error_not_a_memory_leak() -> None:
    lines = messages.LineDecoder(limit_bytes=100)
    lines.feed(b"x" * 100)
    with pytest.raises(MalformedPacket, match="100 bytes"):
        lines.feed(b"x")


def test_what_is_no_json_is_refused() -> None:
    for data in (b"\xff\xfe", b"[1]", b"{", b""):
        with pytest.raises(MalformedPacket):
            messages.decode(data)


def test_a_packet_that_is_nested_too_deeply_is_malformed_and_no_end() -> None:
    """RecursionError ended the controller, or the agent."""
    for text in (b"[" * 100_000, b'{"m":' * 100_000):
        with pytest.raises(MalformedPacket, match="no JSON"):
            messages.decode(text)
        with pytest.raises(MalformedPacket):
            messages.LineDecoder().feed(text + b"\n")
