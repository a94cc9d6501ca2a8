"""From a forked process to a running rank: streams, environment, port, then the program, new or from its image. (driver)

The agent calls :func:`run_rank` in the child that it has just forked. The function never returns: it raises SystemExit,
which passes through the agent's frames of the stack. The steps, in order:

1. standard streams (files in the job directory, appended to), environment, signal dispositions;
2. for a resumed rank: the image, authenticated and loaded (modules, open files, random state, port state, engine);
3. the port (restored or fresh), the communicator, the helper thread, and the ``hello`` to the controller;
4. the program, under the base frame of :mod:`ckpt.image`;
5. the program's own end, as an interpreter ends (:mod:`ckpt.rank.ending`).
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.compat.compiled import stale
from ckpt.errors import CannotCapture, IncompatibleImage
from ckpt.image.files import standard_output
from ckpt.image.files.output import Output
from ckpt.image.modules import standard_streams
from ckpt.rank import forks, mpi4py_alias
from ckpt.rank.channel import reports
from ckpt.rank.channel.control import ControlChannel
from ckpt.rank.channel.inputs import open_at, open_input, raw_input
from ckpt.rank.ending import (
    Ending,
    exit_code_of,
    has_user_text,
    hold_stops,
    resume_handlers,
    text_of,
    with_stops,
    without_finding,
)
from ckpt.rank.files import files_of
from ckpt.rank.layers import check_copy, port_state, progress_of
from ckpt.rank.runtime import Runtime, install

if TYPE_CHECKING:
    from ckpt.store import ImageReader, JobDirectory

__all__ = ["preload", "run_rank"]


def run_rank(
    spec: Mapping[str, Any], control_fd: int, make_runtime: Callable[..., Runtime] = Runtime
) -> NoReturn:
    """Become rank ``spec["rank"]`` of the job and run to the end; the exit status of the process is the program's.

    ``spec`` is the agent's description of the rank (see ``ckpt.controller.supervision.messages``); ``control_fd`` is this
    rank's end of the packet socket to the agent; ``make_runtime`` makes the runtime of both (:mod:`ckpt.doctor` its own).
    """
    hold_stops()
    _open_streams(spec)
    control = ControlChannel(_move_to_lowest(control_fd))
    try:
        from ckpt.rank.network import allow_connections

        runtime = make_runtime(spec, control)
        install(runtime)
        runtime.outputs.watch(standard_output.outputs())
        ending = Ending(runtime)
        _set_environment(spec)
        allow_connections(spec["size"])
        if spec.get("options", {}).get("mpi4py", True):
            mpi4py_alias.install()
        _check_interpreter(runtime)
        if runtime.options.get("connections") == "reset":
            from ckpt.image import declare_connections

            declare_connections("reset")
        job = _job(spec)
        is_fresh = spec.get("resume") is None
        run = with_stops(_fresh(runtime, job)) if is_fresh else _resumed(runtime, job)
        runtime.files = files_of(runtime, job.key, runtime.options)
        runtime.files.start()
        if runtime.early or spec.get("resume") is not None:
            from ckpt.rank.putting_back import before_going_on

            before_going_on(runtime)
    except BaseException as failure:
        # The program has not started: any exception is reported to the controller and ends this rank.
        code = exit_code_of(failure)
        vars(failure).pop("fallback_epoch", None)  # the controller says which checkpoint is tried next
        own = f"{failure}" if has_user_text(failure) else stale(failure)
        text = text_of(without_finding(failure)) if own is None else f"{own}\n"
        control.send({"m": "error", "exit_code": code, "traceback": text})
        if own is None or "\n" in own or spec.get("resume") is None:
            # What keeps an image from being loaded is the same at many ranks: the controller tells it once.
            sys.stderr.write(text)
            sys.stderr.flush()
        os._exit(code)
    forks.install()
    ending.run(run)


def _move_to_lowest(fd: int) -> int:
    """Move the descriptor to the lowest free number; return that number.

    The number is the same in every incarnation, so it cannot collide with a descriptor of the program in an image."""
    low = os.dup(fd)
    os.close(max(low, fd))
    return min(low, fd)


_MADE_BY_EVERY_RANK = {
    "ckpt.capture.choice": ("Choice",),
    "ckpt.capture.writing": ("Writing",),
    "ckpt.image.files.file_notes": ("FileNote",),
    "ckpt.image.frames.stack": ("FrameRecord", "Stack"),
    "ckpt.image.pairs": ("ImageReport", "Prepared"),
    "ckpt.store": ("JobDirectory",),
    "ckpt.store.images.writer": ("ImageReceipt", "Run", "Table"),
    "ckpt.store.records.manifest": ("Manifest",),
    "ckpt.transport.protocol.config": ("EndpointConfig",),
    "ckpt.transport.protocol.state": ("LinkState", "PortState"),
    "ckpt.transport.rings.bell": ("Offer",),
    "ckpt.transport.rings.ringwire": ("Peer",),
    "ckpt.transport.wires.zmqsettings": ("CurveKeys", "ZmqLimits"),
}
"""Classes of which every rank makes instances, at its start or for an image. tests/system/spine/test_start.py keeps the list
complete."""


def preload() -> None:
    """Import what every rank needs; called once by the agent, before it forks ranks. Starts no thread, opens no socket.

    The search of the imported modules comes last: what changes a module after it makes every rank search that module again.
    """
    import ckpt.image
    import ckpt.mpi.comm.communicator
    import ckpt.mpi.engine.engine
    import ckpt.mpi.engine.imports
    import ckpt.rank.network
    import ckpt.store.images.reader
    import ckpt.store.images.writer
    from ckpt.image.lowlevel import _lookup
    from ckpt.store.records import formats
    from ckpt.transport.driver import originals
    from ckpt.transport.records import compile_init

    originals.keep()
    ckpt.mpi.engine.imports.under_way = ckpt.image.imports_under_way
    formats.compile_patterns()
    for module, names in _MADE_BY_EVERY_RANK.items():
        for name in names:
            compile_init(getattr(sys.modules[module], name))
    ckpt.image.preload()
    # At its end each rank collects garbage several times, with all these objects. The agent itself never does.
    _lookup.untrack_constants(gc.get_objects())


# ---------------------------------------------------------------------- preparing the process


def _check_interpreter(runtime: Runtime) -> None:
    """Raise CannotCapture if the stack of this interpreter cannot be captured: now, rather than fail at every image."""
    from ckpt import image

    ok, reason = image.available()
    if not ok and runtime.explicit is None:
        raise CannotCapture(
            f"{reason}. What works with every interpreter: `ckpt run --explicit`, with ckpt.register and ckpt.loop in the "
            "program; see docs/programs.md"
        )


def _open_streams(spec: Mapping[str, Any]) -> None:
    """Open the standard streams.

    fd 0 is the file given as standard input (rank 0 only), or /dev/null; fds 1 and 2 append to the rank's output files,
    whose lengths become part of each image.
    """
    output = os.path.join(spec["job_dir"], "output")
    is_first = _identity(spec)["rank"] == 0 and "parent" not in spec
    standard_input = open_input(spec, is_first=is_first)
    streams = _identity(spec)["streams"]
    for fd, name in ((1, f"rank-{streams}.out"), (2, f"rank-{streams}.err")):
        open_at(fd, os.path.join(output, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if spec.get("resume") is None and spec["restarts"]:
        # The job starts again from its beginning, since no checkpoint had been committed: the output begins anew too.
        os.ftruncate(1, 0)
        os.ftruncate(2, 0)
    raw = raw_input(spec, standard_input)
    encoding, errors, _ = _conversion("stdin", "strict")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), encoding=encoding, errors=errors)
    sys.stdout = _text_stream(1, "stdout", "strict")
    sys.stderr = _text_stream(2, "stderr", "backslashreplace")
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    faulthandler.enable(file=sys.stderr)
    standard_streams.std_objects()  # records the three streams, with their buffers and raw files


def _conversion(name: str, errors: str) -> tuple[str, str, bool]:
    """Encoding, error handler and ``write_through`` of the interpreter's own stream ``name``.

    The interpreter chooses encoding and error handler by locale and ``PYTHONIOENCODING``, and ``write_through`` by ``-u`` or
    ``PYTHONUNBUFFERED``. ``errors``: the error handler if there is no such stream.
    """
    stream = getattr(sys, f"__{name}__", None)
    if not isinstance(stream, io.TextIOWrapper):
        return "utf-8", errors, False
    return stream.encoding, stream.errors or errors, stream.write_through


def _text_stream(fd: int, name: str, errors: str) -> io.TextIOWrapper:
    encoding, errors, unbuffered = _conversion(name, errors)
    raw = Output(fd, f"<{name}>")
    buffer: Any = raw if unbuffered else io.BufferedWriter(raw)
    stream = io.TextIOWrapper(
        buffer, encoding=encoding, errors=errors, line_buffering=True, write_through=unbuffered
    )
    stream.mode = "w"  # type: ignore[misc]
    return stream


def _set_environment(spec: Mapping[str, Any]) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as the interpreter does it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(job_environment(spec))


def _identity(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the program of this process is to the outside: rank, size, local_rank, local_size, and the name of its streams.

    Without an ``identity`` in the description of the process, that is the number of the process."""
    return spec.get("identity") or {**spec, "streams": str(spec["rank"])}


