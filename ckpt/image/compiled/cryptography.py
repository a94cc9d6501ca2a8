"""cryptography: keys and certificates, which OpenSSL keeps.

They are saved in the standard formats for them, by cryptography itself: private keys as PKCS 8, not encrypted (all else that
a program knows is in its image, too), public keys as SubjectPublicKeyInfo, certificates as they are. Ciphers, hashes and
signatures between two pieces of their input cannot be read, and are refused by name.
"""

from __future__ import annotations

import importlib
from typing import Any

from ckpt.image.interface.library import Library, Reducer

__all__ = ["Cryptography", "load", "reduce_certificate", "reduce_private", "reduce_public"]

_PLACE = "cryptography.hazmat.bindings._rust"
_SERIALIZATION = "cryptography.hazmat.primitives.serialization"


class Cryptography(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        if cls.__module__.startswith(f"{_PLACE}.openssl"):
            if hasattr(cls, "private_bytes"):
                return reduce_private
            return reduce_public if hasattr(cls, "public_bytes") else None
        is_certificate = cls.__module__.startswith(_PLACE) and cls.__qualname__ == "Certificate"
        return reduce_certificate if is_certificate else None


def reduce_private(saver: Any, key: Any) -> Any:
    names = importlib.import_module(_SERIALIZATION)
    content = key.private_bytes(names.Encoding.DER, names.PrivateFormat.PKCS8, names.NoEncryption())
    return load, (_SERIALIZATION, "load_der_private_key", content, None)


def reduce_public(saver: Any, key: Any) -> Any:
    names = importlib.import_module(_SERIALIZATION)
    content = key.public_bytes(names.Encoding.DER, names.PublicFormat.SubjectPublicKeyInfo)
    return load, (_SERIALIZATION, "load_der_public_key", content)


def reduce_certificate(saver: Any, certificate: Any) -> Any:
    names = importlib.import_module(_SERIALIZATION)
    content = certificate.public_bytes(names.Encoding.DER)
    return load, ("cryptography.x509", "load_der_x509_certificate", content)


# ---------------------------------------------------------------------- called while loading


def load(place: str, function: str, *arguments: Any) -> Any:
    return getattr(importlib.import_module(place), function)(*arguments)
