"""numpy: arrays, views that share memory, dtypes, generators, settings."""

import collections
import math
import sys

import numpy as np

from cases import case, main


@case
def views_share_memory():
    base = np.arange(24.0).reshape(4, 6)
    views = [
        base[1:3],
        base[:, 2],
        base.T,
        base[::-1, ::2],
        base.ravel(),
        base[2, 3:4],
        base.reshape(2, 12),
        base.view("i8")[0],
    ]
    views.append(views[0][:, 1])
    views.append(np.broadcast_to(base[0], (3, 6)))
    views.append(np.lib.stride_tricks.sliding_window_view(base[0], 3))
    alias = base
    while True:
        base[1, 1] += 1
        views[0][0, 2] += 100
        views[3][0, 0] -= 1
        yield (
            base[1].tolist(),
            [float(v.sum()) for v in views],
            all(np.shares_memory(v, base) for v in views),
            alias is base,
            [v.flags.writeable for v in views],
            views[8].base is not None,
        )


@case
def large_arrays_out_of_band():
    big = np.arange(30_000.0)
    part, fortran = big[100:20_000:7], np.asfortranarray(np.arange(20_000.0).reshape(100, 200))
    column, locked = fortran[:, 3], np.arange(20_000)
    locked.flags.writeable = False
    while True:
        big[107] += 1
        fortran[0, 3] += 1
        try:
            locked[0] = 1
        except ValueError as error:
            yield (
                part[1],
                column[0],
                fortran.flags.f_contiguous,
                str(error),
                np.shares_memory(big, part),
                float(big.sum()),
            )


@case
def dtypes_of_all_kinds():
    record = np.zeros(3, dtype=[("a", "i4"), ("b", "f8", (2,)), ("c", "U5")])
    field = record["b"]
    made = [
        np.array(5.0),
        np.array([], dtype="i2"),
        np.zeros((0, 3)),
        np.array(["a", "bc"]),
        np.array([b"x"]),
        np.array([1 + 2j]),
        np.array([True, False]),
        np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        np.array([1, 2], dtype="m8[s]"),
        np.arange(3, dtype=">i4"),
        np.array([1.5], dtype="f2"),
        np.array([1.5], dtype=np.longdouble),
        np.dtype([("x", "i4")], align=True),
        np.float64(2.5),
        np.int8(3),
        np.datetime64("2020-01-01"),
        np.bool_(True),
        np.str_("s"),
        np.void(b"ab"),
    ]
    shaped = np.array(7)
    scalar_view = shaped[...]
    while True:
        record["a"] += 1
        field[0, 1] += 0.5
        shaped += 1
        yield (
            record.tolist(),
            [repr(m) for m in made],
            int(scalar_view),
            record[0]["c"],
            record.dtype.names,
            np.shares_memory(record, field),
        )


@case
def object_arrays():
    shared = ["shared"]
    array = np.array([shared, {"k": 1}, None, 3, math.nan], dtype=object)
    view, matrix = array[:2], np.array([[1, "a"], [shared, 2.5]], dtype=object)
    selfish = np.empty(2, dtype=object)
    selfish[0] = selfish
    while True:
        shared.append(len(shared))
        array[1] = {"k": len(shared)}
        yield (
            array[0] is shared,
            view[1],
            matrix[1, 0] is shared,
            selfish[0] is selfish,
            array[4] is math.nan,
            array[:4].tolist(),
        )


@case
def masked_and_record_arrays():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0], fill_value=9)
    part = masked[1:]
    records = np.rec.array([(1, "a"), (2, "b")], names="n,s")
    char, matrix = np.char.array(["a ", "b"]), np.matrix([[1, 2], [3, 4]])
    poly, iterator, wide = np.polynomial.Polynomial([1, 2, 3]), None, np.poly1d([1, 2])

    class Own(np.ndarray):
        def __array_finalize__(self, obj):
            self.unit = getattr(obj, "unit", "none")

    own = np.arange(3.0).view(Own)
    own.unit = "m"
    constant = np.ma.masked
    while True:
        masked[0] += 1
        own[0] += 1
        matrix[0, 0] += 1
        yield (
            masked.filled().tolist(),
            part.mask.tolist(),
            records.n.tolist(),
            records.s[1],
            char[0],
            matrix.tolist(),
            poly(2),
            own.unit,
            own.tolist(),
            type(own[1:]).__name__,
            own[1:].unit,
            constant is np.ma.masked,
            wide(3),
        )


@case
def random_generators():
    np.random.seed(7)
    kinds = [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM]
    generators = [np.random.Generator(kind(5)) for kind in kinds]
    default, legacy = np.random.default_rng(3), np.random.RandomState(4)
    sequence = np.random.SeedSequence(9)
    twin = np.random.Generator(default.bit_generator)
    bound, seed = np.random.rand, np.random.random
    legacy.normal()
    default.random(dtype=np.float32)
    while True:
        yield (
            [g.integers(1000) for g in generators],
            default.normal(),
            twin.random(),
            legacy.normal(),
            [s.generate_state(1)[0] for s in sequence.spawn(2)],
            np.random.rand(),
            bound(),
            seed(),
            default.random(dtype=np.float32),
            np.random.mtrand._rand.bytes(2),
            twin.bit_generator is default.bit_generator,
            default.spawn(1)[0].random(),
        )


@case
def functions_and_settings():
    np.seterr(divide="ignore", over="raise")
    np.set_printoptions(precision=3)
    vector, ufunc, adding = np.vectorize(lambda x: x + 1), np.frompyfunc(lambda a, b: a + b, 2, 1), np.add
    method, bound = np.add.reduce, np.arange(3).sum
    with np.errstate(invalid="raise"):
        while True:
            yield (
                vector(np.arange(2)).tolist(),
                ufunc(1, 2),
                adding is np.add,
                method([1, 2]),
                bound(),
                str(np.array([1 / 3])),
                np.geterr(),
                np.nan is np.nan,
                np.newaxis,
            )


@case
def iterators_over_arrays():
    array = np.arange(12).reshape(3, 4)
    rows, flat, indices = iter(array), enumerate(array[0]), iter(np.ndindex(2, 3))
    nd = np.ndenumerate(array)
    flat2 = array.flat
    next(flat2)
    while True:
        yield next(rows, np.array(-1)).tolist(), next(flat), next(indices), next(nd), next(flat2)


@case
def several_arrays_broadcast_together():
    column, row = np.arange(3)[:, None], np.arange(40)
    together, alone = np.broadcast(column, row), np.broadcast(7, row[::-2])
    next(together)
    while True:
        row += 1
        yield (
            [int(n) for n in next(together)],
            together.index,
            together.shape,
            [int(n) for n in next(alone, ())],
        )


@case
def buffers_under_arrays():
    memory = bytearray(range(16))
    over, fixed = np.frombuffer(memory, "u1"), np.frombuffer(b"12345678", "u1")
    part, view = over[4:8], memoryview(np.arange(10))
    window = memoryview(over)[2:4]
    while True:
        memory[4] += 1
        over[5] += 1
        yield part.tolist(), memory[5], fixed.tolist(), view[3], bytes(window), np.shares_memory(over, part)


@case
def nan_in_containers():
    nan = float("nan")
    table = {np.nan: "np", nan: "own", "x": 1}
    counts = collections.Counter([np.nan, nan, nan])
    while True:
        yield table[np.nan], table[nan], counts[np.nan], counts[nan], np.nan in [np.nan], nan in {nan}


if __name__ == "__main__":
    main()
