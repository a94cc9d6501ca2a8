"""Functions that the pickle of an image calls to make objects of the standard library again.

Their names are part of the image format, as those of :mod:`ckpt.image.reducers.rebuild` are.

Not here: how the objects are taken apart (:mod:`ckpt.image.stdlib.c_objects` and the modules beside it).
"""

from __future__ import annotations

import functools
import itertools
import re
import types
import weakref
from collections.abc import Sequence
from typing import Any

from ckpt.compat import accelerators
from ckpt.compat.memory import set_lru_counters
from ckpt.compat.referents import lru_parts
from ckpt.image.errors import RestoreError
from ckpt.image.reducers import rebuild

# ---------------------------------------------------------------------- functools.lru_cache


def make_lru_cache(function: Any, maxsize: int | None, typed: bool) -> Any:
    made = functools.lru_cache(maxsize=maxsize, typed=typed)(function)
    made.__dict__.clear()
    return made


def make_random(cls: type) -> Any:
    return accelerators.random.Random.__new__(cls)


def fill_random(obj: Any, state: tuple[Any, dict[str, Any] | None, list[tuple[type, str, Any]]]) -> None:
    core, attributes, slots = state
    accelerators.random.Random.setstate(obj, core)
    rebuild.fill_slots(obj, (attributes, slots))


def make_pickler(cls: Any, protocol: int, fix_imports: bool) -> Any:
    return cls(types.SimpleNamespace(write=len), protocol, fix_imports=fix_imports)


def fill_pickler(obj: Any, state: tuple[Any, int, bool, int, list[tuple[int, Any]]]) -> None:
    write, protocol, fix_imports, fast, memo = state
    obj.__init__(types.SimpleNamespace(write=write), protocol, fix_imports=fix_imports)
    obj.fast = fast
    obj.memo = {id(saved): (number, saved) for number, saved in memo}


def make_unpickler(cls: Any) -> Any:
    return cls(types.SimpleNamespace(read=len, readline=len))


def fill_unpickler(obj: Any, state: tuple[dict[str, Any], bool, str, str, dict[int, Any]]) -> None:
    methods, fix_imports, encoding, errors, memo = state
    obj.__init__(types.SimpleNamespace(**methods), fix_imports=fix_imports, encoding=encoding, errors=errors)
    obj.memo = memo


class LruMark:
    """Stands, in a saved key of a cache, for the private object of functools that comes before the keyword arguments."""


def lru_counters(cached: Any) -> tuple[int, int] | None:
    """Numbers of hits and misses; ``None``: both are 0, or not known."""
    cache_info = cached.__dict__.get("cache_info") or getattr(cached, "cache_info", None)
    info = cache_info() if cache_info is not None else None
    return (info.hits, info.misses) if info is not None and (info.hits or info.misses) else None


def refill_lru_cache(
    cached: Any,
    entries: list[tuple[Any, Any]],
    counters: tuple[int, int] | None = None,
    running: Sequence[tuple[Sequence[Any] | None, dict[str, Any]]] = (),
) -> None:
    """Put the results back, oldest first. Called when everything else is loaded, because keys are hashed here.

    An unbounded cache is a dictionary and is filled directly; a bounded one is called with the old arguments while its
    function is replaced by one that hands out the old results.

    running: arguments of the calls that will be made again. Each of them must miss again, and its miss has been counted
    already. So the result of an equal call is left out of the cache: the repeated call will put its own result there.
    """
    _, _, mark, _ = lru_parts(cached)
    typed = cached.cache_parameters()["typed"]
    repeated = {_lru_key_of(args, kwargs, mark, typed) for args, kwargs in running if args is not None}
    _refill(
        cached,
        [(key, value) for key, value in entries if not repeated or _lru_key(key, mark) not in repeated],
    )
    if counters is not None:
        hits, misses = counters
        set_lru_counters(cached, (hits, max(0, misses - len(running))))


