"""Running digests of OpenSSL: their state is copied; its layout is believed only when the copy gives the same digest."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.image.errors import RestoreError
from ckpt.ready import digests

NAMES = sorted(name for name in digests._STATE_BYTES if name in hashlib.algorithms_available)


def saved_and_made(digest: Any) -> Any:
    make, arguments = digests.reduce_digest(None, digest)
    return make(*pickle.loads(pickle.dumps(arguments)))


def result(digest: Any) -> bytes:
    return bytes(digest.digest(40) if digest.name.startswith("shake") else digest.digest())


@given(name=st.sampled_from(NAMES), before=st.integers(0, 700), after=st.integers(0, 700))
def test_a_copy_goes_on_like_the_original_wherever_its_block_ends(name: str, before: int, after: int) -> None:
    original = hashlib.new(name, b"a" * before)
    copy = saved_and_made(original)
    for each in (original, copy):
        each.update(b"b" * after)
    assert type(copy) is type(original) and copy.name == name
    assert result(copy) == result(original) == result(hashlib.new(name, b"a" * before + b"b" * after))


def test_it_is_left_alone_by_being_saved() -> None:
    original = hashlib.sha512(b"a" * 129)
    digests.reduce_digest(None, original)
    assert original.hexdigest() == hashlib.sha512(b"a" * 129).hexdigest()


def test_a_state_that_gives_another_digest_is_not_taken() -> None:
    make, (name, state, expected) = digests.reduce_digest(None, hashlib.sha256(b"a"))
    with pytest.raises(RestoreError, match="sha256 cannot be continued with the OpenSSL of this machine"):
        make(name, state[:-1] + b"\x01", bytes(len(expected)))


@pytest.mark.parametrize("other", [hmac.new(b"k", b"m", "sha256")._hmac, hashlib.blake2b(b"x")], ids=repr)
def test_what_keeps_its_state_elsewhere_is_not_touched(other: Any) -> None:
    assert not digests.can_be_saved(other)


def test_with_an_openssl_that_is_not_known_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, arguments = digests.reduce_digest(None, hashlib.md5(b"x"))
    monkeypatch.setattr(digests, "_is_known", lambda: False)
    with pytest.raises(
        pickle.PicklingError, match=r"a digest of md5 under way cannot .* ckpt.register_type\(_hashlib.HASH"
    ):
        digests.reduce_digest(None, hashlib.md5(b"x"))
    with pytest.raises(RestoreError, match="md5"):
        digests.make_digest(*arguments)
