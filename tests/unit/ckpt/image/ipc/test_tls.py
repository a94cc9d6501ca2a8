"""TLS in an image: contexts are made again by the calls that have made them; connections are refused, or reset."""

from __future__ import annotations

import contextlib
import ssl
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ckpt.image.errors import ObjectRefused, RestoreError
from ckpt.image.ipc import tls, tls_resets
from tests.unit.ckpt.image.support import image_failure, resumed_output

CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg4qC8xzPFRbShufqz
DkDOXNPgwg+f9OdepkCV0jHcfFGhRANCAARyReB6ne1B/labiuZb0R4ZUWa63VE7
BN+He9FFqZsPXLENOiyX4NmySw312VOW51elBwIyBE/nnCRyfplYdrht
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBfjCCASWgAwIBAgIUBcSrkmSeUDZ5wlqHq8YGNuMZXOkwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNzE1MjQxNFoYDzIxMjYxMTAz
MTUyNDE0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARyReB6ne1B/labiuZb0R4ZUWa63VE7BN+He9FFqZsPXLENOiyX4Nmy
Sw312VOW51elBwIyBE/nnCRyfplYdrhto1MwUTAdBgNVHQ4EFgQUo21d1A76RbJp
EphDdj0XPmD9BqUwHwYDVR0jBBgwFoAUo21d1A76RbJpEphDdj0XPmD9BqUwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBELtMNGqMixbBlzswJJfSG
PdUxsISJffYT9coEN+QjUQIgMt7CTl/TN5N76zaftvnqY+w5wnCss9N4H5sZwJLB
IE8=
-----END CERTIFICATE-----
"""

HANDSHAKE = """
    import socket, ssl, threading

    def handshake(server, client):
        ends = socket.socketpair()
        def answer():
            with server.wrap_socket(ends[0], server_side=True) as end:
                end.sendall(end.recv(9)[::-1])
        thread = threading.Thread(target=answer)
        thread.start()
        with client.wrap_socket(ends[1], server_hostname="localhost") as end:
            end.sendall(b"abc")
            found = end.recv(9), end.selected_alpn_protocol(), end.version()
        thread.join()
        return found, end
"""


def readable(context: Any) -> tuple[Any, ...]:
    return tls._properties(context), [each["name"] for each in context.get_ciphers()], context.get_ca_certs()


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "both.pem"
    path.write_text(CERTIFICATE)
    return path


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a rank, for the time of the test."""
    for name in ("__new__", *tls.RECORDED):
        if hasattr(ssl.SSLContext, name):
            monkeypatch.setattr(
                ssl.SSLContext, name, ssl.SSLContext.__dict__.get(name) or getattr(ssl.SSLContext, name)
            )
    tls.record_calls(ssl)


def again(context: Any) -> Any:
    make, arguments, state, _, _, fill = tls.reduce_tls(None, context)  # type: ignore[arg-type]
    made = make(*arguments)
    fill(made, state)
    return made


def test_contexts_work_after_a_restart_as_before(tmp_path: Path, pem: Path) -> None:
    """Tried by a stranger: a program that held the context of a client got no checkpoint at all."""
    program = (
        HANDSHAKE
        + f"""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain({str(pem)!r})
    server.set_alpn_protocols(["first", "second"])
    asked = []
    server.set_servername_callback(lambda socket, name, context: asked.append((name, context is server)))
    client = ssl.create_default_context(cafile={str(pem)!r})
    client.set_alpn_protocols(["second"])
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    before, closed = handshake(server, client)
    driver_tick()
    print(before == handshake(server, client)[0], *before, closed.fileno(), asked == [("localhost", True)] * 2)
    """
    )
    assert resumed_output(tmp_path, program).splitlines()[-1] == "True b'cba' second TLSv1.2 -1 True"


