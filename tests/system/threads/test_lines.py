"""Threads that wait for a line of a connection are part of the image, with what has come of the line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

WAITING = """
    import socket, threading, time
    import ckpt
    from tools import die_once

    ckpt.enable()
    found, ends = {}, {}

    def file_of(name, mode="rb", size=-1):
        ends[name], end = socket.socketpair()
        return end.makefile(mode, size)

    def line(name, file):
        found[name] = [file.readline(), file.readline(20)]

    def loop(name, file):
        found[name] = [line for line in file]

    def asked(name, file):
        found[name] = [next(file), next(file)]

    def parts(name, file):
        pieces = [file.read(3)]  # this list is not what the buffer has of the line
        found[name] = [file.readline(), pieces]

    def pieces(name, file):
        found[name] = [file.peek(1)[:2], file.read1(4), file.read1(99), file.read1(99)]

    def within(name, file):
        found[name] = [file.readline() for _ in range(2)]

    sent = {  # before the image, after it
        "line": (b"first\\nsec", b"ond\\n"), "loop": (b"a\\nb\\nhalf of ", b"it\\nlast"), "asked": (b"x\\n", b"y\\n"),
        "parts": (b"abc", b"rest\\n"), "pieces": (b"1234", b"56"), "within": (b"long" * 20, b" line\\nshort\\n"),
    }
    work = {"line": line, "loop": loop, "asked": asked, "parts": parts, "pieces": pieces, "within": within}
    files = {name: file_of(name, size=16 if name == "within" else -1) for name in work}
    files["pair"], work["pair"], sent["pair"] = file_of("pair", "rwb"), line, (b"one\\n", b"two\\n")
    threads = [threading.Thread(target=work[name], args=(name, files[name])) for name in work]
    for thread in threads:
        thread.start()
    for name, (before, _) in sent.items():
        for at in range(0, len(before), 7):
            ends[name].sendall(before[at : at + 7])
            time.sleep(0.01)
    time.sleep(0.1)
    ckpt.checkpoint()
    die_once()
    for name, (_, after) in sent.items():
        ends[name].sendall(after)
        time.sleep(0.05)
        ends[name].close()
    for thread in threads:
        thread.join()
    print({name: found[name] for name in sorted(found)}, flush=True)
"""


def test_each_call_that_can_be_made_again(start: Start, tmp_path: Path) -> None:
    job = start(app_of(tmp_path, WAITING), ranks=1)
    assert job.finish() == 0, job.report()
    assert len(job.events("restarted")) == 1, job.report()
    assert job.output(0) == (
        "{'asked': [b'x\\n', b'y\\n'], 'line': [b'first\\n', b'second\\n'], "
        "'loop': [b'a\\n', b'b\\n', b'half of it\\n', b'last'], 'pair': [b'one\\n', b'two\\n'], "
        "'parts': [b'rest\\n', [b'abc']], 'pieces': [b'12', b'1234', b'56', b''], "
        f"'within': [b'{'long' * 20} line\\n', b'short\\n']}}\n"
    )


TEXTS = r"""
    import socket, threading, time
    import ckpt
    from tools import die_once

    ckpt.enable()
    found, ends = {}, {}

    def file_of(name, mode, **options):
        ends[name], end = socket.socketpair()
        return end.makefile(mode, **options)

    def line(name, file):
        found[name] = [file.readline(), file.readline()]

    def loop(name, file):
        found[name] = [line for line in file]

    def asked(name, file):
        found[name] = [next(file), next(file)]

    work = {"line": line, "loop": loop, "asked": asked, "pair": line, "plain": loop}
    files = {name: file_of(name, "r", encoding="utf-8") for name in work}
    files["pair"] = file_of("pair", "rw", encoding="utf-8")
    files["plain"] = file_of("plain", "r", newline="", encoding="latin-1")
    threads = [threading.Thread(target=work[name], args=(name, files[name])) for name in work]
    for thread in threads:
        thread.start()
    for name in work:
        ends[name].sendall("f\u00fcr\r\n".encode(files[name].encoding))
    time.sleep(0.1)
    ckpt.checkpoint()
    die_once()
    for name in work:
        ends[name].sendall(b"half ")
        time.sleep(0.05)
        ends[name].sendall(b"and half\n")
        ends[name].close()
    for thread in threads:
        thread.join()
    print(found == {name: ["f\u00fcr\r\n" if name == "plain" else "f\u00fcr\n", "half and half\n"] for name in work})
"""


def test_threads_that_wait_for_text(start: Start, tmp_path: Path) -> None:
    """No checkpoint came while one waited."""
    job = start(app_of(tmp_path, TEXTS), ranks=1)
    assert job.finish() == 0, job.report()
    assert len(job.events("restarted")) == 1, job.report()
    assert job.output(0) == "True\n"


KEPT_OPEN = """
    import http.client, http.server, json, os, sys, threading, time

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            numbers = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(sum(numbers)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    client = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
    total = 0
    for number in range(60):
        client.request("POST", "/", json.dumps(list(range(number))))
        total += json.loads(client.getresponse().read())
        while number % 20 == 19 and not os.path.exists(f"{os.path.dirname(os.path.abspath(__file__))}/go{number}"):
            time.sleep(0.01)
    print(total)
    client.close()
    server.shutdown()
"""


def test_a_connection_of_http_that_is_kept_open(start: Start, tmp_path: Path) -> None:
    """No checkpoint came while one was open."""
    job = start(write_app(tmp_path, KEPT_OPEN), ranks=1, every=0.1)
    for number in (19, 39, 59):
        job.wait_event("committed", len(job.events("committed")) + 2)
        job.kill_rank(0)
        job.wait_event("restarted", len(job.events("restarted")) + 1)
        (tmp_path / f"go{number}").touch()
    assert job.finish() == 0, job.report()
    assert json.loads(job.output(0)) == sum(sum(range(number)) for number in range(60))