def _refill(cached: Any, entries: list[tuple[Any, Any]]) -> None:
    cache, function, mark, _ = lru_parts(cached)
    parameters = cached.cache_parameters()
    cached.cache_clear()  # it may hold results of calls made during the load, by `__new__` of a library's classes
    if parameters["maxsize"] is None:
        cache.update((_lru_key(key, mark), value) for key, value in entries)
        return
    if type(function) is not types.FunctionType:
        return
    code, keyword_defaults = function.__code__, function.__kwdefaults__
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = keyword_defaults
    wanted: list[Any] = []

    def hand_out(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The old result. A call that the hashing of a key makes gets the result of the original function."""
        if not wanted or not _is_this_call(args, kwargs, *wanted[0]):
            return original(*args, **kwargs)
        return wanted.pop()[2]

    function.__code__ = _lru_stub(len(code.co_freevars))
    function.__kwdefaults__ = {"_hand_out": hand_out}
    try:
        for key, value in entries:
            args, kwargs = _lru_arguments(_lru_key(key, mark), mark, parameters["typed"])
            wanted[:] = [(args, kwargs, value)]
            cached(*args, **kwargs)
    finally:
        function.__code__, function.__kwdefaults__ = code, keyword_defaults


def _is_this_call(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    its_args: tuple[Any, ...],
    its_kwargs: dict[str, Any],
    _: Any,
) -> bool:
    values, expected = (*args, *kwargs, *kwargs.values()), (*its_args, *its_kwargs, *its_kwargs.values())
    return len(values) == len(expected) and all(a is b for a, b in zip(values, expected, strict=True))


def _lru_key_of(args: Sequence[Any], kwargs: dict[str, Any], mark: object, typed: bool) -> Any:
    """The key of a call, as functools' ``_make_key`` in C makes it."""
    if not typed and not kwargs and len(args) == 1 and type(args[0]) in (str, int):
        return args[0]
    values = (*args, *kwargs.values())
    named = (mark, *(part for item in kwargs.items() for part in item)) if kwargs else ()
    return (*args, *named, *(map(type, values) if typed else ()))


def _lru_key(key: Any, mark: object) -> Any:
    if type(key) is tuple:
        return tuple(mark if item is LruMark else item for item in key)
    return key


def _lru_arguments(key: Any, mark: object, typed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call that leads to this key: the reverse of functools' ``_make_key``."""
    if type(key) is not tuple:
        return (key,), {}
    items = list(key)
    position = next((index for index, item in enumerate(items) if item is mark), None)
    if position is None:
        return tuple(items[: len(items) // 2] if typed else items), {}
    # p positional, mark, k names and k values; when typed, p + k types follow
    flat = items[position + 1 :]
    if typed:
        del flat[2 * (len(flat) - position) // 3 :]
    return tuple(items[:position]), dict(zip(flat[::2], flat[1::2], strict=True))


def _lru_stub(free: int) -> types.CodeType:
    """Code of a function with ``free`` free variables that asks ``_hand_out`` for its result."""
    names = [f"v{i}" for i in range(free)]
    source = "\n".join(
        [
            "def outer():",
            *(f"    {name} = None" for name in names),
            "    def stub(*args, _hand_out, **kwargs):",
            f"        if 0: {', '.join(names) or 'None'}",
            "        return _hand_out(args, kwargs)",
            "    return stub",
        ]
    )
    namespace: dict[str, Any] = {}
    exec(compile(source, "<ckpt>", "exec"), namespace)
    code: types.CodeType = namespace["outer"]().__code__
    if len(code.co_freevars) != free:
        raise RestoreError("a cached function with free variables cannot be refilled")
    return code


# ---------------------------------------------------------------------- regular expressions, csv


def make_match(pattern: Any, method: str, string: Any, pos: int, endpos: int) -> re.Match[Any] | None:
    found: re.Match[Any] | None = getattr(pattern, method)(string, pos, endpos)
    return found


def make_scanner(pattern: Any, string: Any, pos: int, endpos: int) -> Any:
    if string is not None:
        return pattern.scanner(string, pos, endpos)
    made = pattern.scanner("" if isinstance(pattern.pattern, str) else b"")
    while made.search() is not None:
        pass
    return made


def make_csv_writer(write: Any, dialect: dict[str, Any]) -> Any:
    import csv

    return csv.writer(types.SimpleNamespace(write=write), **dialect)


def make_csv_reader(source: Any, dialect: dict[str, Any], line_num: int) -> Any:
    """A reader that goes on with ``source``, and whose ``line_num`` is as given."""
    import csv

    made = csv.reader(
        itertools.chain(itertools.repeat("x", line_num), source) if line_num else source, **dialect
    )
    for _ in range(line_num):
        next(made)
    return made


# ---------------------------------------------------------------------- other objects made in C


def make_key_wrapper(compare: Any, *key: Any) -> Any:
    made: Any = functools.cmp_to_key(compare)
    return made(*key) if key else made


def make_pairwise(source: Any, *last: Any) -> Any:
    return itertools.pairwise(itertools.chain(last, source) if last else source)


def make_batched(source: Any, size: int, is_strict: bool = False) -> Any:
    batched: Any = itertools.batched  # type: ignore[attr-defined]
    return batched(source, size, strict=True) if is_strict else batched(source, size)


def fill_simple_queue(queue: Any, state: tuple[list[Any]]) -> None:
    for item in state[0]:
        queue.put(item)


JSON_SCANNER = ("strict", "object_hook", "object_pairs_hook", "parse_float", "parse_int", "parse_constant")


def make_json_scanner(*values: Any) -> Any:
    context: Any = types.SimpleNamespace(**dict(zip(JSON_SCANNER, values, strict=True)))
    return accelerators.json_parts.make_scanner(context)


JSON_ENCODER = (
    *("markers", "default", "encoder", "indent", "key_separator", "item_separator"),
    *("sort_keys", "skipkeys"),
)


def make_json_encoder(*values: Any) -> Any:
    return accelerators.json_parts.make_encoder(*values)


def make_re_scanner(lexicon: Any, flags: int) -> Any:
    return re.Scanner(lexicon, flags)  # type: ignore[attr-defined]


lexicons: weakref.WeakKeyDictionary[re.Pattern[Any], Any] = weakref.WeakKeyDictionary()
"""Pattern without a text → its lexicon, for patterns made by :func:`make_scanner_pattern`, which no ``re.Scanner`` owns."""


def make_scanner_pattern(lexicon: Any, flags: int) -> re.Pattern[Any]:
    made: re.Pattern[Any] = make_re_scanner(lexicon, flags).scanner
    lexicons[made] = lexicon
    return made


def make_system_random(cls: Any) -> Any:
    return cls.__new__(cls)
