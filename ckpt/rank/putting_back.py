"""A rank that resumes waits until files are put back: the controller does that when all ranks have loaded their images.

    rank         loads its image, up to the first thing that needs a file ──▶ ``loaded``, and whether that was all
    controller   has ``loaded`` of all ranks: puts files back              ──▶ ``files`` (one packet or several)
    rank         opens its files, loads the rest, and says ``hello``      ──▶
    controller   has ``hello`` of all ranks: what was put back stays       ──▶ ``table``
    rank         goes on

Until then, the controller can take back what it has put back, so no rank may change a file. (Where all ranks had loaded
everything, what was put back stays at once, and nobody waits for ``table``.) When the controller puts files back, each rank
has read and verified its whole image, has imported all modules, and has compared their versions. What needs a file says so
itself (:mod:`ckpt.image.files.reopen`); what a package opens while its objects are loaded is seen by an audit hook.

Not here: what the controller does (:mod:`ckpt.controller.service.files`), what is loaded when (:mod:`ckpt.image.loading`).
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt import image
from ckpt.errors import ControlLost, IncompatibleImage
from ckpt.rank.channel.inputs import open_again
from ckpt.rank.files import is_put_back
from ckpt.rank.packets import EXIT_FENCED, obey
from ckpt.undo import _watch

if TYPE_CHECKING:
    from ckpt.rank.channel.control import Packet
    from ckpt.rank.runtime import Runtime

__all__ = ["before_going_on", "waiting_for_files"]

_IMPORTING = importlib.machinery.FileFinder.find_spec.__code__.co_filename
_PAUSE_S = 0.001
_FOR_NOW: Any = "until files are put back"
_CODE = (".py", ".pyc", ".pyi", ".so")
_SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/etc", "/lib", "/lib64", "/opt")


def waiting_for_files(runtime: Runtime) -> Callable[[bool], None] | None:
    """The function that waits until files are put back, for :func:`ckpt.image.load`; None: they are."""
    if not runtime.options.get("files_wait"):
        _declare(runtime)
        return None

    writes_none = sys.dont_write_bytecode
    if runtime.options.get("code_changes"):
        # Code is that of the checkpoint for now. What is compiled of it could be taken for that of what comes after.
        sys.dont_write_bytecode = _FOR_NOW

    def wait(is_all_loaded: bool) -> None:
        if (
            sys.dont_write_bytecode is _FOR_NOW
        ):  # else the image has been loaded, and has what the program had
            sys.dont_write_bytecode = writes_none
        _watch.before_opening(None)
        _take_options(runtime, is_all_loaded)
        open_again(sys.__stdin__)
        _declare(runtime)

    _watch.before_opening(_Openings(runtime).wait_if_needed)
    return wait


def before_going_on(runtime: Runtime) -> None:
    """The port is open. Raises IncompatibleImage."""
    _obey_early(runtime)
    _wait_for_shared_memory(runtime)


def _wait_for_shared_memory(runtime: Runtime) -> None:
    """Wait until all ranks that share memory with this one have filled in their parts: nobody may store to one before. Of
    mapped files, each rank fills in all that it has mapped."""
    runtime.look_at_mapped_files()
    memory = runtime.memory_in_use
    while memory is not None:
        with runtime.lock:
            are_all_loaded = runtime.are_all_loaded
            if not (problem := memory.problem()) and (are_all_loaded or not memory.has_files):
                return
        if problem and are_all_loaded:
            raise IncompatibleImage(
                f"the program shares memory between ranks (Win.Allocate_shared), and {problem}"
            )
        time.sleep(_PAUSE_S)


def _obey_early(runtime: Runtime) -> None:
    """Do what the controller has said meanwhile."""
    with runtime.lock:
        for packet in runtime.early:
            obey(runtime, packet)
        runtime.early.clear()


def _declare(runtime: Runtime) -> None:
    if runtime.options.get("files_put_back"):
        image.declare_put_back(is_put_back(runtime.spec))


def _wait_for_all(runtime: Runtime) -> None:
    """This rank has loaded, and has its port: return when all ranks have."""
    while not any(packet["m"] == "table" for packet in runtime.early):
        runtime.early += _received(runtime)


def _take_options(runtime: Runtime, is_all_loaded: bool) -> None:
    """Say that this rank has loaded, and wait for what the controller says of files."""
    runtime.control.send({"m": "loaded", "all": is_all_loaded})
    options: dict[str, Any] = {}
    is_done = False
    while not is_done:
        for packet in _received(runtime):
            if packet["m"] == "files":
                paths = [*options.get("files_problems", ()), *packet["options"].pop("files_problems", ())]
                options |= {**packet["options"], "files_problems": paths}
                is_done = not packet["more"]
            else:
                runtime.early.append(packet)
    if options.get("files_wait"):
        runtime.said_hello = functools.partial(_wait_for_all, runtime)
    runtime.options.update(options)
    runtime.spec["options"] = {**runtime.spec["options"], **options}


def _received(runtime: Runtime) -> list[Packet]:
    """Wait for the controller. What ends this rank is done at once."""
    poll = select.poll()
    poll.register(runtime.control.fileno(), select.POLLIN)
    poll.poll()
    try:
        packets = runtime.control.receive()
        if not runtime.control.alive and not packets:  # it was closed before something was sent
            raise ControlLost("the agent of this rank has closed the control channel")
    except ControlLost as lost:
        runtime.leave(EXIT_FENCED, f"rank {runtime.rank}: {lost}; stopping")
    for packet in packets:
        match packet["m"]:
            case "stop":
                runtime.leave(packet["exit_code"], packet.get("reason"))
            case "alone":
                _be_interrupted(runtime)
    return packets


def _be_interrupted(runtime: Runtime) -> NoReturn:
    """Nobody will put files back. Not by an exit code: the agent would take that for the end of the program."""
    os.write(
        2, f"rank {runtime.rank}: the controller is gone, and has not put files back; stopping\n".encode()
    )
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class _Openings:
    """What is opened while an image is loaded, and is no file of the program: code, packages and what they come with, the
    system, the job directory."""

    def __init__(self, runtime: Runtime) -> None:
        known = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__), *_SYSTEM}
        known |= {entry for entry in sys.path if entry.endswith(("-packages", ".zip"))}
        ours = (runtime.spec["job_dir"], runtime.spec["runtime_dir"], os.path.dirname(image.__path__[0]))
        self._known = tuple(path.rstrip("/") + "/" for path in {*known, *ours} if path.startswith("/"))

    def wait_if_needed(self, event: str, path: Any) -> bool:
        """Called by the audit hook, until files are put back: wait if this is a file of the program, and the load has begun.
        (Before that, the image itself is opened.)"""
        if not image.waits_for_files():
            return True
        # The import system lists the directories of the program's modules.
        is_import = sys._getframe(1).f_code.co_filename == _IMPORTING
        if not is_import and not self._is_left_alone(event, path):
            image.wait_for_files()
        return True

    def _is_left_alone(self, event: str, path: Any) -> bool:
        try:
            text = os.fsdecode(path)
        except TypeError:  # a descriptor; None: the working directory, or the program itself
            return isinstance(path, int) or event == "ctypes.dlopen"
        if event == "ctypes.dlopen":
            return "/" not in text or text.startswith(self._known)
        if text.endswith(_CODE) or text == ":memory:":
            return True
        return (os.path.abspath(text) + "/").startswith(self._known)
