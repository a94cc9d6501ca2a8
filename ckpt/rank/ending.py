"""The end of a rank: in the order in which CPython's interpreter ends, with MPI_Finalize where mpi4py has it. (driver)

::

    the program's frames are left      an exception is printed by ``sys.excepthook``, as Python prints it
    threads                            those that are not daemons are joined; images can be taken meanwhile
    functions of ``atexit``            last registered first. :meth:`Ending.close` is registered before the program starts:
                                       it is called after all functions that the program and its imports have registered,
                                       and before the functions that the rank's own libraries have registered (pyzmq's
                                       function ends the thread that keeps messages alive). :meth:`Ending.close`:
        standard streams are flushed
        calls that wait for a commit   are made after a last checkpoint (:mod:`ckpt.rank.commits`)
        the rank has finished          it serves its peers until all ranks have (:meth:`ckpt.rank.runtime.Runtime.finish`)
        or has failed                  the controller is told
        port, socket and helper thread are closed
    what the program has given     hooks, handlers of messages and errors, attributes: forgotten
    the interpreter                    ``SystemExit`` leaves all frames of launcher and agent: modules are cleared,
                                       ``__del__`` and finalizers called, files written and closed, C's own exit
                                       functions run. The exit code is the interpreter's, 120 included

A child that the program has forked ends in the same way, but is no rank and sends nothing to peers or controller. A rank
that the controller *tells* to end, or that finds a newer incarnation of itself, leaves at once
(:meth:`ckpt.rank.runtime.Runtime.leave`): its work is rolled back or given up.

Not here: how a rank starts (:mod:`ckpt.rank.boot`), how long other ranks wait for a rank that ends
(``ckpt.controller.supervision.supervisor``).
"""

from __future__ import annotations

import atexit
import codecs
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn

from ckpt.capture.hooks import Hooks
from ckpt.compat import stdlib
from ckpt.compat.accelerators import run_exit_functions
from ckpt.errors import CannotCapture, CkptError, IncompatibleImage, LoopError
from ckpt.image.files import standard_output
from ckpt.image.frames.running import run_base
from ckpt.image.modules import package_baseline, references
from ckpt.image.process import exits
from ckpt.image.process.signals import TIMERS
from ckpt.image.threads.restart import started_threads
from ckpt.mpi.base.handlers import NoHandlers
from ckpt.mpi.base.process import ProcessState, process_state
from ckpt.rank.runtime import Runtime

__all__ = [
    "Ending",
    "exit_code_of",
    "has_user_text",
    "hold_stops",
    "resume_handlers",
    "text_of",
    "with_stops",
    "without_finding",
]

_EXIT_UNRECOVERABLE = 12
_EXIT_INCOMPATIBLE = 13
_EXIT_INTERRUPTED = 130
_EXIT_NOT_FLUSHED = 120
"""Python's exit code when the buffers of the standard streams cannot be written."""
_PROGRAM_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2
)  # fmt: skip
"""Signals meant for the program. When the program has ended, the rank ignores them: the controller ends the rank."""
_STOPS = _PROGRAM_SIGNALS[:4]


