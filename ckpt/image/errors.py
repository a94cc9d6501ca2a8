"""Errors of the process image, as one tree.

    ImageError
    ├── Unsupported      this interpreter cannot be imaged at all (version, implementation, build)
    ├── Refused          the program cannot be imaged *here*: state hides in C; try again at a later check
    ├── Unpicklable      one object cannot be saved; named by its path from a frame or a module
    ├── ObjectRefused    the same, raised by the reducer of that object, which does not know the path
    └── RestoreError     an image does not fit the process that tries to resume it

`Refused` is part of normal operation: the caller tries again at the next check, and reports the longest wait.
`Unpicklable` makes the checkpoint round fail. Neither harms the running program.
"""

from __future__ import annotations


def without_frames(failure: Exception, outer: BaseException | None) -> Exception:
    """``failure``, without the frames of the functions that it has left. They hold objects of the program, and the exception
    itself; so all of that would stay alive until the garbage collector runs.

    ``outer``: the exception that is handled where ``failure`` is caught, perhaps the program's; None: there is none. It and
    what has led to it are left as they are.
    """
    pending: list[BaseException | None] = [failure]
    seen = {id(outer)}
    while pending:
        found = pending.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            found.__traceback__ = None
            pending += [found.__cause__, found.__context__]
    return failure


class ImageError(Exception):
    """Base class of the errors that this package raises on purpose."""


class Unsupported(ImageError):
    """The frames of this interpreter cannot be captured; the text gives the reason."""


class Refused(ImageError):
    """The stack cannot be captured at this moment.

    `reason`: the C function with state that Python code cannot read ("sum() is running a generator"). `where`: "file:line
    function" of the frame that has called into C. `is_transient`: the stack could be captured, but it holds an object that
    no image can hold, and that is there only for a moment (:mod:`ckpt.image.interface.transient`), mostly for less than
    `limit_ns`; `hooked_limit_ns`: the same where the program has hooks that may end it. `obstacle`: address and
    instruction of that frame: a new attempt is refused too until the program has left this call; (0, 0): not known.
    """

    is_transient = False
    limit_ns = hooked_limit_ns = 2_000_000_000
    obstacle = (0, 0)

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason, where)
        self.reason = reason
        self.where = where

    def __str__(self) -> str:
        return f"{self.reason} at {self.where}" if self.where else self.reason


class Unpicklable(ImageError):
    """An object of the program cannot be saved.

    `path`: path of the object within this rank ("frame 2 (solve) local 'log' .stream"); `reason`: the cause in words.
    `held_type`: the address of the object's type, if a running function holds the object itself; 0: none does.
    """

    held_type = 0

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class ObjectRefused(ImageError):
    """A reducer refuses an object because of what it is, whichever of its parts could not be saved either.

    `obj`: the object; `reason`: the cause in words, with a remedy behind a semicolon.
    """

    def __init__(self, obj: object, reason: str) -> None:
        super().__init__(obj, reason)
        self.obj = obj
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class RestoreError(ImageError):
    """The image cannot be restored in this process; the program must not go on from it."""
