"""torch: what shares the memory of a tensor beside its views."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_of

torch: Any = pytest.importorskip("torch")


def test_conjugate_and_negative_views_were_copies() -> None:
    whole = torch.ones(2, dtype=torch.complex64)
    whole, conjugate, negative = copy_of((whole, whole.conj(), whole.conj().imag))
    whole[0] = 3 + 4j
    assert conjugate.is_conj() and negative.is_neg()
    assert conjugate[0].item() == 3 - 4j and negative[0].item() == -4.0


@pytest.mark.filterwarnings("ignore")  # of classes that go
def test_a_storage_with_a_type_was_a_copy() -> None:
    whole = torch.arange(3.0)
    whole, storage = copy_of((whole, whole.storage()))
    storage[1] = 9.0
    assert whole.tolist() == [0.0, 9.0, 2.0]
