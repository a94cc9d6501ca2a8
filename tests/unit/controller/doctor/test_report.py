"""What the doctor makes of the facts: one problem for one thing, a remedy for each, and nothing where nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.controller.cli.doctor import render
from ckpt.controller.doctor.facts import place, tail
from ckpt.controller.doctor.report import report
from ckpt.controller.supervision import remedies

SAMPLES = {
    "kind": "samples", "taken": 100, "captured": 90, "in_library": 5,
    "refused": [{"reason": "sum() is running <genexpr>", "where": "app.py:6 <module>", "samples": 5, "longest_s": 0.05}],
    "late": {"samples": 0, "longest_s": 0.0, "where": ""}, "appended": [],
}  # fmt: skip
AROUND: dict[str, Any] = {
    "kind": "surroundings", "t_s": 0.5, "threads": [], "children": [], "descriptors": [], "has_hooks": False, "types": [],
}  # fmt: skip
IMAGE = {"ok": True, "epoch": 1, "ms": 30.0, "bytes": 1000, "t_s": 0.1}
RESTART = {
    "epoch": 1,
    "ok": True,
    "reason": "",
    "differs": None,
    "unsure": None,
    "also": [],
    "ended": False,
    "restored_ms": 200.0,
}


def examination(*findings: tuple[str, str, str, str]) -> dict[str, Any]:
    rows = [
        {"where": where, "path": path, "type": kind, "bases": [], "reason": reason}
        for where, path, kind, reason in findings
    ]
    variables = {
        "modules": [
            {"name": "__main__", "largest": [{"name": "grid", "bytes": 5000, "type": "numpy.ndarray"}]}
        ],
        "frames": [{"frame": 0, "largest": [{"name": "x", "bytes": 70, "type": ""}]}],
        "rest": [],
    }
    return {
        "kind": "examination", "t_s": 0.5, "captured": True, "findings": rows, "variables": variables,
        "stream_bytes": 9000, "buffer_bytes": 1000, "stack": [{"file": "a", "line": 1, "function": "solve"}],
    }  # fmt: skip


def facts(*lines: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "program": ["app.py"], "unsupported": "", "ran_s": 3.0, "ended_by_itself": False, "exit_code": 143, "error": "",
        "images": [IMAGE], "restarts": [RESTART], "ranks": {0: [SAMPLES, AROUND, *lines]}, **changes,
    }  # fmt: skip


def kinds(found: dict[str, Any]) -> list[str]:
    return [problem["kind"] for problem in found["problems"]]


SOCKET = ("frame 2 (solve) local 'line'", "[0]", "socket.socket", "cannot pickle 'socket' object")


def test_a_healthy_program_has_no_problems() -> None:
    found = report(facts(examination()))
    assert found["ok"] and found["problems"] == [] and found["notes"] == []
    assert found["sizes"]["bytes"] == 10_000
    assert found["sizes"]["largest"][0] == {
        "where": "__main__ variable 'grid'",
        "type": "numpy.ndarray",
        "bytes": 5000,
    }
    assert "app.py: no problem found" in render(found)
    assert found["refusals"][0]["share"] == 0.05, "told, but no problem"


def waiting(t_s: float, *findings: tuple[str, str, str, str]) -> list[dict[str, Any]]:
    """An examination of a program that waits in subprocess.run, with a child and its pipes."""
    around = {
        **AROUND,
        "t_s": t_s,
        "children": [{"pid": 7, "command": "sleep 1"}],
        "descriptors": [{"fd": 9, "kind": "pipe", "target": "pipe:[1]"}],
    }
    stack = [
        {"file": "app.py", "line": 6, "function": "main"},
        {"file": "/lib/subprocess.py", "line": 548, "function": "run"},
        {"file": "/lib/subprocess.py", "line": 1209, "function": "Popen.communicate"},
    ]
    return [around, {**examination(*findings), "t_s": t_s, "stack": stack}]


PIPES = [
    ("frame 1 (run) local 'process'", "", "subprocess.Popen", "the child process 7 is running"),
    ("frame 2 (Popen.communicate) local 'self'", ".stdout", "_io.BufferedReader", "an open pipe"),
]


def test_a_child_process_that_is_waited_for_is_one_note_not_a_list_of_its_pipes() -> None:
    found = report(facts(*waiting(1.0, *PIPES), {**examination(), "t_s": 2.0}))
    assert found["problems"] == []
    [note] = found["notes"]
    assert note.startswith("app.py:6 main waits for a child process")


def test_a_program_that_always_waits_for_a_child_process_has_one_problem() -> None:
    found = report(facts(*waiting(1.0, *PIPES), *waiting(2.0, *PIPES)))
    [problem] = found["problems"]
    assert (problem["kind"], problem["where"], problem["seen"]) == ("child", "app.py:6 main", 1)


def test_what_the_program_itself_holds_is_told_while_it_waits_for_a_child() -> None:
    own = ("frame 0 (main) local 'line'", *SOCKET[1:])
    found = report(facts(*waiting(1.0, own, *PIPES), {**examination(), "t_s": 2.0}))
    assert kinds(found) == ["object"]


def test_threads_of_a_pool_are_not_called_harmless() -> None:
    for name in ("Thread-2 (_handle_workers)", "QueueFeederThread"):
        assert "harmless" not in remedies.for_thread(name) and "pool" in remedies.for_thread(name)
    assert "harmless_threads=['mine']" in remedies.for_thread("mine")


def test_a_rank_that_was_not_examined_is_noted() -> None:
    [note] = report(facts(ranks={0: [SAMPLES, AROUND, examination()], 1: [SAMPLES]}))["notes"]
    assert note.startswith("rank 1 was not examined")


def test_the_same_object_at_several_moments_is_one_problem() -> None:
    deeper = ("frame 7 (solve) local 'line'", *SOCKET[1:])
    found = report(facts(examination(SOCKET), examination(deeper)))
    [problem] = found["problems"]
    assert problem["kind"] == "object" and problem["seen"] == 2 and problem["ranks"] == [0]
    assert problem["where"] == "solve() variable 'line'[0]"
    assert "ckpt.register_type" in problem["remedy"]
    text = render(found)
    assert "solve() variable 'line'[0]" in text and "remedy:" in text and "app.py: 1 problem" in text


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("frame 12 (f.<locals>.g) local 'x'", "f.<locals>.g() variable 'x'"),
        ("frame 3 (f)", "f()"),
        ("module app variable 'x'", "app variable 'x'"),
        ("program state 'signals'", "program state 'signals'"),
    ],
)
def test_places_are_the_same_at_any_depth(where: str, expected: str) -> None:
    assert place(where) == expected


def test_everything_is_reported_at_once() -> None:
    around = {
        **AROUND,
        "threads": [
            {"name": "worker", "daemon": True, "target": "work", "harmless": False},
            {"name": "bar", "daemon": True, "target": "show", "harmless": True},
        ],
        "children": [{"pid": 7, "command": "sleep 50"}],
        "descriptors": [{"fd": 9, "target": "/data/raw", "kind": "file"}],
    }
    failed = {"ok": False, "reason": "rank 0: cannot pickle", "t_s": 1}
    found = report(facts(around, examination(SOCKET), images=[failed], restarts=[]))
    assert kinds(found) == ["object", "thread", "child", "descriptor"], (
        "the failed image is explained by them"
    )
    by_kind = {problem["kind"]: problem for problem in found["problems"]}
    assert "harmless_threads=['worker']" in by_kind["thread"]["remedy"]
    assert (
        "/data/raw" in by_kind["descriptor"]["what"] and "without any error" in by_kind["descriptor"]["why"]
    )
    assert found["notes"] == ["thread 'bar' is declared harmless: it is gone after a restart"]


def test_what_hooks_and_registered_types_may_care_for_is_left_to_them() -> None:
    fd, child = {"fd": 9, "target": "/data/raw", "kind": "file"}, {"pid": 7, "command": "sleep 50"}
    typed = {**AROUND, "descriptors": [fd], "children": [child], "types": ["sqlite3.Connection"]}
    found = report(facts(typed, typed, examination()))
    assert kinds(found) == ["child"], "a registered type does not start processes"
    assert found["notes"] == ["a descriptor of /data/raw is left to sqlite3.Connection"]
    hooked = report(facts({**typed, "types": [], "has_hooks": True}, examination()))
    assert hooked["ok"] and len(hooked["notes"]) == 2


def test_long_refusals_are_a_problem_with_place_length_and_share() -> None:
    refused = {
        "reason": "sum() is running <genexpr>",
        "where": "app.py:6 <module>",
        "samples": 60,
        "longest_s": 2.5,
    }
    found = report(facts({**SAMPLES, "refused": [refused]}, examination()))
    [problem] = found["problems"]
    assert problem["kind"] == "refusal" and problem["where"] == "app.py:6 <module>"
    assert (
        "60%" in problem["why"] and "2.50 s" in problem["why"] and "write the loop out" in problem["remedy"]
    )


def test_frequent_short_refusals_are_a_problem_only_if_an_image_failed_for_them() -> None:
    refused = {"reason": "sorted() is running f", "where": "app.py:6 g", "samples": 60, "longest_s": 0.2}
    samples = {**SAMPLES, "refused": [refused]}
    assert report(facts(samples, examination()))["ok"]
    failed = {"ok": False, "reason": "no line after 2 s: rank 0 cannot be captured: sorted() …", "t_s": 1}
    assert kinds(report(facts(samples, examination(), images=[failed], restarts=[]))) == ["refusal"]


def test_a_long_call_into_c_is_named() -> None:
    late = {"samples": 1, "longest_s": 3.2, "where": "app.py:9 solve"}
    [problem] = report(facts({**SAMPLES, "late": late}, examination()))["problems"]
    assert (problem["kind"], problem["where"]) == ("late", "app.py:9 solve") and "3.2 s" in problem["why"]


def test_an_image_that_failed_for_no_known_reason_is_told() -> None:
    failed = {"ok": False, "reason": "OSError: no space left", "t_s": 1}
    [problem] = report(facts(examination(), images=[IMAGE, failed]))["problems"]
    assert problem["kind"] == "image" and problem["why"] == "OSError: no space left"


def test_a_restart_that_failed_is_a_problem_and_so_is_another_output_but_for_one_that_chance_explains() -> (
    None
):
    failed = {**RESTART, "ok": False, "reason": "Traceback …\nRestoreError: no such file"}
    found = report(facts(examination(), restarts=[failed]))
    assert kinds(found) == ["restart"] and "RestoreError" in render(found)
    differs = {"rank": 0, "line": 3, "first": "a", "restored": "b"}
    [problem] = report(facts(examination(), restarts=[{**RESTART, "differs": differs}]))["problems"]
    assert problem["where"] == "output of rank 0 line 3"
    assert problem["why"] == "'b', twice alike, where the first run printed 'a'"
    found = report(facts(examination(), restarts=[{**RESTART, "unsure": differs}]))
    assert found["ok"] and "printed 'b' where the first run printed 'a'" in found["notes"][0]


def test_a_program_that_fails_by_itself_or_is_over_at_once_is_not_healthy() -> None:
    failed = report(
        facts(examination(), ended_by_itself=True, exit_code=1, error="ZeroDivisionError", images=[])
    )
    assert kinds(failed) == ["program"] and failed["exit_code"] == 1
    short = report(facts(ended_by_itself=True, exit_code=0, images=[], restarts=[]))
    assert kinds(short) == ["program"] and "before an image was taken" in short["problems"][0]["why"]
    fine = report(facts(examination(), ended_by_itself=True, exit_code=0))
    assert fine["ok"] and fine["exit_code"] == 0


def test_an_interpreter_that_cannot_be_imaged_is_said_before_anything_runs() -> None:
    found = report(
        {"program": ["app.py"], "unsupported": "frames cannot be captured in a free-threaded interpreter"}
    )
    [problem] = found["problems"]
    assert problem["kind"] == "interpreter" and "ckpt.loop" in problem["remedy"]
    assert "free-threaded" in render(found)


@pytest.mark.parametrize(
    ("type_name", "reason", "words"),
    [
        ("socket.socket", "", "ckpt.register_type(socket.socket, save, load), where load connects"),
        ("ssl.SSLSocket", "", "ckpt.register_type(ssl.SSLSocket,"),
        ("_hashlib.HASH", "", "hash again"),
        ("_sha2.SHA256Type", "", "hash again"),
        ("zlib.Decompress", "", "gzip.open"),
        ("_lzma.LZMACompressor", "", "lzma.open"),
        ("sqlite3.Connection", "", "database file"),
        ("subprocess.Popen", "", "subprocess.run"),
        ("_io.BufferedReader", "an open pipe (pipe:[1]) cannot be saved", "subprocess.run"),
        ("_thread._local", "", "end the thread"),
        ("asyncio.selector_events._SelectorSocketTransport", "", "on_restart"),
        ("_ctypes.CFuncPtr", "", "opens the library"),
        ("frame", "", "frame objects"),
        ("somebody.Handle", "cannot pickle 'Handle' object", "ckpt.register_type(somebody.Handle,"),
        ("_hidden.Handle", "cannot pickle 'Handle' object", "ckpt.register_type(cls,"),
        ("app.Weird", "it is not found as app.Weird", "at the top of a module"),
    ],
)
def test_every_kind_of_object_has_a_remedy(type_name: str, reason: str, words: str) -> None:
    assert words in remedies.for_object(type_name, reason)


def test_a_type_that_cannot_be_saved_is_not_answered_with_the_advice_for_long_calls() -> None:
    remedy = remedies.for_refusal("an object of type Queue is in use, of which an image could not be written")
    assert "ckpt.register_type" in remedy and "loop" not in remedy


def test_a_weak_reference_that_leads_to_a_queue_of_processes_has_the_remedy_of_the_queue() -> None:
    reason = "Queue objects should only be shared between processes through inheritance"
    assert "use a pool" in remedies.for_object("weakref.ReferenceType", reason)


def test_a_class_derived_from_a_socket_has_the_remedy_of_a_socket() -> None:
    assert "connects again" in remedies.for_object("app.Line", "no", ["socket.socket", "_socket.socket"])


def test_a_file_that_is_appended_to_line_by_line_is_a_problem() -> None:
    samples = {**SAMPLES, "appended": [{"path": "/tmp/log.txt", "times": 7, "where": "app.py:3 work"}]}
    [problem] = report(facts(samples, examination()))["problems"]
    assert problem["kind"] == "file" and problem["where"] == "app.py:3 work"
    assert (
        "/tmp/log.txt" in problem["what"]
        and "7 times" in problem["why"]
        and "keep it open" in problem["remedy"]
    )


def test_where_a_restart_puts_files_back_appending_is_no_problem() -> None:
    samples = {**SAMPLES, "appended": [{"path": "/tmp/log.txt", "times": 7, "where": "app.py:3 work"}]}
    assert report(facts(samples, examination(), files="auto"))["problems"] == []


def test_a_change_of_a_file_that_a_restart_does_not_undo_is_a_problem() -> None:
    process = {"command": "gzip", "where": "app.py:9 pack"}
    by_process = {"path": "/d/x.gz", "reason": "made by a process that the program has started", "rank": None}
    by_rank = {"path": "/d/large", "reason": "the limit for copies of files is reached", "rank": 1}
    found = report(
        facts(examination(), files="auto", not_undone=[by_process, by_process, by_rank], processes=[process])
    )
    first, second = found["problems"]
    assert (first["kind"], first["where"], first["seen"]) == ("file", "app.py:9 pack", 2)
    assert "/d/x.gz" in first["what"] and "a process" in first["why"] and first["ranks"] == []
    assert "/d/large" in second["what"] and (second["where"], second["ranks"]) == ("", [1])
    assert any("app.py:9 pack starts gzip" in note for note in found["notes"])


def test_where_files_stay_as_they_are_what_processes_do_with_them_is_not_told() -> None:
    change = {"path": "/d/x.gz", "reason": "made by a process", "rank": None}
    found = report(facts(examination(), files="off", not_undone=[change]))
    assert found["problems"] == []


def test_of_an_error_the_end_is_shown() -> None:
    assert tail("\n".join(map(str, range(100)))).splitlines()[-1] == "99"
    assert len(tail("\n".join(map(str, range(100)))).splitlines()) == 12


def test_output_that_is_compared_in_part_only_is_named() -> None:
    assert report(facts(examination(), cut_outputs=[]))["notes"] == []
    [note] = report(facts(examination(), cut_outputs=[2]))["notes"]
    assert note == "of the output of rank 2 only the first 64 MiB are compared after a restart"
