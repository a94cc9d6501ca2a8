"""The program's additions to its checkpoints: functions called around them, and functions that save instances of a type.

Hooks
    ``on_checkpoint`` hooks are called in the program's main thread, wherever the program happens to be, once its stack has
    been captured and before anything else of the image is taken. The program pauses for them, so they should be quick. The
    hook that was registered last is called first. ``on_restart`` hooks are called in the new process when everything has
    been loaded, before the program goes on, in the order of registration. Each hook gets the epoch as its argument. A hook
    may send messages, but may not wait for messages. If an ``on_checkpoint`` hook raises, the round fails, and the report
    names the hook and the error. If an ``on_restart`` hook raises, the program fails. Hooks are part of the image.

Types
    ``register_type(cls, save, load)``: instances of exactly ``cls`` are saved as ``save(obj)`` and come back as
    ``load(state)``. ``save`` runs while the image is written, in a forked copy of the program unless the image is written
    synchronously: ``save`` may read everything and must change nothing outside the process. Objects keep their identity and
    stay shared. The state must not contain the object itself.

Packages
    ``keep_package(name)``: what the program has changed in the variables of this installed package is part of images, though
    the package has modules in C (:mod:`ckpt.image.modules.package_changes`).

Files
    ``keep_file(pattern)``: what is done to these files stays at a restart (:mod:`ckpt.undo.selection.kept`).

Child processes
    ``register_child(process, start)``: a child that runs beside the program is no part of images. After a restart, before
    the ``on_restart`` hooks, ``start()`` starts another one, and the object of the first one becomes that of the second.

Status
    ``on_status(function)``: what ``function()`` returns, a text of one line, is shown by ``ckpt status`` for this rank.

Not here: the ready-made registrations for well-known libraries (:mod:`ckpt.ready`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from os import PathLike, fsdecode
from pickle import PicklingError
from sys import modules
from typing import Any, TypeVar

from ckpt.errors import HookFailed, RegistrationError
from ckpt.image.interface.moved import moved
from ckpt.undo.selection.kept import keep

__all__ = ["Hook", "Hooks", "name_of"]

Hook = Callable[[int], object]
F = TypeVar("F", bound=Hook)
S = TypeVar("S", bound=Callable[[], str])
_STATUS_LONGEST = 500


class Hooks:
    """The hooks and the registered types of one rank. Each image holds this object."""

    def __init__(self) -> None:
        self.before: list[Hook] = []
        self.after: list[Hook] = []
        self.types: list[tuple[type, Callable[[Any], object], Callable[[Any], object]]] = []
        self.packages: list[str] = []
        self.files: list[str] = []
        self.children: list[tuple[Any, Callable[[], Any]]] = []
        self.status: list[Callable[[], str]] = []

    def on_checkpoint(self, hook: F) -> F:
        self.before.append(_checked(hook))
        return hook

    def on_restart(self, hook: F) -> F:
        self.after.append(_checked(hook))
        return hook

    def on_status(self, function: S) -> S:
        """Raises :class:`RegistrationError` for what is no function."""
        if not callable(function):
            raise RegistrationError(f"on_status takes a function, not {function!r}")
        self.status.append(function)
        return function

    def said(self) -> dict[str, list[str]]:
        """What the functions of ``on_status`` say. One that raises is named: it shall not keep the rank from answering."""
        texts = []
        for function in tuple(self.status):
            try:
                text = str(function())[:_STATUS_LONGEST]
            except Exception as failure:
                text = f"{name_of(function)} raised {type(failure).__name__}: {failure}"[:_STATUS_LONGEST]
            texts += [text] if text else []
        return {"says": texts}

    def remove(self, hook: Callable[..., object]) -> None:
        """Remove ``hook`` from all lists. Raises :class:`RegistrationError` if ``hook`` is in none."""
        known = len(self.before) + len(self.after) + len(self.status)
        self.status = [each for each in self.status if each is not hook and each != hook]
        self.before = [
            registered for registered in self.before if registered is not hook and registered != hook
        ]
        self.after = [
            registered for registered in self.after if registered is not hook and registered != hook
        ]
        if len(self.before) + len(self.after) + len(self.status) == known:
            raise RegistrationError(f"{name_of(hook)} is registered as no hook")

    def register_type(self, cls: type, save: Callable[[Any], object], load: Callable[[Any], object]) -> None:
        """Register ``save`` and ``load`` for ``cls``, as in the header of this module; an earlier registration is replaced.

        Raises :class:`RegistrationError` if ``cls`` is no class, or if ``save`` or ``load`` cannot be called.
        """
        if not isinstance(cls, type):
            raise RegistrationError(f"register_type takes a class, not {cls!r}")
        if not callable(save) or not callable(load):
            raise RegistrationError("register_type takes two functions, save(obj) and load(state)")
        self.types = [entry for entry in self.types if entry[0] is not cls] + [(cls, save, load)]
        self._use(cls, save, load)

    def keep_package(self, name: str) -> None:
        """Raises :class:`RegistrationError` for what is no top-level name of a package whose changes can be kept, or of none
        that can be imported."""
        from importlib.util import find_spec

        from ckpt.image import keep_package

        try:
            if isinstance(name, str) and name.isidentifier() and name not in modules and not find_spec(name):
                raise ValueError(f"there is no package {name!r} that could be imported")
            keep_package(name)
        except ValueError as failure:
            raise RegistrationError(str(failure)) from None
        if name not in self.packages:
            self.packages.append(name)

    def keep_file(self, pattern: str | PathLike[str]) -> list[str]:
        """Changes of these files stay. Returns the absolute patterns. Raises :class:`RegistrationError` for what is none."""
        try:
            added = keep(fsdecode(pattern))
        except (TypeError, ValueError, OSError) as failure:
            raise RegistrationError(f"keep_file takes a path or a pattern for paths: {failure}") from None
        self.files += [text for text in added if text not in self.files]
        return added

    def register_child(self, process: Any, start: Callable[[], Any]) -> None:
        """Raises :class:`RegistrationError` for what is no ``subprocess.Popen`` or no function."""
        from subprocess import Popen

        from ckpt.image.stdlib.registered_children import expect_child

        if not isinstance(process, Popen) or not callable(start):
            raise RegistrationError(
                "register_child takes a subprocess.Popen and a function that starts it again"
            )
        self._forget_child(process)
        self.children.append((process, start))
        expect_child(process)

    def _forget_child(self, process: Any) -> None:
        """Also those that have ended."""
        self.children = [
            each for each in self.children if each[0] is not process and each[0].returncode is None
        ]

    def use_again(self) -> None:
        """Register types, packages and files again, in the process that has loaded this object from an image."""
        from ckpt.image import keep_package

        for entry in self.types:
            self._use(*entry)
        for name in self.packages:
            keep_package(name)
        self.files = [text for pattern in self.files for text in keep(moved(pattern))]

    def reducers(self) -> dict[type, Callable[[Any], Any]]:
        """The reducers by type. A reducer takes an object and returns a value as ``__reduce__`` does."""
        return {cls: _reducer(save, load) for cls, save, load in self.types}

    @staticmethod
    def _use(cls: type, save: Callable[[Any], object], load: Callable[[Any], object]) -> None:
        from ckpt.image import register_reducer

        reduce = _reducer(save, load)
        register_reducer(cls, lambda pickler, obj: reduce(obj))

    # ------------------------------------------------------------------ calling

    def call_before(self, epoch: int) -> None:
        """Call the ``on_checkpoint`` hooks. Raises :class:`HookFailed` for the first that fails; the rest are not called."""
        for hook in reversed(self.before):
            try:
                hook(epoch)
            except Exception as failure:
                raise HookFailed(
                    f"the on_checkpoint hook {name_of(hook)} raised {type(failure).__name__}: {failure}"
                ) from failure

    @property
    def are_due(self) -> bool:
        """Is there something to call after a restart?"""
        return bool(self.after or self.children)

    def call_after(self, epoch: int) -> None:
        """Start the registered children, and call the ``on_restart`` hooks. An exception of these functions passes through;
        a note (PEP 678) in it names the function."""
        for process, start in self.children:
            if process.returncode is None:
                from ckpt.image.stdlib.registered_children import take_place

                with _named(start, "function that starts a child", epoch):
                    take_place(process, start())
        for hook in list(self.after):
            with _named(hook, "on_restart hook", epoch):
                hook(epoch)


@contextlib.contextmanager
def _named(function: Callable[..., Any], what: str, epoch: int) -> Iterator[None]:
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"in the {what} {name_of(function)}, after the restart from checkpoint {epoch}")
        raise


def _reducer(save: Callable[[Any], object], load: Callable[[Any], object]) -> Callable[[Any], Any]:
    def reduce(obj: Any) -> Any:
        try:
            state = save(obj)
        except Exception as failure:
            raise PicklingError(f"{name_of(save)} raised {type(failure).__name__}: {failure}") from failure
        return load_registered, (load, state)

    return reduce


def load_registered(load: Callable[[Any], object], state: object) -> object:
    """The function that the pickle of a registered type's instance calls."""
    return load(state)


def name_of(hook: Any) -> str:
    """``name (file:line)`` of a function, or its ``repr``."""
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    if code is None:
        return repr(hook)
    return f"{hook.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def _checked(hook: F) -> F:
    if not callable(hook):
        raise RegistrationError(f"a hook is a function of the epoch, not {hook!r}")
    return hook