def job_environment(spec: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables that a job sets for each of its ranks. One that is alone has no ``LOCAL_RANK``: accelerate
    takes that for the sign of a distributed torch, and fails without ``MASTER_ADDR``."""
    me = _identity(spec)
    local = {"LOCAL_RANK": str(me["local_rank"]), "LOCAL_WORLD_SIZE": str(me["local_size"])}
    return {
        "RANK": str(me["rank"]),
        "WORLD_SIZE": str(me["size"]),
        **(local if int(me["size"]) > 1 else {}),
        "CKPT_JOB": str(spec["job_dir"]),
        "CKPT_RESTARTS": str(spec["restarts"]),
        **({"CKPT_AGENT": spec["mark"]} if spec.get("mark") else {}),
        **(_of_the_host(spec["host_number"]) if spec.get("host_number") else {}),
    }


_HOST_NAMES = ("HOSTNAME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "XDG_RUNTIME_DIR")
_HOST_PREFIXES = ("SLURM_", "SLURMD_", "PMI_", "PMIX_", "SSH_")


def _of_the_host(number: int) -> dict[str, str]:
    """With ranks on several hosts: variables whose values belong to a host, not to the program."""
    found = {
        name: text
        for name, text in os.environ.items()
        if name in _HOST_NAMES or name.startswith(_HOST_PREFIXES)
    }
    return {**found, "CKPT_HOST": str(number)}


# ---------------------------------------------------------------------- the program


def _job(spec: Mapping[str, Any]) -> JobDirectory:
    """The job's directory, opened and verified once. Raises StoreError."""
    from ckpt.store import JobDirectory

    return JobDirectory.open(spec["job_dir"], key=spec.get("key"))


def _fresh(runtime: Runtime, job: JobDirectory) -> Callable[[], object]:
    """A function that runs the program from its start. Opens and binds the port."""
    from ckpt.image import prepare_program
    from ckpt.rank.network import is_on_one_host, open_port

    spec = runtime.spec
    engine, world = _world(runtime)
    engine.one_host = is_on_one_host(runtime)
    run: Callable[[], object] | None = None
    if "parent" in spec:
        from ckpt.rank.channel.commands import begun

        run = begun(engine, spec)
    port = open_port(spec, job.key, runtime.lock, report=runtime.report)
    runtime.bind(port, engine, world)
    return run or prepare_program(spec["argv"])


def _world(runtime: Runtime) -> tuple[Any, Any]:
    """The engine, and COMM_WORLD, whose processes may be some of the job's."""
    from ckpt.mpi import make_world

    first, count = runtime.spec.get("world", (0, 0))
    return make_world(progress_of(runtime), range(first, first + count) or None)


def _waiting_for_files(runtime: Runtime) -> Callable[[bool], None] | None:
    """A rank that begins does not import this."""
    from ckpt.rank.putting_back import waiting_for_files

    return waiting_for_files(runtime)


def _resumed(runtime: Runtime, job: JobDirectory) -> Callable[[], object]:
    """A function that resumes the program from the image of epoch ``spec["resume"]``. Loads the image and binds the port.

    Raises IncompatibleImage, and the errors of :mod:`ckpt.store` and :mod:`ckpt.image`.
    """
    from ckpt import image
    from ckpt.mpi.comm.communicator import self_of, world_of
    from ckpt.rank.network import open_port
    from ckpt.store import ImageReader

    spec = runtime.spec
    reader = ImageReader(job, epoch=spec["resume"], rank=runtime.program_rank)
    if bool(reader.meta.get("explicit")) != (runtime.explicit is not None):
        raise IncompatibleImage("an explicit image, and a job that is not, or the other way round")
    if runtime.explicit is not None:
        return with_stops(_replayed(runtime, job, reader))
    image.check_compatible(reader.meta["image"])
    runtime.engine, runtime.world = _world(runtime)  # for imports while the image is loaded
    assert self_of(runtime.engine)
    runtime.engine.imports.hear_again(reader.meta.get("heard", ()))
    if runtime.options.get("moved"):
        image.declare_moved(*runtime.options["moved"])
    wait = _waiting_for_files(runtime)
    live = {"ckpt.layer": runtime, **runtime.live}  # a rank without a layer is its own
    loaded = image.load(reader, live=live, environment=job_environment(spec), wait_for_files=wait)
    not_saved = [row for row in reader.meta["image"]["left_out"] if row["kind"] in image.LOST]
    for packet in reports.load(spec["resume"], [*not_saved, *loaded.left_out], loaded.not_put_back):
        runtime.control.send(packet)
    image.refresh_modules()
    extras = loaded.extras
    runtime.load(extras, spec["resume"])
    check_copy(runtime)
    state = port_state(runtime, extras["ckpt.port"])
    port = open_port(spec, job.key, runtime.lock, state, report=runtime.report)
    engine = extras["ckpt.engine"]
    engine.progress, engine.windows.refusal = runtime.engine.progress, ""
    engine.take_over(runtime.engine, extras["ckpt.predefined"])
    runtime.bind(port, engine, world_of(engine), extras.get("ckpt.layer"))
    if runtime.finished_code is not None:
        return lambda: None
    assert loaded.stack is not None, "only a finished rank has no stack"
    box = [loaded.stack]
    locked: bool = extras["ckpt.locked"]
    # These references would keep objects of the program alive.
    del loaded, extras, state, reader, engine, live

    def go_on() -> object:
        if runtime.hooks.are_due or runtime.commits.is_due:
            with image.program_mask():
                runtime.hooks.call_after(spec["resume"])
                runtime.commits.call()
        resume_handlers(runtime)
        if locked:
            runtime.lock.acquire()  # the library call on the restored stack releases it
        if runtime.ended is not None:
            image.resume_others(box.pop())
            return None  # the main thread waits for them, from the beginning
        return image.resume(box.pop())

    return go_on


def _replayed(runtime: Runtime, job: JobDirectory, source: ImageReader) -> Callable[[], object]:
    """A function that runs an explicit program from its start, with the port's state from the image.

    ``source``: the image. The program restores its registered objects while it runs (:mod:`ckpt.replay.program`).
    """
    from ckpt.image import go_on_clocks, prepare_program
    from ckpt.mpi import make_world
    from ckpt.rank.network import open_port
    from ckpt.replay.pickling import Reader

    assert runtime.explicit is not None
    reader = Reader(source.stream(), source.buffers())
    header, state = reader.load(), port_state(runtime, reader.load())
    go_on_clocks(header.get("clocks"))
    runtime.finished_code = header["finished"]
    if runtime.finished_code is None:
        runtime.explicit.replay(reader, header)
    wait = _waiting_for_files(runtime)
    if wait is not None:
        wait(True)
    engine, world = make_world(runtime)
    port = open_port(runtime.spec, job.key, runtime.lock, state, report=runtime.report)
    runtime.bind(port, engine, world)
    if runtime.finished_code is not None:
        return lambda: None
    return prepare_program(runtime.spec["argv"])
