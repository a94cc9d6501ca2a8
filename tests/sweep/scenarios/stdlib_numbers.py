"""Numbers in the standard library: decimal, fractions, statistics, math, cmath, random, array, struct, heapq, bisect."""

import array
import bisect
import cmath
import decimal
import fractions
import heapq
import math
import random
import statistics
import struct
from decimal import Decimal

with decimal.localcontext() as context:
    context.prec = 50
    x = Decimal(2)
    for _ in range(300):
        x = (x + 2 / x) / 2 + Decimal("1e-30")
    print(x, context.flags[decimal.Inexact])
    with decimal.localcontext(prec=10, rounding=decimal.ROUND_DOWN):
        print(sum((Decimal(1) / n for n in range(1, 400)), Decimal(0)))
    print((Decimal(10) ** 30 + 1).sqrt())
print(decimal.getcontext().prec, Decimal("1.005").quantize(Decimal("0.01")))
f = fractions.Fraction(1, 3)
for n in range(1, 160):
    f = f * fractions.Fraction(n, n + 2) + fractions.Fraction(1, n)
    if n % 40 == 0:
        f = f.limit_denominator(10**12)
print(f, float(f))
rng = random.Random(17)
sample = [rng.gauss(10, 3) for _ in range(3000)]
print(
    statistics.mean(sample),
    statistics.quantiles(sample, n=5),
    statistics.NormalDist.from_samples(sample).cdf(12),
)
print(math.fsum(sample), math.prod(range(1, 30)), math.comb(60, 30), cmath.phase(complex(*sample[:2])))
heap = []
for i, value in enumerate(sample):
    heapq.heappush(heap, (round(value), -i))
    if i % 4 == 0:
        heapq.heapreplace(heap, (round(value * 2), i))
print(len(heap), heapq.nsmallest(3, heap), [heapq.heappop(heap) for _ in range(4)])
merged = heapq.merge(*[sorted(sample[i::5]) for i in range(5)], key=lambda v: v, reverse=False)
total = 0.0
for i, value in enumerate(merged):
    total += value * (-1) ** i
print(total)
grid = array.array("d", (math.sin(i) for i in range(2000)))
for i in range(1, len(grid) - 1):
    grid[i] = (grid[i - 1] + grid[i + 1]) / 2
print(sum(grid), grid.tobytes()[:8].hex())
packer = struct.Struct("<hIq4sd")
blob = b"".join(packer.pack(i % 99, i, -i, b"ab%d" % (i % 9), i / 3) for i in range(400))
print(sum(fields[2] for fields in packer.iter_unpack(blob)), packer.unpack_from(blob, packer.size * 7))
keys = sorted(rng.sample(range(10**6), 500))
print(sum(bisect.bisect(keys, rng.randrange(10**6)) for _ in range(3000)))
state = rng.getstate()
deck = list(range(52))
rng.shuffle(deck)
rng.setstate(state)
print(
    deck[:5],
    rng.choices("abc", weights=[1, 2, 3], k=8),
    hex(rng.getrandbits(80)),
    random.Random("seed").random(),
)
