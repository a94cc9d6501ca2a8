"""xgboost: models (``Booster``), also between two steps of a training, and training data (``DMatrix``).

A model is pickled by xgboost itself, with all of its settings. But xgboost works with several threads of OpenMP even
then, and in a forked child it would wait for ever for threads that exist in the parent only. So the model is told to
use one thread meanwhile.

The state of xgboost's generator of random numbers cannot be read. A model that draws random numbers in its training
(``subsample``, ``colsample_…``, ``dart``) is refused by name as long as there is training data to go on with.

A ``DMatrix`` is saved in xgboost's own binary format, with labels, weights and names, through a file in memory. A
quantized one (``QuantileDMatrix``) or one in external memory has no such format and is refused by name.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.rebuild import fill_attributes

__all__ = ["XGBoost", "make_data", "reduce_data", "reduce_model"]


class XGBoost(Library):
    def reducers(self) -> dict[type, Reducer]:
        return {
            **by_name("xgboost.core", {"Booster": reduce_model, "DMatrix": reduce_data}),
            **by_name(
                "xgboost.core",
                dict.fromkeys(("QuantileDMatrix", "ExtMemQuantileDMatrix", "_ProxyDMatrix"), refuse_data),
            ),
        }


def reduce_model(pickler: Any, model: Any) -> Any:
    config = json.loads(model.save_config())["learner"]
    if _is_random(config) and _is_there_data():
        raise ObjectRefused(
            model,
            "a model of xgboost, perhaps in the middle of a training that draws random numbers (subsample, "
            "colsample, dart): the state of xgboost's generator cannot be read; drop the DMatrix when the training "
            "is over, or train without these settings",
        )
    threads = config["generic_param"]["nthread"]
    model.set_param({"nthread": 1})
    try:
        attributes = model.__getstate__()
    finally:
        model.set_param({"nthread": threads})
    return make_model, (type(model),), (attributes, threads), None, None, fill_model


def _is_random(config: Any) -> bool:
    """Does a step of the training draw random numbers, by this part of the configuration?"""
    if isinstance(config, list):
        return any(map(_is_random, config))
    if not isinstance(config, dict):
        return False
    for name, value in config.items():
        if name == "subsample" or name.startswith("colsample_"):
            if float(value) < 1:
                return True
        elif (
            (name == "rate_drop" and float(value) > 0)
            or (name, value) == ("one_drop", "1")
            or (name == "feature_selector" and value in ("1", "2", "random", "shuffle"))
            or _is_random(value)
        ):
            return True
    return False


def _is_there_data() -> bool:
    data = sys.modules["xgboost"].DMatrix
    return any(issubclass(type(obj), data) for obj in gc.get_objects())


def reduce_data(pickler: Any, data: Any) -> Any:
    content = _in_memory(lambda path: data.save_binary(path, silent=True))
    attributes = {name: value for name, value in data.__dict__.items() if name != "handle"}
    return make_data, (content,), attributes, None, None, fill_attributes


def refuse_data(pickler: Any, data: Any) -> Any:
    raise ObjectRefused(
        data,
        f"an xgboost.{type(data).__name__} cannot be written down by xgboost; use a DMatrix, or drop it before a "
        "checkpoint (an on_checkpoint hook) and make it again in on_restart",
    )


def _in_memory(write: Any) -> bytes:
    """What ``write(path)`` writes into a file."""
    fd = os.memfd_create("ckpt", os.MFD_CLOEXEC)
    try:
        write(f"/proc/self/fd/{fd}")
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


# ---------------------------------------------------------------------- called while loading


def make_model(cls: Any) -> Any:
    return cls.__new__(cls)


def fill_model(model: Any, state: tuple[Any, str]) -> None:
    attributes, threads = state
    model.__setstate__(attributes)
    model.set_param({"nthread": threads})


def make_data(content: bytes) -> Any:
    import xgboost  # type: ignore[import-not-found, unused-ignore]

    with tempfile.NamedTemporaryFile() as file:  # xgboost needs a path that exists
        file.write(content)
        file.flush()
        return xgboost.DMatrix(f"{file.name}", silent=True)
