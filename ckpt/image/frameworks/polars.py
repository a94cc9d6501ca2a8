"""polars: frames, series, expressions, and plans that are not computed yet.

polars saves a frame with its threads, for which a forked child would wait for ever, where its columns are in several pieces.
So an image has the objects in Rust behind frames, column by column, each made one piece first, in the thread that saves it.
What refers to them is saved as it is, also while one of its methods runs.

A plan (``LazyFrame``) that begins with a frame in pieces still waits: :mod:`ckpt.capture.children` names that.
"""

from __future__ import annotations

import io
import itertools
from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Polars", "make_expression", "make_flags", "make_frame", "make_plan", "make_series"]

_RUST = "polars._plr"


class Polars(Library):
    def reducers(self) -> dict[type, Reducer]:
        rust = {
            "PyDataFrame": reduce_frame,
            "PySeries": reduce_series,
            "PyExpr": reduce_expression,
            "PyLazyFrame": reduce_plan,
            "PyOptFlags": reduce_flags,
        }
        raw = dict.fromkeys(("DataFrame", "Series", "Expr", "LazyFrame"), reduce_raw)
        return {**by_name(_RUST, rust), **by_name("polars", raw)}


def reduce_frame(saver: Any, frame: Any) -> Any:
    return make_frame, (frame.get_columns(), frame.height())


def reduce_series(saver: Any, series: Any) -> Any:
    lengths = list(series.chunk_lengths())
    if len(lengths) < 2:
        return make_series, (series.__getstate__(),)
    return make_series, (series.rechunk(in_place=False).__getstate__(), lengths)


def reduce_expression(saver: Any, expression: Any) -> Any:
    return make_expression, (expression.__getstate__(),)


def reduce_plan(saver: Any, plan: Any) -> Any:
    target = io.BytesIO()
    plan.serialize_binary(target)
    return make_plan, (target.getvalue(),)


def reduce_flags(saver: Any, flags: Any) -> Any:
    """What a query may be rearranged by. It can be read while one of polars' own functions runs."""
    values = {name: getattr(flags, name, None) for name in dir(flags)}
    return make_flags, ({name: value for name, value in values.items() if type(value) is bool},)


# ---------------------------------------------------------------------- called while loading


def make_series(state: bytes, lengths: list[int] | None = None) -> Any:
    """``lengths``: of the pieces that it had."""
    import polars  # type: ignore[import-not-found, unused-ignore]

    made = polars.Series()._s
    made.__setstate__(state)
    if lengths is None:
        return made
    whole, begins = polars.Series._from_pyseries(made), itertools.accumulate(lengths, initial=0)
    parts = [whole.slice(begin, length) for begin, length in zip(begins, lengths, strict=False)]
    return polars.concat(parts, rechunk=False)._s


def make_flags(values: dict[str, bool]) -> Any:
    import polars  # type: ignore[import-not-found, unused-ignore]

    made = polars.QueryOptFlags()._pyoptflags.copy()
    for name, value in values.items():
        if getattr(made, name) is not value:
            setattr(made, name, value)
    return made


def make_frame(columns: list[Any], height: int) -> Any:
    import polars

    if not columns and height:
        return polars.DataFrame({"_": [None] * height}).drop("_")._df
    return polars.DataFrame([polars.Series._from_pyseries(column) for column in columns])._df


def make_expression(state: bytes) -> Any:
    import polars  # type: ignore[import-not-found, unused-ignore]

    made = polars.lit(0)._pyexpr
    made.__setstate__(state)
    return made


def make_plan(state: bytes) -> Any:
    import polars

    return polars.LazyFrame.deserialize(io.BytesIO(state))._ldf