def test_a_server_that_listens_serves_after_a_restart(tmp_path: Path, pem: Path) -> None:
    program = f"""
    import http.server, ssl, threading, time, urllib.request

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.path[::-1].encode())
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain({str(pem)!r})
    server.socket = context.wrap_socket(server.socket, server_side=True)
    client = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile={str(pem)!r}))
    )
    def ask():
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with client.open(f"https://localhost:{{server.server_port}}/abc", timeout=60) as answer:
            found = answer.read()
        thread.join()
        while threading.active_count() > 1:  # the one that has answered closes its connection; this driver stops no threads
            time.sleep(0.001)
        return found
    before = ask()
    driver_tick()
    print(before == ask(), before)
    """
    assert resumed_output(tmp_path, program).splitlines()[-1] == "True b'cba/'"


def test_a_connection_is_refused_by_name(tmp_path: Path) -> None:
    source = """
        import socket, ssl
        ends = socket.socketpair()
        held = [ssl._create_unverified_context().wrap_socket(ends[0], do_handshake_on_connect=False)]
        driver_tick()
    """
    assert "the keys of a connection of TLS" in image_failure(tmp_path, source)


PEER = """
    import asyncio, os, socket, ssl
    from ckpt.image import declare_connections
    declare_connections("reset")
    def listening():
        server = socket.create_server(("127.0.0.1", 0))
        server.settimeout(60)
        return server
    server, this = listening(), os.getpid()
    peer = os.fork()
    if not peer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(PEM)
        ends = []
        for _ in range(COUNT):
            end = context.wrap_socket(server.accept()[0], server_side=True)
            end.sendall(b"first line\\nsecond line\\n")
            ends.append(end)
        ends[0].recv(1)
        os._exit(0)
    address, _ = server.getsockname(), server.close()
    context = ssl.create_default_context(cafile=PEM)
    def found(use):
        try:
            return use()
        except OSError as failure:
            return type(failure).__name__
"""


def assert_resumed_beside_a_peer(
    tmp_path: Path, pem: Path, count: int, source: str, expected: list[str]
) -> None:
    """``source`` defines ``lines()``, what is found after the restart. The original prints what is expected."""
    head = PEER.replace("PEM", repr(str(pem))).replace("COUNT", str(count))
    tail = f"print(*(lines() if this != os.getpid() else {expected}), sep=chr(10))"
    printed = resumed_output(tmp_path, textwrap.dedent(head) + textwrap.dedent(source) + tail)
    assert printed.splitlines() == expected


def test_connections_to_other_processes_come_back_as_reset_if_the_user_says_so(
    tmp_path: Path, pem: Path
) -> None:
    """They were refused with `--connections reset`, too, so a program with one that stays open got no checkpoint."""
    source = """
        def connected():
            return context.wrap_socket(socket.create_connection(address), server_hostname="localhost")
        reading, writing, leaving, polled = connected(), connected(), connected(), connected()
        stream = reading.makefile("rb")
        def facts():
            return reading.cipher(), reading.version(), reading.getpeercert(), reading.getpeercert(True)
        before = stream.readline(), facts()
        driver_tick()
        def lines():
            yield str(before == (b"first line\\n", facts())), reading.context is context, reading.pending()
            yield [found(stream.readline) for _ in range(3)]
            yield [found(lambda: reading.recv(10)), found(lambda: reading.send(b"abc"))]
            yield [found(lambda: writing.send(b"abc")), found(lambda: writing.send(b"abc")), found(lambda: writing.recv(10))]
            yield [found(leaving.unwrap), leaving.close(), leaving.fileno()]
            polled.settimeout(0)
            yield [found(lambda: polled.recv_into(bytearray(9))), found(lambda: polled.recv_into(bytearray(9)))]
        """
    expected = [
        "('True', True, 0)",
        "[b'second line\\n', 'ConnectionResetError', b'']",
        "[b'', 'BrokenPipeError']",
        "['ConnectionResetError', 'BrokenPipeError', b'']",
        "['ConnectionResetError', None, -1]",
        "['ConnectionResetError', 0]",
    ]
    assert_resumed_beside_a_peer(tmp_path, pem, 4, source, expected)


