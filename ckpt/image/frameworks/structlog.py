"""structlog: its configuration, and loggers that write to files of the program.

These loggers let themselves be pickled for the standard streams only, since another process would not have the file. An
image has it. The configuration holds the factory with the file, and so is not plain: without a class here the package
would start anew, and ``structlog.get_logger()`` would write to the standard output.
"""

from __future__ import annotations

from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Structlog"]


class Structlog(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name(
            "structlog._output", dict.fromkeys(("PrintLogger", "WriteLogger", "BytesLogger"), reduce_raw)
        )
