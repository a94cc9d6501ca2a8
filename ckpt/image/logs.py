"""The configuration of :mod:`logging`, which lives in a library module and not in any variable of the
program.

Loggers are references (they pickle by name); their handlers, filters, levels and flags are saved here and put
back, for every logger that differs from a new one. Handlers are objects of the image like any others: a
stream handler of standard error or a file handler goes on where it was.
"""

from __future__ import annotations

import sys
import types
from typing import Any

__all__ = ["note_logging", "put_back"]


def note_logging() -> dict[str, Any] | None:
    """``None`` while the program has not imported :mod:`logging`."""
    logging = sys.modules.get("logging")
    if not isinstance(logging, types.ModuleType):
        return None
    known = logging.root.manager.loggerDict
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
        "names": dict(logging._levelToName),
        "levels": dict(logging._nameToLevel),
        "raise_exceptions": logging.raiseExceptions,
    }


def _is_configured(logger: Any) -> bool:
    return bool(logger.level or logger.handlers or logger.filters or logger.disabled or not logger.propagate)


def put_back(saved: dict[str, Any] | None) -> None:
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
            if handler.name:
                logging._handlers[handler.name] = handler  # type: ignore[attr-defined]
            logging._addHandlerRef(handler)  # type: ignore[attr-defined]  # for the flush at the program's end
    logging.root.manager.disable = saved["disable"]
    logging._levelToName.update(saved["names"])
    logging._nameToLevel.update(saved["levels"])
    logging.raiseExceptions = saved["raise_exceptions"]
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]
