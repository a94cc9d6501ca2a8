"""Attributes under a key that was freed stay with their objects (MPI standard, "Attribute caching")."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.mpi.base.attributes import KEYVAL_INVALID
from ckpt.mpi.base.errors import ERR_KEYVAL, MpiException
from ckpt.mpi.datatypes.datatypes import Datatype


def refused(call: Any, *arguments: Any) -> int:
    with pytest.raises(MpiException) as caught:
        call(*arguments)
    return caught.value.Get_error_class()


def test_an_attribute_is_found_copied_and_deleted_after_its_key_was_freed() -> None:
    deleted: list[Any] = []
    key = Datatype.Create_keyval(True, lambda of, key, value: deleted.append(value))
    cached, other = Datatype.Create_struct([], [], []), Datatype.Create_struct([], [], [])
    cached.Set_attr(key, "value")
    assert Datatype.Free_keyval(key) == KEYVAL_INVALID
    assert cached.Get_attr(key) == "value" and deleted == []
    copied = cached.Dup()
    assert copied.Get_attr(key) == "value"
    cached.Delete_attr(key)
    assert deleted == ["value"]
    copied.Free()
    assert deleted == ["value", "value"]
    for call, *arguments in (
        (cached.Get_attr,),
        (cached.Delete_attr,),
        (other.Get_attr,),
        (other.Set_attr, 1),
    ):
        assert refused(call, key, *arguments) == ERR_KEYVAL


def test_a_freed_key_takes_no_new_attribute_and_is_not_freed_again() -> None:
    key = Datatype.Create_keyval()
    cached = Datatype.Create_struct([], [], [])
    cached.Set_attr(key, 1)
    Datatype.Free_keyval(key)
    assert refused(cached.Set_attr, key, 2) == ERR_KEYVAL
    assert cached.Get_attr(key) == 1
    assert refused(Datatype.Free_keyval, key) == ERR_KEYVAL
