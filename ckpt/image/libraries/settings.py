"""What a program has set in libraries, which keep it in tables of their own: no variable of the program holds it.

Noted in the child, as values that may hold objects of the program; put back when all modules are loaded. Only
libraries that the program has imported are looked at, and only what differs from a new process is put back.

    ===================  =====================================================================================
    ``locale``           the locale of every category
    ``csv``              dialects registered by name, the limit of a field
    ``copyreg``          ways to pickle classes of the program
    ``abc``              classes of the program registered with abstract classes of libraries
    ``warnings``         where warnings go (``catch_warnings(record=True)``); filters are in ``resources``
    ``decimal``          the three contexts that new ones are made from
    ``numpy``            what happens at errors (``seterr``), printing
    ``pandas``           options
    ``matplotlib``       ``rcParams``
    ``numba``            random numbers of compiled functions
    ``torch``            random numbers, default type, threads, whether gradients are taken
    ===================  =====================================================================================

Not here: state that belongs to the process (:mod:`ckpt.image.process.resources`), loggers (:mod:`ckpt.image.reducers.logs`).
"""

from __future__ import annotations

import contextlib
import copyreg
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable, Iterator
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import RestoreError
from ckpt.image.lowlevel.inspect_raw import is_heap
from ckpt.image.stdlib.c_objects import DIALECT_FIELDS

if TYPE_CHECKING:
    from ckpt.image.modules.references import References

__all__ = ["apply_ambient", "before_fork", "note_ambient", "quiet"]


def note_ambient(references: References) -> dict[str, Any]:
    """Library → what is set in it; libraries in which nothing can be set, or nothing is, are left out."""
    noted: dict[str, Any] = {
        "copyreg": {c: f for c, f in copyreg.dispatch_table.items() if _is_put_there(c, f, references)},
        "abc": _virtual_subclasses(references),
    }
    for name, (note, _) in _LIBRARIES.items():
        library = sys.modules.get(name)
        if library is not None:
            noted[name] = note(library)
    return {name: value for name, value in noted.items() if value}


def _is_put_there(cls: Any, function: Any, references: References) -> bool:
    """For a class of the program, or for one that is replaced for a while (freezegun does so for ``datetime.date``)."""
    if references.is_user_type(cls):
        return True
    return not is_heap(cls) and references.replaced_name(cls) is not None and references.names(function)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings meanwhile: the program may be collecting them, and would find ours among its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def apply_ambient(saved: dict[str, Any]) -> None:
    copyreg.dispatch_table.update(saved.get("copyreg", {}))
    for cls, subclasses in saved.get("abc", []):
        for subclass in subclasses:
            ABCMeta.register(cls, subclass)
    for name, value in saved.items():
        if name in _LIBRARIES:
            library = sys.modules.get(name)
            if library is None:
                import importlib

                library = importlib.import_module(name)
            _LIBRARIES[name][1](library, value)


def _virtual_subclasses(references: References) -> list[tuple[type, list[type]]]:
    import abc

    found = []
    for cls in _abstract_classes():
        if references.is_user_type(cls):
            continue  # its own state has them
        registered = [ref() for ref in abc._get_dump(cls)[0]]  # type: ignore[attr-defined]
        own = [
            subclass for subclass in registered if subclass is not None and references.is_user_type(subclass)
        ]
        if own and references.names(cls):
            found.append((cls, own))
    return found


def _abstract_classes() -> list[type]:
    """Every class whose metaclass is ABCMeta."""
    found, seen, waiting = [], {object}, [object]
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if cls not in seen:
                seen.add(cls)
                waiting.append(cls)
                if isinstance(cls, ABCMeta):
                    found.append(cls)
    return found


# ---------------------------------------------------------------------- the standard library


def _note_locale(locale: Any) -> dict[str, str]:
    return {name: locale.setlocale(getattr(locale, name)) for name in _CATEGORIES if hasattr(locale, name)}


def _apply_locale(locale: Any, saved: dict[str, str]) -> None:
    for name, value in saved.items():
        category = getattr(locale, name)
        if locale.setlocale(category) == value:
            continue
        try:
            locale.setlocale(category, value)
        except locale.Error as failure:
            raise RestoreError(
                f"the locale {value!r} of the program ({name}) is not installed here"
            ) from failure


_CATEGORIES = ("LC_CTYPE", "LC_COLLATE", "LC_TIME", "LC_MONETARY", "LC_MESSAGES", "LC_NUMERIC")
_DIALECTS = ("excel", "excel-tab", "unix")


def _note_csv(csv: Any) -> tuple[dict[str, dict[str, Any]], int]:
    own = [name for name in csv.list_dialects() if name not in _DIALECTS]
    return {
        n: {key: getattr(csv.get_dialect(n), key) for key in DIALECT_FIELDS} for n in own
    }, csv.field_size_limit()


def _apply_csv(csv: Any, saved: tuple[dict[str, dict[str, Any]], int]) -> None:
    for name, dialect in saved[0].items():
        csv.register_dialect(name, **dialect)
    csv.field_size_limit(saved[1])


