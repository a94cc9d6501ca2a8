"""Writes one image and votes: in the forked child, or in the rank itself while the program stands still.

The child pickles, compresses, writes, syncs and votes. The child uses no socket but the control channel, runs no finalizer
and ends with ``os._exit``: it must never return into the program, whatever happens. Every failure is reported to the
controller in a ``failed`` packet with a reason and a place (a variable, where a variable is the cause). A failure ends the
round, never the program.

Not here: when and how an image is taken (:mod:`ckpt.capture.imager`, :mod:`ckpt.capture.taker`), the content of an image
(:mod:`ckpt.image`), how an image becomes durable (:mod:`ckpt.store`).
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.capture import memory
from ckpt.errors import CkptError
from ckpt.transport.records import dataclass

if TYPE_CHECKING:
    from ckpt.capture.context import RankContext

__all__ = ["Writing", "report_failure", "was_silent", "write", "write_in_child"]

_HEAD_START_S = 0.003
"""The child waits so long before it begins. The program's first writes after the fork cause faults on pages shared with the
child, and each fault is slower while the child works on the same memory (1 GB in 4 KiB pages: the pause is 24 ms without
this wait and 22 ms with it)."""

_SILENT, _TOLD = 1, 3
"""Exit codes of a child that has not voted: it may have told nobody why; the controller knows why."""


def was_silent(status: int) -> bool:
    """``status``: of a child, as from ``os.waitpid``. Has it ended by itself, and told nobody why it has not voted?"""
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) not in (0, _TOLD)


@dataclass(frozen=True, slots=True)
class Writing:
    """One image to be written: ``prepared`` by :func:`ckpt.image.prepare`, labelled (previous, epoch].

    ``vectors``: for each peer (tx, base, rx) of the frozen port: numbers of messages sent, acknowledged and received.
    """

    prepared: Any
    vectors: Mapping[int, tuple[int, int, int]]
    previous: int
    epoch: int


def write_in_child(runtime: RankContext, job: Writing) -> NoReturn:
    """Runs in the forked child: write the image, vote, end the process."""
    code = _SILENT
    try:
        from ckpt import image
        from ckpt.image.frames import _frames

        memory.prefer_for_oom_kill()
        time.sleep(_HEAD_START_S)
        gc.disable()
        _frames.pdeathsig(signal.SIGKILL)
        if runtime.explicit is None:
            image.check(job.prepared)
        code = 0 if write(runtime, job) else _TOLD
    except BaseException as failure:
        # The child must never return into the program; any exception ends the round only.
        report_failure(runtime, job.epoch, _failure_text(failure), "image child")
        code = _TOLD
    finally:
        os._exit(code)


def write(runtime: RankContext, job: Writing) -> bool:
    """Write the image and vote. ``False``: the image could not be written, and the controller has been told why."""
    from ckpt import image
    from ckpt.capture.description import describe_messages, output_lengths
    from ckpt.store import ImageWriter, JobDirectory

    epoch, outer, resident_bytes = job.epoch, sys.exception(), memory.resident_bytes()
    runtime.files.look_at_changes()
    vectors = {str(peer): list(vector) for peer, vector in job.vectors.items()}
    try:
        with ImageWriter(
            JobDirectory.open(runtime.spec["job_dir"], key=runtime.spec.get("key")),
            rank=runtime.program_rank,
            incarnation=runtime.incarnation,
            label=(job.previous, epoch),
            resumed_from=runtime.spec.get("resume"),
        ) as writer:
            begun_ns = time.perf_counter_ns()
            if runtime.explicit is not None:
                report = job.prepared.dump(writer)
            else:
                report = image.dump(job.prepared, live=runtime.live, sink=writer)
            pickled_ns = time.perf_counter_ns()
            files = runtime.files.seal()
            output = output_lengths(runtime.spec, report.lengths)
            receipt = writer.finish(
                {
                    "image": report.as_dict(),
                    "explicit": runtime.explicit is not None,
                    "heard": _heard(runtime),
                    "vectors": vectors,
                    "messages": describe_messages(job.prepared.extras),
                    "timings_ns": {"pickle_ns": pickled_ns - begun_ns},
                    "pid": os.getpid(),
                    "finished": runtime.finished_code,
                    "output": output,
                },
                files,
            )
    except image.Unpicklable as failure:
        runtime.imager.taker.lesson.tell(failure.held_type)
        report_failure(runtime, epoch, failure.reason, failure.path)
        # In the rank itself, nothing of the program may stay alive for it
        image.without_frames(failure, outer)
        return False
    except Exception as failure:  # a full disk, no memory, a __reduce__ that raises
        report_failure(runtime, epoch, _failure_text(failure), runtime.spec["job_dir"])
        image.without_frames(failure, outer)
        return False
    lost = list(dict.fromkeys(row["package"] for row in report.left_out if row["kind"] in image.LOST))
    if lost:
        runtime.control.send({"m": "event", "event": "packages-left-out", "epoch": epoch, "packages": lost})
    if runtime.layer is not None:
        runtime.layer.captured(epoch, output.get("out", 0))
    runtime.control.send(
        {
            "m": "voted",
            "epoch": epoch,
            "label": [job.previous, epoch],
            "manifest": str(receipt.manifest_path),
            "digest": receipt.digest,
            "bytes_raw": receipt.bytes_raw,
            "bytes_written": receipt.bytes_written,
            "vectors": vectors,
            "not_covered": 0 if files is None else len(files["uncovered"]) + files["more"],
            "memory_bytes": max(0, memory.peak_bytes() - resident_bytes),
            "timings": {"pickle_ns": pickled_ns - begun_ns, **receipt.timings_ns},
        }
    )
    return True


def _heard(runtime: RankContext) -> list[Any]:
    """What a restart needs before it reads the image, since it imports libraries first. Raises CkptError."""
    if runtime.engine is None:
        return []
    if runtime.engine.imports.refusal:
        raise CkptError(runtime.engine.imports.refusal)
    return runtime.engine.imports.told()


def _failure_text(failure: BaseException) -> str:
    """A text for an unexpected exception: its type and message, and where it was raised unless the message names a file."""
    if getattr(failure, "errno", None) == errno.EMFILE:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"no descriptor is free to write an image with: this process may have {limit} "
            "(ulimit -n, resource.RLIMIT_NOFILE); raise that limit, or close files before a checkpoint"
        )
    text = f"{type(failure).__name__}: {failure}"
    import traceback

    frames = traceback.extract_tb(failure.__traceback__)
    if not frames or getattr(failure, "filename", None) is not None:
        return text
    return f"{text} (raised in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno})"


def report_failure(runtime: RankContext, epoch: int, reason: str, where: str, held_ns: int = 0) -> None:
    """Tell the controller that this rank will not vote for the epoch, and why.

    ``where``: a place in the program or a variable; ``held_ns``: for how long the round has held the program up.
    """
    packet = {"m": "failed", "epoch": epoch, "reason": reason, "where": where}
    runtime.control.send(packet | {"held_ns": held_ns} if held_ns else packet)
