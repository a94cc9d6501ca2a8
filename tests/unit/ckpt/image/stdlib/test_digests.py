"""Running digests of OpenSSL: their state is copied; its layout is believed only when the copy gives the same digest."""

from __future__ import annotations

import hashlib
import hmac
import pickle
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.compat import memory
from ckpt.image.errors import RestoreError
from ckpt.image.stdlib import blake, digests

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


def test_what_keeps_its_state_elsewhere_is_not_touched() -> None:
    assert not digests.can_be_saved(hashlib.blake2b(b"x"))


def test_with_an_openssl_that_is_not_known_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, arguments = digests.reduce_digest(None, hashlib.md5(b"x"))
    monkeypatch.setattr(digests, "_is_known", lambda: False)
    with pytest.raises(
        pickle.PicklingError, match=r"a digest of md5 under way cannot .* ckpt.register_type\(_hashlib.HASH"
    ):
        digests.reduce_digest(None, hashlib.md5(b"x"))
    with pytest.raises(RestoreError, match="md5"):
        digests.make_digest(*arguments)


# ---------------------------------------------------------------------- hmac


def openssl_hmac(key: bytes, text: bytes, name: str) -> Any:
    return hmac.new(key, text, name)._hmac  # type: ignore[attr-defined]


def hmac_made(digest: Any) -> Any:
    make, arguments = digests.reduce_hmac(None, digest)
    return make(*pickle.loads(pickle.dumps(arguments)))


HMAC_NAMES = [name for name in NAMES if not name.startswith("shake")]


@given(
    name=st.sampled_from(HMAC_NAMES),
    key=st.binary(max_size=200),
    before=st.integers(0, 400),
    after=st.integers(0, 400),
)
def test_an_hmac_goes_on_like_the_original_and_so_do_its_copies(
    name: str, key: bytes, before: int, after: int
) -> None:
    original = openssl_hmac(key, b"a" * before, name)
    made = hmac_made(original)
    for each in (original, made, copied := made.copy()):
        each.update(b"b" * after)
    wanted = hmac.digest(key, b"a" * before + b"b" * after, name)
    assert original.digest() == made.digest() == copied.digest() == wanted
    assert made.name == original.name


def test_an_hmac_whose_states_are_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = openssl_hmac(b"key", b"text", "sha256")
    _, arguments = digests.reduce_hmac(None, original)
    real = digests._words

    def different(address: int, count: int) -> Any:
        words = real(address, count)
        return words and (words[0], address, *words[2:])

    for words in (lambda address, count: None, lambda address, count: (8,) * count, different):
        monkeypatch.setattr(digests, "_words", words)
        with pytest.raises(pickle.PicklingError, match=r"an HMAC of sha256 .*register_type\(_hashlib.HMAC"):
            digests.reduce_hmac(None, original)
        with pytest.raises(RestoreError, match="HMAC of sha256 cannot be continued"):
            digests.make_hmac(*arguments)


def test_an_hmac_with_an_openssl_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = openssl_hmac(b"key", b"text", "sha256")
    monkeypatch.setattr(digests, "_is_known", lambda: False)
    with pytest.raises(pickle.PicklingError, match="an HMAC of sha256"):
        digests.reduce_hmac(None, original)


def test_states_that_give_another_hmac_are_not_taken() -> None:
    make, (name, states, result) = digests.reduce_hmac(None, openssl_hmac(b"key", b"text", "sha256"))
    with pytest.raises(RestoreError, match="HMAC of sha256 cannot be continued"):
        make(name, states, bytes(len(result)))


def test_memory_that_is_not_there_is_not_read() -> None:
    assert digests._words(0, 1) is digests._words(1 << 63, 1) is digests._words(8, 4) is None


# ---------------------------------------------------------------------- blake2


def blake_made(digest: Any) -> Any:
    make, arguments = blake.reduce_digest(None, digest)
    return make(*pickle.loads(pickle.dumps(arguments)))


@given(
    kind=st.sampled_from([hashlib.blake2b, hashlib.blake2s]),
    size=st.integers(1, 32),
    key=st.binary(max_size=32),
    salt=st.binary(max_size=8),
    last_node=st.booleans(),
    before=st.integers(0, 3000),
    after=st.integers(0, 3000),
)
def test_blake2_goes_on_like_the_original(
    kind: Any, size: int, key: bytes, salt: bytes, last_node: bool, before: int, after: int
) -> None:
    """From 2048 bytes on it has a lock, which is not copied."""
    original = kind(digest_size=size, key=key, salt=salt, last_node=last_node)
    original.update(b"a" * before)
    made = blake_made(original)
    for each in (original, made, copied := made.copy()):
        each.update(b"b" * after)
    assert original.digest() == made.digest() == copied.digest()
    assert made.digest_size == size and made.name == original.name


@pytest.mark.parametrize("sizes", [{}, {"blake2b": (1, 1)}], ids=["version", "size"])
def test_blake2_of_a_python_that_is_not_known_is_named(
    monkeypatch: pytest.MonkeyPatch, sizes: dict[str, Any]
) -> None:
    _, arguments = blake.reduce_digest(None, hashlib.blake2b(b"x"))
    monkeypatch.setattr(memory, "BLAKE_SIZES", {sys.version_info[:2]: sizes} if sizes else {})
    with pytest.raises(pickle.PicklingError, match=r"a digest of blake2b .*register_type\(hashlib.blake2b"):
        blake.reduce_digest(None, hashlib.blake2b(b"x"))
    with pytest.raises(RestoreError, match="blake2b cannot be continued"):
        blake.make_digest(*arguments)


def test_blake2_of_another_build_or_with_another_result_is_not_taken() -> None:
    make, (name, fingerprint, state, result) = blake.reduce_digest(None, hashlib.blake2s(b"x"))
    for changed in (
        (name, fingerprint[::-1], state, result),
        (name, fingerprint, state[:-1], result),
        (name, fingerprint, state, bytes(len(result))),
    ):
        with pytest.raises(RestoreError, match="blake2s cannot be continued"):
            make(*changed)
