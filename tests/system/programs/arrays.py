"""numpy: views that share memory, generators, object arrays."""

import numpy as np

np.random.seed(0)
np.random.default_rng(0)
driver_start()
base = np.arange(20000.0).reshape(100, 200)
view = base[::2, 3:]
column = base[:, 0]
turned = base.T
fortran = np.asfortranarray(np.ones((50, 60)))
small = np.zeros(10, dtype="i4")
part = small[2:5]
memory = bytearray(160)
over = np.frombuffer(memory, dtype="f8")
records = np.zeros(5, dtype=[("a", "i4"), ("b", "f8", 2)])
field = records["b"]
objects = np.array([{"x": 1}, [2], None], dtype=object)
dates = np.array(["2020-01-01", "2021-05-05"], dtype="M8[D]")
rng = np.random.default_rng(5)
np.random.seed(7)
frozen = np.ones(5)
frozen.flags.writeable = False
total = 0.0
for step in range(300):
    view += 0.5
    column[step % 100] = step
    turned[0, 1] += 1
    part[:] += 1
    over[step % 20] = step
    field[step % 5] += rng.random(2)
    fortran[step % 50] *= 1.01
    objects[1].append(step)
    total += rng.normal() + np.random.rand() + small.sum() + memory[7]
    if step % 60 == 0:
        print(
            step,
            total,
            base.sum(),
            base[0, :3],
            small,
            records["b"].sum(),
            fortran.sum(),
            fortran.flags.f_contiguous,
        )
        print(
            view.base is base,
            np.shares_memory(part, small),
            dates + step,
            frozen.flags.writeable,
            len(objects[1]),
        )
print(
    total,
    base.sum(),
    memory.hex()[-40:],
    turned[:2, :3],
    small.flags.owndata,
    small.resize(12, refcheck=False),
)
