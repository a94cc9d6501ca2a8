"""The names to which an image refers are looked up before its objects are loaded, so that one that is gone is known early.

A restart puts files back in the middle of a load, where the first object needs a file. The user may have changed a package
since, without a new version. So an image lists the modules, and the functions, classes and variables of by-reference
modules, to which its objects refer (:class:`ckpt.image.reducers.saver.NamesUsed`).

Not here: how a name is found while objects are loaded (:func:`ckpt.image.modules.references.resolve`, and pickle).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from ckpt.image.errors import ImageError
from ckpt.image.modules.references import resolve

__all__ = ["look_up"]


def look_up(
    saved: Any,
    find: Callable[[str, str], object],
    refused: Callable[[tuple[Any, ...], Exception], Exception],
) -> None:
    """Look up all names of an image; what cannot be imported, or is not there, is refused.

    ``saved``: a buffer with what :meth:`ckpt.image.reducers.saver.NamesUsed.as_bytes` has returned. ``find``: as
    :meth:`pickle.Unpickler.find_class`. Raises what ``refused`` makes of the label of the pair and of the failure.
    """
    for (kind, *parts), label in pickle.loads(saved):
        try:
            if kind == "definition":
                find(*parts)
            else:
                resolve((kind, *parts), {})
        except (ImportError, AttributeError, ImageError) as failure:
            raise refused(label, failure) from failure
