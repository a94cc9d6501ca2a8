"""What all hosts are asked at once, and what follows from their answers. (driver)

    check_routes   can they reach each other? Before ranks start
    find_shared    which file systems do they share with this host, and what time is it there?
    examine        what holds there? For `ckpt doctor`
    survey         whom does each of them reach now? The answers come as events

All but the last wait for the answers, for a limited time.

Not here: how questions and answers travel (:mod:`ckpt.controller.hosts.launch.driver`), how an agent answers
(:mod:`ckpt.controller.hosts.agent`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Collection
from typing import Any

from ckpt.controller.errors import LaunchFailed
from ckpt.controller.hosts.launch.driver import FleetDriver
from ckpt.controller.hosts.routes import others_of
from ckpt.controller.sharing import facts, proof
from ckpt.transport.wires.addresses import family_of, split

__all__ = ["addresses", "check_routes", "examine", "examined", "find_shared", "own", "survey"]

_ROUTES_LIMIT_S = 15.0
_SHARES_LIMIT_S, _SHARES_TRIES = 15.0, 3


def check_routes(driver: FleetDriver) -> None:
    """Raise LaunchFailed unless the hosts can reach each other."""
    doors = {index: driver.doors[index] for index in driver.joined()}
    if len(doors) < 2:
        return
    commands = {index: {"a": "knock", "doors": others_of(index, doors)} for index in doors}
    knocked = driver.inquire(commands, "knocked", _ROUTES_LIMIT_S)
    for index in driver.joined():
        name = driver.name_of(index)
        for other, reason in (knocked[index]["failed"] if index in knocked else {}).items():
            there, address = driver.name_of(int(other)), split(doors[int(other)])[0]
            raise LaunchFailed(
                f"host {name} cannot reach host {there} at {address}: {reason}. Ranks talk by tcp between all hosts, at "
                "any port (or --ports): open it, or name another network (--interface)"
            )
        if index not in knocked:
            raise LaunchFailed(
                f"host {name} did not say within {_ROUTES_LIMIT_S:g} s whether it reaches the others"
            )


def find_shared(driver: FleetDriver, job: str, cwd: str) -> proof.SharedFiles:
    """Ask the hosts which file systems they share with this one, and for the time; again if an answer was slow. `job`: the
    job directory; `cwd`: that in which the job works."""
    own = facts.mounts_of(facts.candidates(job, cwd))
    name = f".ckpt-shared-{os.urandom(8).hex()}"
    with facts.token(own, name):
        for _ in range(_SHARES_TRIES):
            shared = proof.prove(own, _ask_for_shared(driver, list(own), name))
            if not shared.unknown_clocks:
                break
    return shared


def _ask_for_shared(
    driver: FleetDriver, directories: list[str], name: str
) -> dict[str, dict[str, Any] | None]:
    command = {"a": "share", "directories": directories, "name": name}
    asked_ns = time.time_ns()
    shares = driver.inquire(dict.fromkeys(driver.joined(), command), "shared", _SHARES_LIMIT_S)
    answers: dict[str, dict[str, Any] | None] = {}
    for index in driver.joined():
        answer = shares.get(index)
        off_ns = answer and proof.clock_off_ns(answer["time_ns"], asked_ns, answer["came_ns"])
        answers[driver.name_of(index)] = answer and {**answer, "off_ns": off_ns}
    return answers


def examine(driver: FleetDriver, directory: str, limit_s: float) -> None:
    """Let the hosts look what holds there (`examine.py`)."""
    command = {"a": "examine", "directory": directory}
    driver.inquire(dict.fromkeys(driver.joined(), command), "examined", limit_s)


def examined(driver: FleetDriver) -> dict[int, tuple[dict[str, Any], float]]:
    """By host: its facts, and when they came, in seconds; those that came late, too."""
    answers = driver.answers.get("examined", {})
    return {index: (dict(answer["facts"]), answer["came_ns"] / 1e9) for index, answer in answers.items()}


def addresses(driver: FleetDriver) -> dict[str, str]:
    """The hosts, and where each is reached in the network of the job."""
    return {driver.name_of(index): split(door)[0] for index, door in driver.doors.items()}


def own(driver: FleetDriver) -> str | None:
    """The host on which this process runs; None: none of them, or it has lost its address."""
    for name, address in addresses(driver).items():
        with contextlib.suppress(OSError), socket.socket(family_of(address), socket.SOCK_DGRAM) as trying:
            trying.bind((address, 0))
            return name
    return None


def survey(driver: FleetDriver, number: int, limit_s: float, lost: Collection[str]) -> dict[str, list[str]]:
    """Let every host try to reach the others, and the `lost` ones; events `surveyed` say whom it did not reach. Returns
    whom each will try."""
    joined = driver.joined()
    known = {i: door for i, door in driver.doors.items() if i in joined or driver.name_of(i) in lost}
    asked = {}
    for index in joined:
        doors = others_of(index, known)
        driver.tell([index], {"a": "survey", "number": number, "doors": doors, "limit_s": limit_s})
        asked[driver.name_of(index)] = [driver.name_of(int(other)) for other in doors]
    return asked
