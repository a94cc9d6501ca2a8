"""Contexts of TLS (:class:`ssl.SSLContext`) in an image: made again after a restart, by the calls that have made them.

What OpenSSL keeps of a context cannot be read back: certificates and keys, the authorities that are trusted, ciphers. So the
calls that change it (:data:`RECORDED`) are recorded from the import of ``ssl`` on, with absolute paths. A restart makes them
again, in their order, and reads the files anew; then it sets what can be read of a context (:data:`PROPERTIES`).

While an image is written, the calls are made for a trial, but those that may ask for a password. If the context that comes
out is another one, by what can be read, it is refused: it was made before the recording began, or in another way.

Sockets of TLS that are closed, or listen, come back as other sockets do. Connections are refused, or come back as reset
(:mod:`ckpt.image.ipc.tls_resets`): their keys are in the memory of OpenSSL.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from ckpt.compat import accelerators
from ckpt.image.errors import ObjectRefused, RestoreError
from ckpt.image.ipc.library import KEYS, are_reset
from ckpt.image.ipc.sockets import reduce_socket
from ckpt.image.ipc.tls_resets import refuse_within
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import attributes_of
from ckpt.image.reducers.saver import Saver

__all__ = ["fill_context", "make_context", "record_calls", "reduce_tls"]

RECORDED = {
    # the parameters that are paths, by position and by name
    "load_cert_chain": {0: "certfile", 1: "keyfile"},
    "load_verify_locations": {0: "cafile", 1: "capath"},
    "load_dh_params": {0: "path"},
    "set_alpn_protocols": {},
    "set_ciphers": {},
    "set_default_verify_paths": {},
    "set_ecdh_curve": {},
    "set_psk_client_callback": {},
    "set_psk_server_callback": {},
}
PROPERTIES = (
    # the order counts: a name is checked only where certificates are
    "options",
    "verify_flags",
    "minimum_version",
    "maximum_version",
    "keylog_filename",
    "num_tickets",
    "post_handshake_auth",
    "hostname_checks_common_name",
    "sni_callback",
)
_REMEDY = (
    "make it where it is used, or say how it is made again: ckpt.register_type(ssl.SSLContext, save, load)"
)
_LOOKS_UP = ("load_verify_locations", "set_default_verify_paths")
"""Calls after which a context may find more authorities, while it is used."""
_MAY_ASK = ("load_cert_chain", "set_psk_client_callback", "set_psk_server_callback")
"""Calls that are not made for a trial: nothing of them can be read, and the first one may ask for a password."""

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
_calls: weakref.WeakKeyDictionary[Any, list[Call]] = weakref.WeakKeyDictionary()


def record_calls(ssl: Any) -> None:
    """From now on, new contexts and the calls that change them are recorded. A second time it does nothing."""
    if not hasattr(ssl.SSLContext.__new__, "is_recorded"):
        ssl.SSLContext.__new__ = staticmethod(_noted(ssl.SSLContext.__new__))
    for name, paths in RECORDED.items():
        original = getattr(ssl.SSLContext, name, None)
        if original is not None and not hasattr(original, "is_recorded"):
            setattr(ssl.SSLContext, name, _recorded(name, original, paths))


def _noted(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def new(cls: Any, *args: Any, **options: Any) -> Any:
        context = original(cls, *args, **options)
        with contextlib.suppress(TypeError):  # a class whose objects have no hash: they are refused
            _calls[context] = []
        return context

    new.is_recorded = True  # type: ignore[attr-defined]
    return new


def _recorded(name: str, original: Callable[..., Any], paths: dict[int, str]) -> Any:
    @functools.wraps(original)
    def method(context: Any, *args: Any, **options: Any) -> Any:
        result = original(context, *args, **options)
        absolute = tuple(_absolute(arg) if at in paths else arg for at, arg in enumerate(args))
        named = {key: _absolute(value) if key in paths.values() else value for key, value in options.items()}
        if (calls := _known_calls(context)) is not None:
            calls.append((name, absolute, named))
        return result

    method.is_recorded = True  # type: ignore[attr-defined]
    return method


def _known_calls(context: Any) -> list[Call] | None:
    """The calls that have changed it; None: they are not known."""
    try:
        return _calls.get(context)
    except TypeError:
        return None


def _absolute(path: Any) -> Any:
    return path if path is None else os.path.abspath(os.fspath(path))


def reduce_tls(saver: Saver, obj: Any) -> Any:
    """The reducer for contexts and sockets. Raises ObjectRefused."""
    if isinstance(obj, sys.modules["ssl"].SSLContext):
        return _reduce_context(saver, obj)
    parts = (attributes_of(obj) or {}).values()
    if any(type(part).__module__ == accelerators.TLS[1] for part in parts):  # its state, or its session, in C
        if not are_reset():
            raise ObjectRefused(obj, KEYS)
        refuse_within(saver, obj, obj.fileno())
    return reduce_socket(saver, obj)


def _reduce_context(saver: Saver, context: Any) -> Any:
    calls = _known_calls(context)
    if calls is None:
        raise ObjectRefused(context, f"a context of TLS was made before ckpt could see how; {_REMEDY}")
    arguments, properties = (type(context), int(context.protocol)), _properties(context)
    trial = make_context(*arguments)
    try:
        _make_calls(trial, [call for call in calls if call[0] not in _MAY_ASK])
        _set_properties(trial, properties)
        is_same = _readable(trial, calls) == _readable(context, calls)
    except Exception as failure:
        raise ObjectRefused(context, f"a context of TLS cannot be made again: {failure}") from failure
    if not is_same:
        raise ObjectRefused(context, f"a context of TLS was changed in a way that was not seen; {_REMEDY}")
    # the state comes after the object: what the program has given it may refer to it
    return make_context, arguments, (attributes_of(context), calls, properties), None, None, fill_context


def _properties(context: Any) -> dict[str, Any]:
    found = {name: getattr(context, name) for name in PROPERTIES if hasattr(context, name)}
    found = {name: int(value) if isinstance(value, int) else value for name, value in found.items()}
    return found | {
        "verify_mode": int(context.verify_mode),
        "check_hostname": context.check_hostname,
    }


def make_context(cls: Any, protocol: int) -> Any:
    return sys.modules["ssl"].SSLContext.__new__(cls, protocol)


def fill_context(context: Any, state: tuple[dict[str, Any], list[Call], dict[str, Any]]) -> None:
    """Raises RestoreError: a call fails now, for example since a file of certificates is gone."""
    attributes, calls, properties = state
    rebuild.fill_instance(context, attributes)
    _make_calls(context, calls)
    _set_properties(context, properties)


def _make_calls(context: Any, calls: list[Call]) -> None:
    for name, args, options in calls:
        try:
            getattr(sys.modules["ssl"].SSLContext, name)(context, *args, **options)
        except (OSError, ValueError) as failure:
            raise RestoreError(f"a context of TLS: {name}{args}: {failure}") from failure


def _set_properties(context: Any, properties: dict[str, Any]) -> None:
    context.check_hostname = False  # so that `verify_mode` may be any
    context.verify_mode = properties["verify_mode"]
    for name, value in properties.items():
        if getattr(context, name) != value:
            setattr(context, name, value)


def _readable(context: Any, calls: list[Call]) -> tuple[Any, ...]:
    ciphers = [cipher["name"] for cipher in context.get_ciphers()]
    looks_up = any(name in _LOOKS_UP for name, _, _ in calls)
    return ciphers, _properties(context), None if looks_up else context.cert_store_stats()
