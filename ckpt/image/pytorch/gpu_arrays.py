"""Arrays on GPUs of other libraries than torch: cupy, numba.cuda, jax. They are named.

Their memory cannot be read in a forked child, where any call of CUDA may fail or never end; so each array is refused before
its own way of being pickled is tried. Arrays of jax on the CPU are saved in jax's own way, when they have been computed:
what still is being computed is so by threads that the child does not have.
"""

from __future__ import annotations

from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer

__all__ = ["Cupy", "NumbaCuda", "load_jax", "reduce_jax"]

_REMEDY = "no image can hold it; have it as a numpy array meanwhile ({how}, in ckpt.on_checkpoint), or as a tensor of torch"


def _refused(obj: Any, whose: str, how: str) -> ObjectRefused:
    return ObjectRefused(obj, f"an array of {whose} is in the memory of a GPU: {_REMEDY.format(how=how)}")


class Cupy(Library):
    """cupy"""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return _reduce_cupy if issubclass(cls, getattr(self.module, "ndarray", ())) else None


def _reduce_cupy(saver: Any, array: Any) -> Any:
    raise _refused(array, "cupy", "x.get()")


class NumbaCuda(Library):
    """numba.cuda.cudadrv.devicearray"""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return _reduce_numba if issubclass(cls, getattr(self.module, "DeviceNDArrayBase", ())) else None


def _reduce_numba(saver: Any, array: Any) -> Any:
    raise _refused(array, "numba.cuda", "x.copy_to_host()")


def reduce_jax(saver: Any, array: Any) -> Any:
    if not array.is_deleted() and any(each.platform != "cpu" for each in array.devices()):
        raise _refused(array, "jax", "numpy.asarray(x)")
    if not array.is_deleted() and not array.is_ready():
        raise ObjectRefused(
            array,
            "an array of jax that is still being computed: it was begun after the program had been stopped",
        )
    return load_jax, array.__reduce__()[:2]


def load_jax(make: Any, arguments: tuple[Any, ...]) -> Any:
    """The array with all of its bits: the program's own setting (``jax_enable_x64``) is put back later."""
    from jax._src.config import enable_x64  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with enable_x64(True):
        return make(*arguments)
