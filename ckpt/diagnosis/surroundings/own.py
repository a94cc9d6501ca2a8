"""What this machine knows by itself of another one, without a topology: whether a name is its own, the address of a
name, and the interface over which its kernel would send there. No handler: asked before there are questions.

Only tables are read: names (getaddrinfo, which may ask name servers), and the kernel's routes and interfaces.
Nothing is sent to the other machine.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading

from ckpt.diagnosis.errors import BadTopology
from ckpt.diagnosis.handlers.netlink import way_out

__all__ = ["WITHIN_S", "Own", "addresses", "is_own", "own", "resolve", "router"]

WITHIN_S = 2.0
"""So long name servers are waited for."""
_NO_SERVER = (socket.EAI_AGAIN, socket.EAI_FAIL)


class Own:
    """This machine's end of the way to a peer: name of the interface and own address; empty: not known."""

    __slots__ = ("address", "interface")

    def __init__(self, address: str = "", interface: str = "") -> None:
        self.address, self.interface = address, interface


def resolve(names: list[str], within_s: float = WITHIN_S) -> dict[str, str]:
    """The first address of each name, all asked at once. Raises BadTopology: a name that nobody knows, or no answer."""
    answers: queue.SimpleQueue[tuple[str, str | OSError]] = queue.SimpleQueue()

    def ask(name: str) -> None:
        try:
            answers.put((name, addresses(name)[0]))
        except UnicodeError:  # an empty label, or one that is too long
            answers.put((name, OSError(socket.EAI_NONAME, "no name of a host")))
        except OSError as error:
            answers.put((name, error))

    for name in names:
        threading.Thread(target=ask, args=(name,), daemon=True).start()  # it may hang in the C library
    found: dict[str, str] = {}
    for _ in names:
        try:
            name, answer = answers.get(timeout=within_s)
        except queue.Empty:
            late = ", ".join(name for name in names if name not in found)
            raise BadTopology(
                f"{late}: no name server answers within {within_s:g} s; is the network of this machine up? "
                "An address will do, too"
            ) from None
        if isinstance(answer, OSError):
            why = "no name server answers" if answer.errno in _NO_SERVER else f"{answer.strerror}"
            raise BadTopology(
                f"{name}: this machine knows no such host ({why}); is it spelled right? An address will do, too"
            )
        found[name] = answer
    return found


def addresses(name: str) -> list[str]:
    """All addresses of a name, as getaddrinfo orders them. Raises OSError, UnicodeError."""
    rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def is_own(address: str) -> bool:
    """Is it one of this machine's?"""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trying:
            trying.bind((address, 0))
    except OSError:
        return False
    return True


def own(peer: str) -> Own:
    """Over which interface this machine's kernel sends to an address, and from which of its own. Where no route leads
    there (or `peer` is empty), the one interface that this machine has."""
    interface = address = ""
    with contextlib.suppress(OSError):
        interface = way_out(peer)
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    if peer:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((peer, 9))  # of a datagram socket: sends nothing
            address = str(asking.getsockname()[0])
    if not interface:
        others = [name for _, name in socket.if_nameindex() if name != "lo"]
        interface = others[0] if len(others) == 1 else ""
    return Own(address, interface)


def router() -> str:
    """The address of this machine's default router; empty: there is none."""
    try:
        with open("/proc/net/route", encoding="ascii") as table:
            rows = [line.split() for line in table][1:]
    except OSError:
        return ""
    found = [row[2] for row in rows if len(row) > 2 and row[1] == "0" * 8 and row[2] != "0" * 8]
    return socket.inet_ntoa(bytes.fromhex(found[0])[::-1]) if found else ""
