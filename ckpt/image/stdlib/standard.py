"""The classes (:class:`ckpt.image.interface.library.Library`) that serve modules of the standard library: modules written in
C, and modules with settings that programs change.

This module is imported early, so it is small: the modules beside it have the reducers, and are imported when the first
object that needs them is met.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ckpt.compat import accelerators, stdlib
from ckpt.compat.children import CHILD_WAITS
from ckpt.compat.readers import MEMBER_CALLS
from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import InPlace, Library, Reducer, by_name, later
from ckpt.image.lowlevel import _lookup
from ckpt.image.reducers.contexts import decimal_reducers, has_decimal_context
from ckpt.image.reducers.logs import reduce_manager
from ckpt.image.stdlib import c_objects
from ckpt.image.stdlib.registered_children import is_expected

__all__ = [
    "Awaitables",
    "Compression",
    "Decimal",
    "Digests",
    "Locale",
    "Logging",
    "Processes",
    "Profiles",
    "Random",
    "Sqlite",
    "Tokenizer",
    "Warnings",
]

_HERE = "ckpt.image.stdlib"

# ---------------------------------------------------------------------- objects in C


class Digests(Library):
    """hashlib: digests under way (MD5, SHA-1, SHA-2, SHA-3 of OpenSSL 3, BLAKE2)."""

    transient_types = accelerators.DIGESTS

    def reducers(self) -> dict[type, Reducer]:
        digest, blake = later(f"{_HERE}.digests", "reduce_digest"), later(f"{_HERE}.blake", "reduce_digest")
        hmac = later(f"{_HERE}.digests", "reduce_hmac")
        return {
            **by_name(accelerators.HASHLIB, {"HASH": digest, "HASHXOF": digest, "HMAC": hmac}),
            **by_name(accelerators.BLAKE2, {"blake2b": blake, "blake2s": blake}),
        }

    def reason_against(self, obj: Any) -> str | None:
        module = type(obj).__module__
        if module == accelerators.BLAKE2:
            from ckpt.image.stdlib import blake  # imports hashlib, as the program has

            return None if blake.can_be_saved(obj) else super().reason_against(obj)
        if module == accelerators.HASHLIB:
            from ckpt.image.stdlib import digests

            return None if digests.can_be_saved(obj) else super().reason_against(obj)
        return super().reason_against(obj)


class Compression(Library):
    """zlib, bz2, lzma: compressors in use (gzip and zip files being written), and their stand-ins after a restart."""

    transient_types = accelerators.COMPRESSION
    transient_functions = tuple((call, "a member of a zip file is being read") for call in MEMBER_CALLS)

    def reason_against(self, obj: Any) -> str | None:
        # a decompressor that has ended is saved
        return None if getattr(obj, "eof", False) else super().reason_against(obj)

    def reducers(self) -> dict[type, Reducer]:
        deflating = later(f"{_HERE}.compressors", "reduce_deflating")
        compressor = later(f"{_HERE}.compressed_files", "reduce_compressor")
        decompressor = later(f"{_HERE}.compressors", "reduce_decompressor")
        stream = later(f"{_HERE}.compressed_files", "reduce_stream")
        found = {
            **by_name(accelerators.BZ2, {"BZ2Compressor": compressor, "BZ2Decompressor": decompressor}),
            **by_name(accelerators.LZMA, {"LZMACompressor": compressor, "LZMADecompressor": decompressor}),
            **by_name(f"{_HERE}.compressors", {"Deflating": deflating}),
            **by_name(f"{_HERE}.compressed_files", {"FurtherStream": stream}),
            **by_name("zipfile", {"ZipExtFile": later(f"{_HERE}.compressed_files", "reduce_member")}),
            **by_name("types", {"MethodDescriptorType": later(f"{_HERE}.compressors", "reduce_method")}),
        }
        make = getattr(sys.modules.get("zlib"), "compressobj", None)
        if make is not None:  # the type has no name
            found[type(make())] = deflating
            found[type(sys.modules["zlib"].decompressobj())] = decompressor
        return found


class Awaitables(Library):
    """What programs hold that run coroutines, by asyncio or otherwise (trio): types in C without a name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._hooks: tuple[Any, ...] = ()

    def reducer_by_base(self, cls: type) -> Reducer | None:
        name = _AWAITABLES.get(cls.__name__) if cls.__module__ == "builtins" else None
        return None if name is None else later("ckpt.image.loops.async_generators", name)

    def before_image(self) -> None:
        self._hooks = tuple(sys.get_asyncgen_hooks())

    def note_settings(self) -> Any:
        return self._hooks if any(self._hooks) else None

    def apply_settings(self, saved: Any) -> None:
        sys.set_asyncgen_hooks(*saved)