class Ending:
    """The end of one rank.

    The object is made before the program starts, and before :mod:`ckpt.image.process.exits` records the table of ``atexit``.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._code = 0
        self._traceback = ""
        self._is_closed = False
        atexit.register(self.close)

    def run(self, run: Callable[[], object]) -> NoReturn:
        """Call ``run``, the program, then end this process as the interpreter would: raises SystemExit."""
        if self._runtime.finished_code is None:
            self._run(run)
        else:
            self._code = self._runtime.finished_code
        del run
        if self._runtime.restarts:
            _look_up_codecs()
        self._join_threads()
        run_exit_functions()
        self.close()  # in case the program has emptied the table of exit functions
        _let_go(self._runtime)
        package_baseline.forget()
        references.forget_process_references()
        gc.unfreeze()  # objects made before the fork are collected like the others, and in the same order
        raise SystemExit(self._code)

    def _run(self, run: Callable[[], object]) -> None:
        failure: BaseException | None = None
        try:
            run()
            if self._runtime.explicit is not None:
                self._runtime.explicit.check_ended()
        except SystemExit as leaving:
            self._code = _system_exit_code(leaving)
        except BaseException as raised:
            failure = raised
        if failure is not None:
            if self._runtime.explicit is not None:
                self._runtime.explicit.end_replay_output()
            self._fail(failure)

    def _join_threads(self) -> None:
        """The main thread has ended; its threads may go on for long. So they are joined under a base frame, where images can
        be taken; such an image holds how the main thread has ended."""
        runtime = self._runtime
        if runtime.ended is None:
            runtime.ended = (self._code, self._traceback)
        self._code, self._traceback = runtime.ended
        try:
            run_base(stdlib.join_threads)
            for thread in started_threads():
                run_base(thread.join)
        except BaseException as failure:  # an interrupt: reported, and the end goes on
            _report_ignored(failure, threading)

    def _fail(self, failure: BaseException) -> None:
        self._code = _program_exit_code(failure, is_resumed=self._runtime.spec.get("resume") is not None)
        _without_launcher(failure)
        self._traceback = text_of(failure)
        code = _print_exception(failure)
        if code is not None:
            self._code = code

    def close(self) -> None:
        """The end of the library in this rank. Never raises: an exception on the way makes the rank's end a failure."""
        if self._is_closed or os.getpid() != self._runtime.pid:
            return
        self._is_closed = True
        exits.forget()  # they have run; an image of the finished rank must not hold them
        for timer in TIMERS:  # while the rank serves its peers, their signals would kill it or call handlers
            signal.setitimer(timer, 0)
        if not _flush():
            self._code = _EXIT_NOT_FLUSHED
        if self._code or self._traceback:
            self._print_failures_of_handlers()
        else:
            try:
                self._raise_failure_of_handler()
                self._runtime.settle(0)
                for number in _PROGRAM_SIGNALS:
                    signal.signal(number, signal.SIG_IGN)
                self._runtime.finish(0)
            except BaseException as failure:  # an interrupt, a failure of the transport, of a handler
                self._fail(failure)
                self._print_failures_of_handlers()
                _flush()
        self._runtime.close(self._code, self._traceback)

    def _raise_failure_of_handler(self) -> None:
        """Raise what a handler of active messages has raised, and no call of the program since."""
        resume_handlers(self._runtime)
        if self._runtime.engine is not None:
            with self._runtime.lock:
                self._runtime.engine.attend()

    def _print_failures_of_handlers(self) -> None:
        while True:
            try:
                return self._raise_failure_of_handler()
            except BaseException as failure:
                _print_exception(failure)


def _let_go(runtime: Runtime) -> None:
    """Forget what the program has given to the library. A function that the library holds holds the variables of its module;
    these would be let go when the interpreter has no codecs any more, so its open files would not be written."""
    runtime.hooks = Hooks()
    runtime.commits.forget()
    process_state().adopt(ProcessState().content())
    engine = runtime.engine
    if engine is not None:
        for shared in engine.shared.values():
            shared.attributes.clear()
            shared.errhandler = None
        engine.handlers = NoHandlers()


