"""What checked_matmul costs beside a @ b, and how small an error it finds.

    python -m benchmarks.abft_products [--quick] [--orders 512 1024 2048 4096] [--rounds 5] [--json FILE]

numpy's float64 and float32, and torch's bfloat16 and float16 where torch is installed; one thread. Both products in turn,
CPU time, medians. An error is added to one number of the product at random places: the smallest that is found at each of
`PLACES`, by halving the interval; beside the largest rounding error of a sum of that product (V-ABFT, 2026, has thresholds
of 7 to 20 times that for float32 and float64, and 48 to 158 times for bfloat16), and beside the largest number of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402

from ckpt import abft  # noqa: E402
from ckpt.abft.numbers.checked import checked_product  # noqa: E402

PLACES = 3
KINDS = ("float64", "float32", "bfloat16", "float16")


def factors(kind: str, order: int, seed: int) -> tuple[Any, Any]:
    """Two random matrices; of torch if numpy has no such numbers. Raises ImportError."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(order, order)), random.normal(size=(order, order))
    if kind.startswith("float") and kind != "float16":
        return a.astype(kind), b.astype(kind)
    import torch

    torch.set_num_threads(1)
    dtype = getattr(torch, kind)
    return torch.from_numpy(a).to(dtype), torch.from_numpy(b).to(dtype)


def plain(a: Any, b: Any) -> Any:
    return a @ b


def cpu_s(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def overhead(a: Any, b: Any, rounds: int) -> tuple[float, float]:
    """CPU of the checked product over that of the plain one; and of the plain one in seconds."""
    a @ b, abft.checked_matmul(a, b)  # what is imported and compiled at first
    found = [(cpu_s(lambda: a @ b), cpu_s(lambda: abft.checked_matmul(a, b))) for _ in range(rounds)]
    one, checked = (statistics.median(each[place] for each in found) for place in (0, 1))
    return checked / one, one


def is_found(a: Any, b: Any, product: Any, place: tuple[int, int], error: float) -> bool:
    """Is this error at this place found? If it vanishes where it is added, it is not."""
    wrong = product.clone() if hasattr(product, "clone") else product.copy()
    wrong[place] += error

    products = iter([wrong])
    return bool(checked_product(a, b, lambda x, y: next(products, product))[1])


def smallest_found(a: Any, b: Any, seed: int) -> tuple[float, float]:
    """The smallest error that is found at every place, over the largest rounding error of a sum, and over the largest
    number."""
    product = plain(a, b)
    wide = [np.asarray(x.double() if hasattr(x, "double") else x, dtype=np.float64) for x in (a, b, product)]
    rounding = max(
        float(np.abs(wide[2].sum(axis=1) - wide[0] @ wide[1].sum(axis=1)).max()),
        float(np.abs(wide[2].sum(axis=0) - wide[0].sum(axis=0) @ wide[1]).max()),
    )
    largest, least = float(np.abs(wide[2]).max()), 0.0
    random = np.random.default_rng(seed)
    for _ in range(PLACES):
        place = int(random.integers(len(wide[2]))), int(random.integers(len(wide[2])))
        low, high = rounding / 16, rounding * 4096
        while high / low > 1.1:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if is_found(a, b, product, place, middle) else (middle, high)
        least = max(least, high)
    return least / rounding, least / largest


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small orders, one round: to see that it works")
    parser.add_argument("--orders", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--search", type=int, default=2048, help="no smallest error is looked for above this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    options = parser.parse_args(arguments)
    if options.quick:
        options.orders, options.rounds = [128, 256], 1
    rows: list[dict[str, Any]] = []
    print(f"checked_matmul, one thread, medians of {options.rounds}")
    for kind in KINDS:
        for order in options.orders:
            try:
                a, b = factors(kind, order, order)
            except ImportError:
                print(f"  {kind}: torch is not installed")
                rows.append({"name": f"checked_matmul, {kind}", "skipped": "torch is not installed"})
                break
            ratio, one_s = overhead(a, b, options.rounds)
            line = f"  {kind:8} {order:5}: {ratio:5.2f} x of a @ b ({1e3 * one_s:.1f} ms CPU)"
            rows.append({"name": f"checked_matmul, {kind}, {order}", "unit": "x", "median": ratio})
            if order <= options.search:
                times, share = smallest_found(a, b, order)
                line += f"; smallest error found: {times:.1f} x the largest rounding error of a sum"
                line += f", {share:.1e} of the largest number"
                rows.append({"name": f"smallest error found, {kind}, {order}", "unit": "x", "median": times})
            print(line, flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