_AWAITABLES = {
    **dict.fromkeys(
        ("async_generator_asend", "async_generator_athrow", "anext_awaitable", "coroutine_wrapper"),
        "reduce_awaitable",
    ),
    "asyncgen_hooks": "reduce_hooks",
}


class Threading(Library):
    """``threading.enumerate`` holds all threads for a moment, those of ckpt too (:mod:`ckpt.compat.stdlib`)."""

    transient_functions = (("threading:enumerate", "the threads are being listed"),)


class Processes(Library):
    """subprocess, multiprocessing. Where the program waits for the end of a child process, an image waits for it too."""

    transient_types = ("subprocess:Popen",)
    transient_functions = (
        ("subprocess:Popen.__init__", "a child process is being started"),
        *(
            (f"subprocess:Popen.{name}", "the program waits for the end of a child process")
            for name in CHILD_WAITS
        ),
    )
    moment_limit_s = 100.0

    def reducers(self) -> dict[type, Reducer]:
        from ckpt.image.stdlib import processes

        return processes.reducers()

    def reducer_by_base(self, cls: type) -> Reducer | None:
        base = getattr(sys.modules.get("multiprocessing.process"), "BaseProcess", ())
        return later(f"{_HERE}.processes", "reduce_process") if issubclass(cls, base) else None

    def reason_against(self, obj: Any) -> str | None:
        if obj.returncode is not None or is_expected(obj):
            return None
        return f"the child process {obj.pid} is running"


class Sqlite(Library):
    """sqlite3: connections to files (opened again, settings kept) and in memory (with their content), of
    derived classes, too. An image waits for the end of a transaction, of connections in variables of running functions and
    of the main program, and in attributes of what is there."""

    transient_types = ("sqlite3:Connection", "sqlite3:Cursor")
    object_limit_s = moment_limit_s = 60.0
    hooked_limit_s = 0.0  # a hook may commit

    _REASON = "a connection of sqlite3 is in a transaction"

    def when_imported(self) -> None:
        from ckpt.image.stdlib import sqlite

        sqlite.record_definitions()

    def reason_against(self, obj: Any) -> str | None:
        from ckpt.image.stdlib import sqlite

        if sqlite.is_still_changing(obj):
            return (
                "a cursor of sqlite3 is in the middle of its results, and its statement changes the database"
            )
        return self._REASON if sqlite.is_in_transaction(obj) else None

    def reason_now(self, values: Iterable[Any]) -> str | None:
        from ckpt.image.stdlib import sqlite

        return self._REASON if sqlite.are_in_transaction(values) else None

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if issubclass(cls, getattr(self.module, "Connection", ())):
            return later(f"{_HERE}.sqlite", "reduce_connection")
        if issubclass(cls, getattr(self.module, "Row", ())):
            return later(f"{_HERE}.sqlite", "reduce_row")
        return None

    def reducers(self) -> dict[type, Reducer]:
        kinds = {"Connection": "reduce_connection", "Row": "reduce_row"}
        return by_name("sqlite3", {kind: later(f"{_HERE}.sqlite", name) for kind, name in kinds.items()})

    def note_settings(self) -> tuple[list[tuple[Any, Any]], list[tuple[str, Any]]] | None:
        """What the program has given to ``register_adapter`` and ``register_converter``."""
        from ckpt.image.stdlib.registered import is_function_of_program

        adapters = getattr(self.module, "adapters", {})
        converters = getattr(self.module, "converters", {})
        own = (
            [(key[0], each) for key, each in adapters.items() if is_function_of_program(each)],
            [(name, each) for name, each in converters.items() if is_function_of_program(each)],
        )
        return own if any(own) else None

    def apply_settings(self, saved: tuple[list[tuple[Any, Any]], list[tuple[str, Any]]]) -> None:
        for cls, adapt in saved[0]:
            self.module.register_adapter(cls, adapt)
        for name, convert in saved[1]:
            self.module.register_converter(name, convert)


