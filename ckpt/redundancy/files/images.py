"""Open files and descriptors of a program with replicas in its image, and going back to one. (driver)

Not here: what undoes changes (going_back.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ckpt.layer import wait_for_files, when_files_are_back
from ckpt.redundancy.files.changes import STATE
from ckpt.redundancy.files.descriptors import TABLE, DescriptorFile
from ckpt.redundancy.files.going_back import go_back
from ckpt.redundancy.files.notes import Notes
from ckpt.redundancy.files.objects import ReplicaFile
from ckpt.redundancy.files.random_access import ReplicaBuffer

__all__ = ["go_on", "go_on_without_replicas", "log_problems", "state"]


def state(epoch: int) -> dict[str, Any]:
    """For the image of this epoch, while the program stands still: the open files, and what going back needs."""
    files = [file for each in STATE.opened if (file := each()) is not None and not file.closed]
    for file in files:
        if isinstance(raw := _raw(file), ReplicaFile):
            raw.save()
    for file in TABLE.files.values():
        file.save()
    notes = STATE.notes
    return {
        "files": files,
        "descriptors": TABLE.state(),
        "may_exist": set(notes.may_exist),
        "notes": notes.path,
        "image": notes.image(str(epoch)),
    }


def _raw(file: Any) -> ReplicaFile | DescriptorFile:
    raw = getattr(file, "buffer", file)
    found: ReplicaFile | DescriptorFile = (
        raw.file if isinstance(raw, ReplicaBuffer) else getattr(raw, "raw", raw)
    )
    return found


def go_on(found: Mapping[str, Any], *, is_copy: bool, line: int | None = None) -> list[tuple[str, str]]:
    """This process goes on from an image with this `state`; {}: from the program's start, or from the image of the
    checkpoint `line`, which was taken without replicas. A copy of a replica leaves files as they are. Returns what is not
    put back: paths and reasons. Raises NotReplicable for a large file that is gone."""
    notes = STATE.notes
    STATE.opened = [weakref.ref(file) for file in found.get("files", [])]
    TABLE.go_on(found.get("descriptors", {}))
    files = [each for file in found.get("files", []) if isinstance(each := _raw(file), ReplicaFile)]
    files += TABLE.files.values()
    if is_copy:
        notes.may_exist = set(found.get("may_exist", ()))
        for file in files:
            file.go_on()
        return []
    image = found.get("image")
    if not found and line is not None:
        image = notes.image_without_replicas(line)
    if found or line is not None:
        wait_for_files()
    problems = go_back(notes, image)
    notes.may_exist |= set(found.get("may_exist", ()))
    for file in files:
        file.put_back()
    return problems


def log_problems(problems: list[tuple[str, str]], log: Callable[..., None]) -> None:
    """``log``: `Below.log` of :mod:`ckpt.layer`, or as that."""
    for path, reason in problems:
        log("files-not-put-back", path=path, reason=reason)


def go_on_without_replicas(found: Mapping[str, Any], log: Callable[..., None]) -> None:
    """This process goes on from an image with this `state`, and has no replicas: what was changed since is undone, when no
    process can fail to load any more. What is not put back gets an entry in the event ``log``."""
    TABLE.go_on(found.get("descriptors", {}))
    if not found.get("notes"):
        return

    def go_on() -> None:
        log_problems(go_back(Notes(found["notes"]), found["image"]), log)

    if not when_files_are_back(go_on):
        go_on()
