"""Records where the processes of a job run; a new controller makes sure that none is left before it starts new ones.

The job's record names a *location* (`ckpt.store.job.location`): machine, job directory, and the private directory with the
sockets. A record may be out of date, so the kernel is asked too: an agent keeps its log locked, so a locked log means that
an agent of this very directory lives.

    runtime_of      for a command that wants to talk to the controller
    clear           for a controller that takes the job over: ends the processes of an earlier controller here, or raises
                    JobBusy, which says where they are
    claim           records the location of this process; called before this process starts the first process of the job

Only processes of this directory are ended. A copied job directory has the log and the record of the original, but the
original's processes are not its own. This machine can know nothing about another machine: the user must say that it is dead
(`--fenced HOST`).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ckpt.controller.errors import JobBusy, NoSuchJob
from ckpt.controller.launch.local import fence_survivor
from ckpt.store.disk.privacy import is_private_directory, make_runtime_directory
from ckpt.store.job.location import compare, is_locked, this_location

if TYPE_CHECKING:
    from ckpt.controller.supervision.history import History
    from ckpt.store import JobDirectory, LockHandle
    from ckpt.store.job.location import Location, Relation

_PATIENCE_S = 5.0
_POLL_S = 0.005


def location_of(job: JobDirectory) -> tuple[Location | None, Relation]:
    """The recorded location, and its relation to this machine and directory (see `ckpt.store.job.location`)."""
    location = job.record().location
    relation = compare(location, this_location(job.path, ""))
    if relation == "copied" and is_locked(os.path.join(job.path, "lock")):
        relation = "ours"  # job.json has got another inode number, but the controller runs here
    return location, relation


def runtime_of(job: JobDirectory) -> str:
    """The directory with the sockets of the job's controller. Raises NoSuchJob when no controller can be reached here."""
    location, relation = location_of(job)
    if location is None or relation == "free":
        raise NoSuchJob("the job is not running: no controller answers (`ckpt restart` goes on with it)")
    if relation == "elsewhere":
        raise NoSuchJob(
            f"the job is on host {location.host} (pid {location.pid}), or was when that was last heard of: ask there. "
            f"If that host is dead, `ckpt restart --fenced {location.host} {job.path}` goes on with the job here"
        )
    if relation == "copied":
        raise NoSuchJob(
            f"{job.path} is a copy of {location.path}: nothing runs in it (`ckpt restart` goes on with the copy; the "
            "original is not touched)"
        )
    return location.runtime


def agent_lives(job: JobDirectory) -> bool:
    """Does an agent of this job directory live on this machine?"""
    return is_locked(job.agent_log_path())


def is_away(job: JobDirectory, lock: LockHandle) -> bool:
    """Was the controller before this one on another host?"""
    return compare(lock.found.location, this_location(job.path, "")) == "elsewhere"


def clear(
    job: JobDirectory, lock: LockHandle, history: History, fenced_host: str | None, *, leased: bool = False
) -> str:
    """Make sure that no process of an earlier controller lives. Call it with the lock held.

    `fenced_host`: the host that the user has declared dead. `leased`: processes end by themselves, on whatever host, and the
    caller waits for that, or goes on with them. Returns a text for the event log; "" when no process was ended.
    Raises JobBusy when processes cannot be ended from here.
    """
    location = lock.found.location
    relation = compare(location, this_location(job.path, ""))
    if relation == "elsewhere":
        assert location is not None
        if leased and fenced_host is None:
            return f"taken over from host {location.host}"
        if fenced_host != location.host:
            raise JobBusy(
                f"{job.path}: the job is on host {location.host} (pid {location.pid}), or was when that was last heard of: "
                f"end it there (`ckpt stop`). Only if that host is dead: --fenced {location.host}"
            )
        return f"host {location.host} is dead, says --fenced"
    ended = False
    if not leased and (relation == "ours" or agent_lives(job) or _writes_here(job, history)):
        ended = _end(lock, history)
    _wait_for_silence(job, location)
    return "processes of an earlier controller were alive" if ended else ""


def end_late(job: JobDirectory, lock: LockHandle, history: History) -> None:
    """End the processes of an earlier controller on this host that should have ended by themselves (`leased`)."""
    if compare(lock.found.location, this_location(job.path, "")) == "ours":
        _end(lock, history)


def _end(lock: LockHandle, history: History) -> bool:
    location, agent, life = lock.found.location, history.agent, lock.found.life
    marks = {found.mark for found in (agent, life) if found is not None}
    known = [*([agent] if agent is not None else []), *history.processes]
    return fence_survivor("" if location is None else location.runtime, lock.generation, known, marks)


def _writes_here(job: JobDirectory, history: History) -> bool:
    """Does the agent that the event log names write into this directory's agent log?

    Agents of old versions did not lock the log; this finds them.
    """
    if history.agent is None:
        return False
    try:
        return os.path.samefile(f"/proc/{history.agent.pid}/fd/1", job.agent_log_path())
    except OSError:
        return False


def _wait_for_silence(job: JobDirectory, location: Location | None) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while agent_lives(job):
        if time.monotonic() > deadline:
            where = "" if location is None else f" on host {location.host}, namespace {location.namespace}"
            raise JobBusy(
                f"{job.path}: an agent of an earlier controller is at work{where} and cannot be ended from here: end it in "
                "the container that it runs in, and try again"
            )
        time.sleep(_POLL_S)


def new_location(job: JobDirectory) -> Location:
    """The location for the controller of a new job, with a new private directory."""
    return this_location(job.path, make_runtime_directory())


def claim(job: JobDirectory, lock: LockHandle) -> None:
    """Record that the job runs here from now on."""
    location = lock.found.location
    mine = this_location(job.path, "")
    if compare(location, mine) == "ours" and location is not None and is_private_directory(location.runtime):
        lock.claim(this_location(job.path, location.runtime))
    else:
        lock.claim(new_location(job))
