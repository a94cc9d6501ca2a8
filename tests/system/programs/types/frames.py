"""pandas: frames, views, categories, indexes, groups, options."""

import io

import numpy as np
import pandas as pd

from cases import case, main


def frame():
    return pd.DataFrame(
        {
            "a": [1, 2, 3, 4],
            "b": [1.5, np.nan, 2.5, 3.5],
            "c": list("xyxz"),
            "d": pd.date_range("2020", periods=4, tz="UTC"),
        }
    )


@case
def frames_and_their_columns():
    df = frame()
    df["cat"] = pd.Categorical(["l", "m", "l", "h"], categories=["l", "m", "h"], ordered=True)
    df["int"] = pd.array([1, None, 3, 4], dtype="Int64")
    df["text"] = pd.array(["p", None, "q", "r"], dtype="string")
    df["when"] = pd.to_timedelta([1, 2, 3, 4], unit="h")
    df["per"] = pd.period_range("2020-01", periods=4, freq="M")
    df["iv"] = pd.interval_range(0, 4)
    df["sparse"] = pd.arrays.SparseArray([0, 0, 1, 2])
    df["obj"] = [[1], {"k": 2}, None, "s"]
    df.attrs["note"] = "attrs"
    column, n = df["a"], 0
    while True:
        n += 1
        df.loc[n % 4, "a"] += 10
        df["new"] = n
        yield (
            df.to_csv(),
            column.tolist(),
            df.dtypes.astype(str).to_dict(),
            df.attrs,
            df["cat"].cat.ordered,
            df["d"].dt.tz,
            df["c"] is df["c"],
            df.memory_usage(deep=False).sum() > 0,
        )


@case
def views_of_one_array():
    memory = np.arange(12.0).reshape(4, 3)
    df = pd.DataFrame(memory, columns=list("abc"), copy=False)
    series = pd.Series(memory[:, 1], copy=False)
    while True:
        memory[0, 1] += 1
        yield (
            df["b"].tolist(),
            series.tolist(),
            np.shares_memory(df.to_numpy(), memory),
            np.shares_memory(series.to_numpy(), memory),
        )


@case
def indexes_and_their_caches():
    index = pd.Index(["x", "y", "z"])
    index.get_loc("y")
    multi = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["l", "n"])
    kept = [
        index,
        multi,
        pd.RangeIndex(5),
        pd.DatetimeIndex(["2020-01-01"], freq="D"),
        pd.CategoricalIndex(list("aab")),
        pd.Index([1, 2, 2]),
        pd.IntervalIndex.from_breaks([0, 1, 2]),
    ]
    df = pd.DataFrame({"v": range(4)}, index=multi)
    other = pd.Series([1, 2, 3], index=index)
    while True:
        other["y"] += 1
        yield (
            [list(map(str, i)) for i in kept],
            index.get_loc("z"),
            df.loc[("b", 1), "v"],
            other["y"],
            other.index is index,
            multi.names,
            kept[5].is_unique,
            kept[3].freq,
        )


@case
def groups_windows_and_iteration():
    df = frame()
    groups, window, rows = df.groupby("c"), df["a"].rolling(2), df[["a", "b"]].itertuples()
    chunks = pd.read_csv(io.StringIO("a,b\n1,2\n3,4\n5,6\n7,8\n9,0\n"))
    series = iter(df["a"])
    each = iter(groups)
    while True:
        yield (
            groups["a"].sum().to_dict(),
            window.sum().tolist(),
            tuple(next(rows))[:3],
            chunks["b"].sum(),
            next(series),
            next(each, ("end",))[0],
        )


@case
def options_and_scalars():
    pd.set_option("display.max_rows", 7)
    kept = [
        pd.Timestamp("2020-01-01", tz="UTC"),
        pd.Timedelta(1, "D"),
        pd.NaT,
        pd.NA,
        pd.Interval(0, 1),
        pd.Period("2020-01"),
        pd.offsets.MonthEnd(2),
        pd.CategoricalDtype(["a"]),
    ]
    while True:
        kept[0] += kept[1]
        yield pd.get_option("display.max_rows"), [repr(k) for k in kept], kept[2] is pd.NaT, kept[3] is pd.NA


if __name__ == "__main__":
    main()
