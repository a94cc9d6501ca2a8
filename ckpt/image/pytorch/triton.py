"""triton: functions that are compiled for GPUs, with nothing of what has been compiled.

A compiled kernel has handles of CUDA, which are mere numbers and mean nothing in another process. So a function is saved
without its kernels, and compiles them when it is called the next time (triton keeps them on the disk); a kernel that the
program holds loads itself again.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers import rebuild

__all__ = ["Triton"]

_HANDLES = ("module", "function", "_run")
_UNKNOWN = "a function of triton, of a version that keeps kernels in a way not known here; delete it before a checkpoint"


class Triton(Library):
    """triton.runtime.jit"""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        kernel = getattr(sys.modules.get("triton.compiler.compiler"), "CompiledKernel", None)
        for base, reducer in (
            (getattr(self.module, "JITFunction", None), _reduce_function),
            (kernel, _reduce_kernel),
        ):
            if isinstance(base, type) and issubclass(cls, base):
                return reducer
        return None


def _reduce_function(saver: Any, function: Any) -> Any:
    state = dict(vars(function))
    if state.pop("device_caches", None) is None:
        raise ObjectRefused(function, _UNKNOWN)
    return rebuild.make_instance, (type(function),), state, None, None, fill_function


def _reduce_kernel(saver: Any, kernel: Any) -> Any:
    state = dict(vars(kernel))
    if any(name not in state for name in _HANDLES):
        raise ObjectRefused(kernel, _UNKNOWN)
    state.update(dict.fromkeys(_HANDLES))
    return rebuild.make_instance, (type(kernel),), state, None, None, fill_kernel


# ---------------------------------------------------------------------- called while loading


def fill_function(function: Any, state: dict[str, Any]) -> None:
    vars(function).update(state)  # its own __setattr__ forbids some names
    vars(function)["device_caches"] = defaultdict(function.create_binder)


def fill_kernel(kernel: Any, state: dict[str, Any]) -> None:
    vars(kernel).update(state)