def hold_stops() -> None:
    """From now on, signals that stop the job wait until the program runs: nothing before may swallow or report one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def with_stops(run: Callable[[], object]) -> Callable[[], object]:
    """``run``, after the signals that have come since :func:`hold_stops`. (A stack from an image has a mask of its own.)"""

    def begin() -> object:
        _release()
        return run()

    return begin


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def resume_handlers(runtime: Runtime) -> None:
    """The program goes on after a restart, and with it the handlers of its active messages."""
    if runtime.engine is not None:
        with runtime.lock:
            runtime.engine.handlers.resume()


def _look_up_codecs() -> None:
    """Look up the codecs in use by each of their names, so that the interpreter's cache has the names.

    While the interpreter finalizes, it finds a codec only by a name that has been looked up before. The program's first
    process had looked the names up; a restarted process has not.
    """
    aliases: Any = getattr(sys.modules.get("encodings.aliases"), "aliases", {})
    for alias, name in list(aliases.items()):
        if f"encodings.{name}" in sys.modules or name in _USUAL_CODECS:
            for spelled in (alias, alias.replace("_", "-"), name, name.replace("_", "-")):
                codecs.lookup(spelled)


_USUAL_CODECS = ("utf_8", "latin_1", "ascii", "cp437")
"""Codecs that the standard library uses for files; zipfile uses cp437."""


def _flush() -> bool:
    """Flush the standard streams, as the interpreter does before it finalizes. ``False``: a stream could not be written."""
    done = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not _is_closed(stream):
                stream.flush()
        except BaseException:
            done = False
    for output in standard_output.outputs():
        done = output.wait_until_written() and done
    return done


def _is_closed(stream: Any) -> bool:
    try:
        return bool(stream.closed)
    except Exception:
        return False


def _system_exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF if -(1 << 63) <= leaving.code < 1 << 63 else 0xFF  # no C long: -1
    try:
        print(leaving.code, file=sys.stderr)
    except Exception:
        return 1  # there is no stderr, or it is closed: Python prints nothing, too
    return 1


def _print_exception(failure: BaseException) -> int | None:
    """Print an uncaught exception as the interpreter does; return the exit code if ``sys.excepthook`` raises SystemExit."""
    stdlib.set_last_exception(failure)
    try:
        sys.excepthook(type(failure), failure, failure.__traceback__)
    except SystemExit as leaving:
        return _system_exit_code(leaving)
    except BaseException as second:
        _without_launcher(second)
        try:
            print("Error in sys.excepthook:", file=sys.stderr)
            sys.__excepthook__(type(second), second, second.__traceback__)
            print("\nOriginal exception was:", file=sys.stderr)
            sys.__excepthook__(type(failure), failure, failure.__traceback__)
        except Exception:
            return None
    return None


def text_of(failure: BaseException) -> str:
    try:
        import traceback

        return "".join(traceback.format_exception(failure))
    except Exception:  # for example, the program has replaced linecache or traceback
        return f"{type(failure).__name__}: {failure}\n"


def _without_launcher(failure: BaseException) -> None:
    """Remove frames of this library from the traceback.

    These are the launcher's frames at its beginning, and frames between a signal handler and the code that it interrupted.
    Of an interrupt that came before the program has begun none is left.
    """
    entry = failure.__traceback__
    if _came_before_the_program(entry):
        failure.__traceback__ = None
        return
    while entry is not None and entry.tb_frame.f_globals.get("__name__", "").startswith("ckpt."):
        entry = entry.tb_next
    if entry is not None:
        failure.__traceback__ = entry
    while entry is not None:
        following = entry.tb_next
        while (
            following is not None
            and following.tb_frame.f_globals.get("__name__") == "ckpt.transport.driver.interrupts"
        ):
            following = following.tb_next
        entry.tb_next = following
        entry = following


def _came_before_the_program(entry: TracebackType | None) -> bool:
    while entry is not None:
        if entry.tb_frame.f_code is _release.__code__:
            return True
        entry = entry.tb_next
    return False


def without_finding(failure: BaseException) -> BaseException:
    """The exception; if the program could not be found or read, without the frames of this library and of `runpy` at the
    beginning of the traceback: they say nothing to the user."""
    from ckpt.image import prepare_program

    entry, found = failure.__traceback__, False
    while entry is not None:
        found |= entry.tb_frame.f_code is prepare_program.__code__
        if not entry.tb_frame.f_globals.get("__name__", "").startswith(("ckpt.", "runpy")):
            break
        entry = entry.tb_next
    if found and isinstance(failure, (OSError, SyntaxError, ImportError)):
        failure.__traceback__ = entry
    return failure


def has_user_text(failure: BaseException) -> bool:
    """Was the exception raised by this package with a text for the user? Such an exception is printed without traceback."""
    from ckpt.image import ImageError
    from ckpt.store import StoreError

    return isinstance(failure, (CkptError, ImageError, StoreError))


def _report_ignored(failure: BaseException, where: object) -> None:
    """Report an exception as the interpreter does that nobody can catch. Its own hook takes no arguments but the
    interpreter's."""
    hook: Any = sys.unraisablehook
    if hook is sys.__unraisablehook__:
        print(f"Exception ignored in: {where!r}", file=sys.stderr)
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        return
    traceback_of = failure.__traceback__
    hook(
        SimpleNamespace(
            exc_type=type(failure), exc_value=failure, exc_traceback=traceback_of, err_msg=None, object=where
        )
    )


def exit_code_of(failure: BaseException) -> int:
    """The exit code of a process that ends because of this exception, and whose program has not begun."""
    from ckpt.image import ImageError
    from ckpt.store import StoreError

    if isinstance(failure, KeyboardInterrupt):
        return _EXIT_INTERRUPTED
    if isinstance(failure, (IncompatibleImage, CannotCapture)):
        return _EXIT_INCOMPATIBLE
    if isinstance(failure, StoreError):
        return int(getattr(failure, "exit_code", _EXIT_UNRECOVERABLE))
    if isinstance(failure, (ImageError, CkptError)):
        return _EXIT_UNRECOVERABLE
    return 1


def _program_exit_code(failure: BaseException, *, is_resumed: bool) -> int:
    """Of a program that has raised this: 1 as in any Python, whichever package the exception is of. Not where it says that
    the job cannot go on, with this interpreter or (an explicit program that takes another way) from this checkpoint."""
    is_of_the_job = isinstance(failure, (IncompatibleImage, CannotCapture)) or (
        is_resumed and isinstance(failure, LoopError)
    )
    return 1 if isinstance(failure, CkptError) and not is_of_the_job else exit_code_of(failure)
