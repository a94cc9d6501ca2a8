"""The controller's socket for commands, both ends: `ckpt checkpoint`, `ckpt stop` and `ckpt status` use it.

The socket is `controller.sock` in the job's private runtime directory. Each line is one JSON object; a client sends one
question and gets one answer:

    {"do": "checkpoint", "wait": bool, "stop": bool} → {"ok", "epoch", "ms", "bytes"}, {"ok", "reason"}
    {"do": "stop", "checkpoint": bool}               → {"ok", "exit_code", "reason"} once the job has ended
    {"do": "status"}                                 → {"ok", …} within a quarter of a second

If a client closes the connection, its request is carried out all the same, and the answer is dropped. What clients on other
hosts ask comes by another way (`take_question`).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any

from ckpt.controller.errors import MalformedPacket, NoSuchJob
from ckpt.controller.supervision import messages

SOCKET_NAME = "controller.sock"
_QUESTION_BYTES_MAX = 1 << 16


class ClientServer:
    """The controller's end. It calls `on_question(question, token)` for each question; `answer` takes the token."""

    def __init__(
        self,
        runtime_dir: str,
        selector: selectors.BaseSelector,
        on_question: Callable[[dict[str, Any], int], None],
    ) -> None:
        self.path = os.path.join(runtime_dir, SOCKET_NAME)
        self._selector = selector
        self._on_question = on_question
        self._clients: dict[int, tuple[socket.socket, messages.LineDecoder]] = {}
        self._far: dict[int, Callable[[dict[str, Any]], None]] = {}  # how clients on other hosts are answered
        self._last_token = 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # left by a controller that was killed: this controller holds the job's lock
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(16)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        client.setblocking(False)
        self._last_token += 1
        token = self._last_token
        self._clients[token] = (client, messages.LineDecoder(_QUESTION_BYTES_MAX))
        self._selector.register(client, selectors.EVENT_READ, lambda: self._read(token))

    def _read(self, token: int) -> None:
        client, lines = self._clients[token]
        try:
            data = client.recv(1 << 16)
            questions = lines.feed(data)
        except BlockingIOError:
            return
        except (OSError, MalformedPacket):
            data, questions = b"", []
        if not data:
            self._drop(token)
        for question in questions[:1]:
            self._on_question(question, token)

    def take_question(self, question: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
        """A client on another host asks; `answer` sends it the answer."""
        self._last_token += 1
        self._far[self._last_token] = answer
        self._on_question(question, self._last_token)

    def answer(self, token: int, fields: dict[str, Any]) -> None:
        """Send the answer and close the connection. Does nothing if the client has closed it."""
        if (far := self._far.pop(token, None)) is not None:
            far(fields)
            return
        if token not in self._clients:
            return
        client, _ = self._clients[token]
        client.settimeout(1.0)  # do not wait longer for a client that does not read
        with contextlib.suppress(OSError):
            client.sendall(messages.encode_line(fields))
        self._drop(token)

    def _drop(self, token: int) -> None:
        client, _ = self._clients.pop(token)
        self._selector.unregister(client)
        client.close()

    def close(self) -> None:
        for token in list(self._clients):
            self._drop(token)
        self._selector.unregister(self._listener)
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def ask(runtime_dir: str, question: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    """Ask the controller of a job and wait for its answer.

    Raises NoSuchJob when no controller runs, or when the controller ends without an answer; TimeoutError when a read takes
    longer than `timeout_s` seconds.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(os.path.join(runtime_dir, SOCKET_NAME))
            connection.sendall(messages.encode_line(question))
        except OSError as error:
            raise NoSuchJob(
                "the job is not running: no controller answers (`ckpt restart` goes on with it)"
            ) from error
        lines = messages.LineDecoder()
        while True:
            try:
                data = connection.recv(1 << 18)
            except ConnectionError:
                data = b""
            if not data:
                raise NoSuchJob("the controller ended without an answer")
            for answer in lines.feed(data):
                return answer


def remove_sockets(directory: str) -> None:
    """Remove the sockets of a job that has ended, and their directory."""
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, name))
    with contextlib.suppress(OSError):
        os.rmdir(directory)
