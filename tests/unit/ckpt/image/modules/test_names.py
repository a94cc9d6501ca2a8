"""The names to which the objects of an image refer, and what is said of one that is gone."""

from __future__ import annotations

import collections
import csv
import datetime
import decimal
import functools
import io
import json
import logging
import math
import pickle
import random
import re
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from ckpt.image.errors import RestoreError
from ckpt.image.modules.names import look_up
from ckpt.image.pickling.unpickler import ImageUnpickler, PersistentIds
from tests.unit.ckpt.image.support import pickled


class Mine(collections.OrderedDict[str, object]):
    """A class that is saved by value, and is derived from one that is not."""

    made = decimal.Decimal("1.5")


OBJECTS = [
    *(
        json,
        json.JSONDecodeError,
        json.loads,
        json.JSONDecoder(),
        math.floor,
        sys.getsizeof,
        logging.getLogger,
    ),
    *(collections.Counter("abc"), collections.deque([1]), datetime.datetime(2020, 1, 1), re.compile("x")),
    *(functools.partial(json.dumps, indent=1), functools.lru_cache(math.gcd), random.Random(1), random.seed),
    *(
        Mine(a=json.dumps),
        Mine,
        [].append,
        dict.fromkeys,
        str.join,
        csv.excel,
        re.escape,
        pickle.PickleBuffer,
    ),
    *(json.__dict__, type(None), int, ValueError("x"), io.StringIO("x"), iter([1]), range(3)),
]


class NotingIds(PersistentIds):
    def __init__(self, live: Mapping[str, object]) -> None:
        super().__init__(live)
        self.names: set[tuple[str, ...]] = set()

    def load(self, pid: tuple[Any, ...]) -> object:
        if pid[0] in ("module", "dict", "attr"):
            self.names.add(pid)
        return super().load(pid)


class Noting(ImageUnpickler):
    def __init__(self, *arguments: Any) -> None:
        noting = NotingIds({})
        super().__init__(*arguments, lambda live: noting)
        self.names = noting.names

    def find_class(self, module: str, name: str) -> Any:
        self.names.add(("definition", module, name))
        return super().find_class(module, name)


def refused(label: tuple[Any, ...], failure: Exception) -> RestoreError:
    return RestoreError(f"{label}: {failure}")


def test_each_name_that_is_looked_up_while_objects_are_loaded_is_known_before() -> None:
    sink, pickler = pickled(OBJECTS)
    unpickler = Noting(io.BytesIO(bytes(sink.data)), [memoryview(each) for each in sink.raw], {})
    unpickler.load()
    unpickler.load()
    listed = {name for name, _ in pickle.loads(pickler.names.as_bytes())}
    assert unpickler.names - listed == set()
    assert {("module", "json"), ("definition", "json.decoder", "JSONDecodeError")} <= listed
    look_up(pickler.names.as_bytes(), unpickler.find_class, refused)


@pytest.mark.parametrize("obj", [json, json.loads, json.JSONDecoder], ids=["module", "function", "class"])
def test_a_name_that_is_gone_is_said_with_the_variable(monkeypatch: pytest.MonkeyPatch, obj: Any) -> None:
    sink, pickler = pickled([])
    pickler.names.label = ("variable", "app", "x")
    pickler.dump(obj)
    if obj is json:
        monkeypatch.setitem(sys.modules, "json", None)  # type: ignore[arg-type]
    else:
        monkeypatch.delattr(sys.modules[obj.__module__], obj.__name__)
    unpickler = ImageUnpickler(io.BytesIO(bytes(sink.data)), [], {})
    with pytest.raises(RestoreError, match=rf"'variable', 'app', 'x'.*{obj.__name__}"):
        look_up(pickler.names.as_bytes(), unpickler.find_class, refused)