def _note_warnings(library: Any) -> dict[str, Any]:
    """What ``catch_warnings(record=True)`` and programs replace; only where it is replaced."""
    present = {
        name: getattr(library, name, None) for name in ("showwarning", "_showwarnmsg_impl", "formatwarning")
    }
    first = {
        "showwarning": getattr(library, "_showwarning_orig", None),
        "formatwarning": getattr(library, "_formatwarning_orig", None),
    }
    return {
        name: value
        for name, value in present.items()
        if value is not None
        and value is not first.get(name)
        and (name in first or getattr(value, "__name__", "") != name)
    }


def _apply_attributes(library: Any, saved: dict[str, Any]) -> None:
    for name, value in saved.items():
        setattr(library, name, value)


_TEMPLATES = ("DefaultContext", "BasicContext", "ExtendedContext")
_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _note_decimal(decimal: Any) -> dict[str, Any]:
    noted = {}
    for name in _TEMPLATES:
        context = getattr(decimal, name)
        noted[name] = (
            [getattr(context, key) for key in _CONTEXT],
            [s for s, on in context.traps.items() if on],
        )
    return noted


def _apply_decimal(decimal: Any, saved: dict[str, Any]) -> None:
    for name, (values, traps) in saved.items():
        context = getattr(decimal, name)
        for key, value in zip(_CONTEXT, values, strict=True):
            setattr(context, key, value)
        for signal in context.traps:
            context.traps[signal] = signal in traps


# ---------------------------------------------------------------------- installed packages


def _note_numpy(numpy: Any) -> dict[str, Any]:
    return {"errors": numpy.geterr(), "call": numpy.geterrcall(), "printing": numpy.get_printoptions()}


def _apply_numpy(numpy: Any, saved: dict[str, Any]) -> None:
    numpy.seterr(**saved["errors"])
    numpy.seterrcall(saved["call"])
    numpy.set_printoptions(**{k: v for k, v in saved["printing"].items() if k != "override_repr"})


def _note_pandas(pandas: Any) -> dict[str, Any]:
    config = sys.modules.get("pandas._config.config")
    return _flat(getattr(config, "_global_config", {}), "")


def _flat(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def _apply_pandas(pandas: Any, saved: dict[str, Any]) -> None:
    """Into pandas' own table, unless it says the same; callbacks of options run, as when the program set them."""
    present = _note_pandas(pandas)
    for key, value in saved.items():
        if key in present and present[key] is not value and present[key] != value:
            pandas.set_option(key, value)


def _note_matplotlib(matplotlib: Any) -> dict[str, Any]:
    return dict(dict.items(getattr(matplotlib, "rcParams", {})))


def _apply_matplotlib(matplotlib: Any, saved: dict[str, Any]) -> None:
    dict.update(matplotlib.rcParams, saved)


def _note_torch(torch: Any) -> dict[str, Any]:
    return {
        "random": torch.get_rng_state(),
        "default": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _apply_torch(torch: Any, saved: dict[str, Any]) -> None:
    torch.set_rng_state(saved["random"])
    torch.set_default_dtype(saved["default"])
    torch.set_num_threads(saved["threads"])
    torch.set_grad_enabled(saved["gradients"])
    torch.use_deterministic_algorithms(saved["deterministic"])


_NUMBA_STATE_BYTES = 2516
"""A generator of numba: index, 624 words, whether a second normal number is kept, that number, whether it was seeded."""


_before: dict[str, Any] = {}
"""What libraries change for themselves in a forked child, as it was before: noted in the parent."""


def before_fork() -> None:
    """Note what a child would not find. In the process that runs the program: for nothing that it has not imported."""
    if "numba._helperlib" in sys.modules:  # which gives a child random numbers of its own
        _before["numba"] = _look_at_numba()


def _look_at_numba() -> list[bytes] | None:
    """Compiled functions have generators of their own, in C, two a thread; ``None``: another layout than is known. Python is
    told all but the number kept."""
    import ctypes
    import struct

    found = []
    for pointer in _numba_pointers():
        state = ctypes.string_at(pointer, _NUMBA_STATE_BYTES)
        index, words = sys.modules["numba._helperlib"].rnd_get_state(pointer)
        if state[:2500] != struct.pack("i624I", index, *words):
            return None
        found.append(state)
    return found


def _note_numba(numba: Any) -> list[bytes]:
    found: list[bytes] | None = _before.get("numba", [])
    if found is None:
        raise PicklingError(
            "this version of numba keeps its random numbers in another way than is known here"
        )
    return found


def _numba_pointers() -> list[int]:
    helper = sys.modules.get("numba._helperlib")
    return [] if helper is None else [helper.rnd_get_np_state_ptr(), helper.rnd_get_py_state_ptr()]


def _apply_numba(numba: Any, saved: list[bytes]) -> None:
    import ctypes

    for pointer, state in zip(_numba_pointers(), saved, strict=True):
        ctypes.memmove(pointer, state, _NUMBA_STATE_BYTES)


_LIBRARIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    "locale": (_note_locale, _apply_locale),
    "csv": (_note_csv, _apply_csv),
    "warnings": (_note_warnings, _apply_attributes),
    "decimal": (_note_decimal, _apply_decimal),
    "numpy": (_note_numpy, _apply_numpy),
    "pandas": (_note_pandas, _apply_pandas),
    "matplotlib": (_note_matplotlib, _apply_matplotlib),
    "numba": (_note_numba, _apply_numba),
    "torch": (_note_torch, _apply_torch),
}
