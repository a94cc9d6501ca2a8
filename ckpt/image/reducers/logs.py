"""The configuration of :mod:`logging`, which is in a module of the standard library and in no variable of the program.

Loggers are saved by name, except those of classes of the program, and those that ``logging`` does not know by their name
(``logging.Logger("a")``): these belong to whoever has made them. This module saves and restores the handlers, filters,
levels and flags of the root logger and of each logger that differs from a new one, and the time at which ``logging`` was
imported, from which ``relativeCreated`` counts. Handlers are saved like other objects: a
stream handler of standard error, or a file handler, goes on at its position.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from ckpt.compat import stdlib
from ckpt.image.reducers.installed_classes import reducer_by_hooks

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Reducer, Saver

__all__ = ["note_logging", "put_back", "reduce_manager", "reducer_of_loggers"]


def note_logging() -> dict[str, Any] | None:
    """The configuration for an image; ``None`` if the program has not imported :mod:`logging`."""
    logging = sys.modules.get("logging")
    if not isinstance(logging, types.ModuleType):
        return None
    known = logging.root.manager.loggerDict
    names, levels = stdlib.level_names(logging)
    loggers = {
        name: logger
        for name, logger in {"": logging.root, **known}.items()
        if isinstance(logger, logging.Logger) and (not name or _is_configured(logger))
    }
    return {
        "loggers": {
            name: (
                logger.level,
                list(logger.handlers),
                list(logger.filters),
                logger.propagate,
                logger.disabled,
            )
            for name, logger in loggers.items()
        },
        "disable": logging.root.manager.disable,
        "names": dict(names),
        "levels": dict(levels),
        "raise_exceptions": logging.raiseExceptions,
        "began": getattr(logging, stdlib.LOGGING_BEGAN),
    }


def _is_configured(logger: Any) -> bool:
    return bool(logger.level or logger.handlers or logger.filters or logger.disabled or not logger.propagate)


def reducer_of_loggers(cls: type, *, is_user: bool) -> Reducer:
    """The reducer for loggers of this class. ``is_user``: it is one of the program."""
    if is_user:
        return reduce_logger
    by_name = reducer_by_hooks(cls)

    def reduce(pickler: Saver, obj: Any) -> Any:
        return by_name(pickler, obj) if _is_known(obj) else reduce_logger(pickler, obj)

    return reduce


def _is_known(logger: Any) -> bool:
    """Is this what ``logging`` has under the logger's name?"""
    root = sys.modules["logging"].root
    return logger is root or root.manager.loggerDict.get(logger.name) is logger


def reduce_logger(pickler: Saver, obj: Any) -> Any:
    """A logger with its attributes; at load it is registered under its name again, if it was.

    One that was not has whatever parent it was given, as a rule none: its messages go to its own handlers only.
    """
    is_known = _is_known(obj)
    made_at_load = {stdlib.LOGGER_CACHE} | ({"manager", "parent"} if is_known else set())
    attributes = {key: value for key, value in obj.__dict__.items() if key not in made_at_load}
    fill = fill_logger if is_known else fill_unknown_logger
    return make_logger, (type(obj), obj.name if is_known else None), attributes, None, None, fill


def make_logger(cls: type, name: str | None) -> Any:
    import logging

    made: Any = object.__new__(cls)
    made.__dict__.update(
        name=name, manager=logging.root.manager, parent=logging.root, **{stdlib.LOGGER_CACHE: {}}
    )
    if name is not None:
        logging.root.manager.loggerDict[name] = made
    return made


def fill_logger(logger: Any, attributes: dict[str, Any]) -> None:
    logger.__dict__.update(attributes)


def fill_unknown_logger(logger: Any, attributes: dict[str, Any]) -> None:
    """The handlers of other loggers are registered by :func:`put_back`."""
    logger.__dict__.update(attributes)
    for handler in attributes.get("handlers", ()):
        stdlib.register_handler(sys.modules["logging"], handler)


def find_parents(manager: Any) -> None:
    """Set the parent of each logger: the nearest logger above it by name."""
    logging = sys.modules["logging"]
    for name, logger in manager.loggerDict.items():
        if not isinstance(logger, logging.Logger):
            continue
        above, found = name.rpartition(".")[0], None
        while above and not isinstance(found, logging.Logger):
            found = manager.loggerDict.get(above)
            above = above.rpartition(".")[0]
        logger.parent = found if isinstance(found, logging.Logger) else manager.root


def reduce_manager(pickler: Saver, obj: Any) -> Any:
    return the_manager, ()


def the_manager() -> Any:
    import logging

    return logging.root.manager


def put_back(saved: dict[str, Any] | None) -> None:
    """Restore the configuration of :func:`note_logging`."""
    if saved is None:
        return
    import logging

    for name, (level, handlers, filters, propagate, disabled) in saved["loggers"].items():
        logger = logging.getLogger(name or None)
        logger.level = level
        logger.handlers[:] = handlers
        logger.filters[:] = filters
        logger.propagate = propagate
        logger.disabled = disabled
        for handler in handlers:
            stdlib.register_handler(logging, handler)
    find_parents(logging.root.manager)
    logging.root.manager.disable = saved["disable"]
    names, levels = stdlib.level_names(logging)
    names.update(saved["names"])
    levels.update(saved["levels"])
    logging.raiseExceptions = saved["raise_exceptions"]
    if "began" in saved:  # not in older images
        setattr(logging, stdlib.LOGGING_BEGAN, saved["began"])
    stdlib.forget_enabled_levels(logging)
