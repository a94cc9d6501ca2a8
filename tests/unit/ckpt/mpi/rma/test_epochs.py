"""Which call fits which epoch: those that do not are refused by name, and change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt import MPI


def refused(text: str, call: Any, *args: Any) -> None:
    with pytest.raises(MPI.Exception, match=text) as caught:
        call(*args)
    assert caught.value.error_class == MPI.ERR_RMA_SYNC


def window() -> Any:
    return MPI.Win.Allocate(8)


def test_an_operation_needs_an_access_epoch() -> None:
    win, data = window(), bytearray(1)
    for call in (win.Put, win.Get, win.Rput, win.Rget):
        refused("no access epoch for rank 0: call Lock, Lock_all, Fence or Start", call, data, 0)
    refused("no access epoch", win.Fetch_and_op, data, data, 0, 0, MPI.REPLACE)
    win.Fence(MPI.MODE_NOSUCCEED)
    refused("no access epoch", win.Put, data, 0)
    win.Fence()
    win.Put(data, 0)
    win.Fence(MPI.MODE_NOSUCCEED)
    win.Free()


def test_locks_are_ended_as_they_were_begun() -> None:
    win = window()
    refused("not locked", win.Unlock, 0)
    refused("not locked", win.Flush, 0)
    refused("nothing is locked", win.Flush_all)
    refused("Lock_all was not called", win.Unlock_all)
    win.Lock(0)
    refused("locked by this rank already", win.Lock, 0)
    refused("locked by this rank already", win.Lock_all)
    refused("Lock_all was not called", win.Unlock_all)
    refused("inside of a lock", win.Fence)
    refused("inside of a lock", win.Start, MPI.GROUP_EMPTY)
    refused("has locked something", win.Free)
    win.Unlock(0)
    win.Lock_all()
    refused("call Unlock_all", win.Unlock, 0)
    win.Unlock_all()
    win.Free()
    assert win == MPI.WIN_NULL


def test_start_and_post_are_ended_once() -> None:
    win = window()
    refused("Start was not called", win.Complete)
    refused("Post was not called", win.Wait)
    refused("Post was not called", win.Test)
    win.Post(win.group)
    refused("Post has begun", win.Post, win.group)
    refused("inside of an epoch of Start or Post", win.Fence)
    win.Start(win.group)
    refused("Start has begun", win.Start, win.group)
    refused("call Complete before", win.Lock, 0)
    refused("inside of an epoch of Start or Post", win.Free)
    assert not win.Test()
    win.Complete()
    assert win.Test()
    win.Free()
