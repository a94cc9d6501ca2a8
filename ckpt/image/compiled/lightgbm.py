"""lightgbm: models (``Booster``) and training data (``Dataset``).

- A trained model is pickled by lightgbm itself. A model in training holds its data, sums and random numbers in C, and
  lightgbm's own pickling leaves these out: training could not go on. It is refused by name.
- Training data that lightgbm has already sorted into bins is made anew from the raw data at a restart; without raw
  data (``free_raw_data``, the default) it is refused by name.
- lightgbm works with several threads of OpenMP, which do not exist in a forked child: the child would wait for ever.
  So there it is limited to one thread.
"""

from __future__ import annotations

import sys
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.rebuild import fill_attributes

__all__ = ["LightGBM", "make_empty", "reduce_data", "reduce_model"]


class LightGBM(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("lightgbm.basic", {"Booster": reduce_model, "Dataset": reduce_data})

    def before_saving(self, *, is_disposable: bool) -> None:
        if is_disposable:
            set_threads = getattr(
                getattr(sys.modules.get("lightgbm.basic"), "_LIB", None), "LGBM_SetMaxThreads", None
            )
            if set_threads is not None:  # since 4.2
                set_threads(1)


def reduce_model(pickler: Any, model: Any) -> Any:
    if getattr(model, "train_set", None) is not None:
        raise ObjectRefused(
            model,
            "a model of lightgbm in training, which keeps its data and its sums in C; train between two checkpoints, or in "
            "pieces (lightgbm.train with init_model), or call free_dataset() when it is trained",
        )
    return make_empty, (type(model),), model.__getstate__(), None, None, fill_model


def reduce_data(pickler: Any, data: Any) -> Any:
    attributes = {name: value for name, value in data.__dict__.items() if name != "_handle"}
    if data._handle is not None and (data.data is None or data.used_indices is not None):
        raise ObjectRefused(
            data,
            "a lightgbm.Dataset without its raw data, which is in C; pass free_raw_data=False, or drop it before a "
            "checkpoint (an on_checkpoint hook) and make it again in on_restart",
        )
    if data._handle is not None:
        pickler.defer(construct, data)
    return make_empty, (type(data),), {**attributes, "_handle": None}, None, None, fill_attributes


# ---------------------------------------------------------------------- called while loading


def make_empty(cls: Any) -> Any:
    made = cls.__new__(cls)
    made._handle = None  # its __del__ reads it
    return made


def fill_model(model: Any, state: dict[str, Any]) -> None:
    model.__setstate__(state)


def construct(data: Any) -> None:
    data.construct()