class Tokenizer(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name(accelerators.TOKENIZER, {"TokenizerIter": c_objects.reduce_remaining})


class Profiles(Library):
    """cProfile."""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if not issubclass(cls, getattr(self.module, "Profiler", ())):
            return None
        from ckpt.image.stdlib import profilers

        return profilers.reduce_profile


class Logging(Library):
    """Handlers and levels: :mod:`ckpt.image.reducers.logs`."""

    is_left_to_pickle = True

    def reducers(self) -> dict[type, Reducer]:
        return by_name("logging", {"Manager": reduce_manager})


# ---------------------------------------------------------------------- settings


class Random(Library):
    """random: generators of random numbers, and the state of the module's own generator."""

    def reducers(self) -> dict[type, Reducer]:
        return by_name("random", {"SystemRandom": c_objects.reduce_system_random})

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return c_objects.reduce_random if issubclass(cls, accelerators.random.Random) else None

    def note_random(self) -> Any:
        random = sys.modules.get("random")
        return None if random is None else random.getstate()

    def apply_random(self, saved: Any) -> None:
        import random

        random.setstate(saved)

    def in_place(self) -> list[InPlace]:
        cls = getattr(sys.modules.get("random"), "Random", None)
        return [] if cls is None else [InPlace("random generator", (cls,), cls.getstate, cls.setstate)]


class Decimal(Library):
    """decimal: the current context, if one has been made, and the three contexts that serve as templates for new ones."""

    is_left_to_pickle = True

    _TEMPLATES = ("DefaultContext", "BasicContext", "ExtendedContext")
    _FIELDS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")

    def reducers(self) -> dict[type, Reducer]:
        return decimal_reducers()

    def note_settings(self) -> tuple[Any, dict[str, Any]]:
        present = has_decimal_context() and self.module.getcontext()
        templates = {}
        for name in self._TEMPLATES:
            context = getattr(self.module, name)
            values = [getattr(context, key) for key in self._FIELDS]
            templates[name] = (values, [signal for signal, is_on in context.traps.items() if is_on])
        return present, templates

    def apply_settings(self, saved: tuple[Any, dict[str, Any]]) -> None:
        present, templates = saved
        for name, (values, traps) in templates.items():
            context = getattr(self.module, name)
            for key, value in zip(self._FIELDS, values, strict=True):
                setattr(context, key, value)
            for signal in context.traps:
                context.traps[signal] = signal in traps
        if present:
            self.module.setcontext(present)


class Locale(Library):
    """locale: the locale of every category."""

    _CATEGORIES = ("LC_CTYPE", "LC_COLLATE", "LC_TIME", "LC_MONETARY", "LC_MESSAGES", "LC_NUMERIC", "LC_ALL")
    """LC_ALL last: it also names categories that Python has no constant for (paper, names, addresses)."""

    def note_settings(self) -> dict[str, str]:
        locale = self.module
        return {
            name: locale.setlocale(getattr(locale, name))
            for name in self._CATEGORIES
            if hasattr(locale, name)
        }

    def apply_settings(self, saved: dict[str, str]) -> None:
        locale = self.module
        for name, value in saved.items():
            category = getattr(locale, name)
            if locale.setlocale(category) == value:
                continue
            try:
                locale.setlocale(category, value)
            except locale.Error as failure:
                if name == "LC_ALL":
                    continue  # a category that Python has no constant for, and so no program has set by itself
                raise RestoreError(
                    f"the locale {value!r} of the program ({name}) is not installed here"
                ) from failure


class Warnings(Library):
    """warnings: the filters, and replaced hooks (``catch_warnings(record=True)``). Warnings that were given once are not
    given again: each module has a registry of these, which is valid for one version of the filters."""

    def note_settings(self) -> tuple[dict[str, Any], list[Any], object]:
        return (
            stdlib.replaced_warning_hooks(self.module),
            stdlib.program_filters(self.module),
            self._version(),
        )

    def apply_settings(self, saved: tuple[dict[str, Any], list[Any], object]) -> None:
        replaced, filters, version = saved
        for name, value in replaced.items():
            setattr(self.module, name, value)
        self.module.filters[:] = filters
        stdlib.warning_filters_changed(self.module)
        now = self._version()
        for registry in _lookup.bound(sys.modules, "__warningregistry__"):
            if type(registry) is dict and registry.get("version") == version:
                registry["version"] = now

    def _version(self) -> object:
        """The version of the filters. The interpreter shows it only in the registry into which a warning is entered."""
        warnings, registry = self.module, dict[Any, Any]()
        filters = warnings.filters[:]
        warnings.filters[:] = [("ignore", None, Warning, None, 0)]
        try:
            warnings.warn_explicit("", UserWarning, "", 1, registry=registry)
        finally:
            warnings.filters[:] = filters
        return registry.get("version")