def test_streams_of_asyncio_over_tls_come_back_as_reset(tmp_path: Path, pem: Path) -> None:
    source = """
        async def main():
            reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
            found = [await reader.readline()]
            driver_tick()
            if this != os.getpid():
                found.append(await reader.readline())
                try:
                    await asyncio.wait_for(reader.readline(), 60)
                except ConnectionResetError:
                    found.append(["reset", writer.is_closing()])
            return found
        found = asyncio.run(main())
        def lines():
            return found
        """
    expected = ["b'first line\\n'", "b'second line\\n'", "['reset', True]"]
    assert_resumed_beside_a_peer(tmp_path, pem, 1, source, expected)


def test_what_stands_for_a_connection_has_all_of_its_methods() -> None:
    """In a later version of Python, ssl may call others."""
    names = {name for name in dir(ssl._ssl._SSLSocket) if not name.startswith("_")}  # type: ignore[attr-defined]
    assert names <= {*dir(tls_resets.Reset), *tls_resets.Reset.__annotations__}


def test_a_connection_within_the_program_is_refused_although_others_are_reset(
    tmp_path: Path, pem: Path
) -> None:
    """Its socket comes back whole: neither end would hear of a reset, and both might wait for ever."""
    source = (
        HANDSHAKE
        + f"""
    from ckpt.image import declare_connections
    declare_connections("reset")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain({str(pem)!r})
    client = ssl.create_default_context(cafile={str(pem)!r})
    ends, kept = socket.socketpair(), []
    thread = threading.Thread(target=lambda: kept.append(server.wrap_socket(ends[0], server_side=True)))
    thread.start()
    held = [client.wrap_socket(ends[1], server_hostname="localhost")]
    thread.join()
    driver_tick()
    """
    )
    assert "both of its ends in the program" in image_failure(tmp_path, source)


def test_what_can_be_read_of_a_context_is_as_it_was(recorded: None, pem: Path) -> None:
    made = ssl.create_default_context(cafile=str(pem))
    made.check_hostname, made.verify_mode = False, ssl.CERT_OPTIONAL
    made.options |= ssl.OP_NO_TICKET
    made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("ECDHE+AESGCM")
    assert readable(again(made)) == readable(made) and len(made.get_ca_certs()) == 1
    unverified = ssl._create_unverified_context()
    assert readable(again(unverified)) == readable(unverified)


def test_files_are_read_by_their_absolute_paths(
    recorded: None, pem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pem.parent)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pem.name, keyfile=pem.name)
    monkeypatch.chdir("/")
    again(made)
    make, arguments, state, _, _, fill = tls.reduce_tls(None, made)  # type: ignore[arg-type]
    pem.unlink()
    with pytest.raises(RestoreError, match=r"load_cert_chain.*both\.pem"):
        fill(make(*arguments), state)


def test_nobody_is_asked_for_a_password_when_an_image_is_taken(recorded: None, pem: Path) -> None:
    asked: list[bytes] = []
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with contextlib.suppress(ssl.SSLError):
        made.load_cert_chain(pem, password=lambda: asked.append(b"") or b"")  # type: ignore[func-returns-value]
    before = len(asked)
    tls.reduce_tls(None, made)  # type: ignore[arg-type]
    assert len(asked) == before


def test_a_context_of_which_the_calls_are_not_known_is_refused(pem: Path) -> None:
    """Its key would be lost, and nobody could see that: it cannot be read."""
    earlier = ssl._SSLContext.__new__(ssl.SSLContext, ssl.PROTOCOL_TLS_SERVER)  # type: ignore[attr-defined]
    with pytest.raises(ObjectRefused, match="made before ckpt could see how"):
        again(earlier)


def test_a_context_that_was_changed_unseen_is_refused(recorded: None, pem: Path) -> None:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ssl._SSLContext.load_verify_locations(made, cafile=str(pem))  # type: ignore[attr-defined]
    with pytest.raises(ObjectRefused, match="changed in a way that was not seen"):
        again(made)
