"""Functions in C that call a function of the program for each item go on after a restart: `sub` of patterns,
`numpy.vectorize`, and `map` and `apply` of pandas. No call that was over is made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import refusals, resumed_output

SOURCE = """
import re
IMPORTS

class Item:
    def __init__(self, number):
        self.number = number
    def __repr__(self):
        return f"<{self.number}>"
    def made(self, number):
        return work(number + self.number)

def work(number):
    held = [int(number)]
    tick(number)
    done.append(held[0])
    return held[0] * 3

def replaced(match):
    return "" if match.group() == "7" else f"<{work(int(match.group()))}>"

def nested(match):
    return str(work(int(match.group()))) + re.sub("[ab]", lambda inner: "x" * work(1), "a-b")

def tick(number):
    if number in PLACES and number not in ticked:
        ticked.append(number)
        driver_tick()

COUNT, ticked, done, made = 20, [], [], []
text = ", ".join(map(str, range(COUNT)))
print(repr(EXPRESSION))
print(ticked, done)
"""

SUBSTITUTIONS = {
    "re.sub": "re.sub('[0-9]+', replaced, text)",
    "sub of a pattern, in a call with names": "re.compile('[0-9]+').sub(replaced, text)",
    "sub of bytes": "re.sub(b'[0-9]+', lambda match: b'<%d>' % work(int(match.group())), text.encode())",
    "subn with a count": "re.compile('[0-9]+').subn(replaced, text, 17)",
    "a method": "re.sub('[0-9]+', lambda match: str(Item(0).made(int(match.group()))), text)",
    "in each other": "re.sub('[0-9]+', nested, text)",
    "with a star": "re.compile('[0-9]+').sub(*[replaced, text])",
}
JSON = {
    "an object hook": "json.loads(document, object_hook=made_of)",
    "an object hook that keeps its object": "[json.loads(document, object_hook=kept), made][0]",
    "pairs": "json.loads(document, object_pairs_hook=lambda pairs: made_of(dict(pairs)))",
    "several hooks": "json.loads(document, object_hook=made_of, parse_int=lambda text: work(int(text)))",
    "a decoder, from a file": "json.load(io.StringIO(document), cls=json.JSONDecoder, object_hook=made_of)",
    "a hook that raises": "outcome(lambda: json.loads(document, object_hook=raises))",
    "in each other": "json.loads(document, object_hook=lambda d: json.loads('{\"n\": 5}', object_hook=made_of))",
}
JSON_SOURCE = """import io, json
def made_of(d):
    return ["made", work(d["n"]), d]
def kept(d):
    d["w"] = work(d["n"])
    made.append(d)
    return d
def raises(d):
    if work(d["n"]) > 40:
        raise ValueError(d)
    return d
def outcome(call):
    try:
        return call()
    except ValueError as error:
        return error
document = json.dumps({"n": 18, "all": [{"n": n, "more": {"n": n + 1, "x": 1.5}} for n in range(0, 16)]})"""
NUMPY = {
    "vectorize": "numpy.vectorize(work)(range(COUNT))",
    "vectorize of two arguments": (
        "numpy.vectorize(lambda a, b: work(a) + b)([[8, 1], [15, 3], [5, 2]], [10, 20]).tolist()"
    ),
    "vectorize with two results": (
        "[part.tolist() for part in numpy.vectorize(lambda a: (work(a), -a))(range(COUNT))]"
    ),
    "vectorize that keeps the first result": (
        "numpy.vectorize(work, cache=True, otypes=[float])(range(COUNT)).tolist()"
    ),
    "what frompyfunc has made": (
        "numpy.frompyfunc(lambda a: made.append(a) or [work(a), made], 1, 1)(numpy.array(range(COUNT), "
        "object))"
    ),
    "a method in it": "numpy.vectorize(lambda a: Item(0).made(a))(range(COUNT)).tolist()",
    "apply_along_axis": (
        "numpy.apply_along_axis(lambda row: work(row[0]) + row, 1, numpy.arange(COUNT).reshape(-1, "
        "1)).tolist()"
    ),
    "piecewise": (
        "numpy.piecewise(numpy.arange(3), [numpy.arange(3) < 1], [lambda part: work(1) + work(8), "
        "lambda part: work(15) + part + work(5)]).tolist()"
    ),
}
PANDAS = {
    "map of a series": "pandas.Series(range(COUNT)).map(work).tolist()",
    "apply of a series": "pandas.Series(range(COUNT)).apply(lambda n: Item(work(n))).tolist()",
    "map that leaves some out": "pandas.Series([1, None, 5, 8, 15]).map(work, na_action='ignore').tolist()",
    "apply of a table": (
        "pandas.DataFrame({'a': range(COUNT)}).apply(lambda row: work(row['a']), axis=1).tolist()"
    ),
    "map of a table": "pandas.DataFrame({'a': range(10), 'b': range(10, COUNT)}).map(work).values.tolist()",
}


def program(imports: str, expression: str, places: str) -> str:
    text = SOURCE.replace("IMPORTS", imports).replace("EXPRESSION", expression)
    return text.replace("PLACES", places)


@pytest.mark.rotate(3)
@pytest.mark.parametrize("call", SUBSTITUTIONS)
def test_a_substitution_goes_on(tmp_path: Path, call: str) -> None:
    resumed_output(tmp_path, program("", SUBSTITUTIONS[call], "(5,)"))


@pytest.mark.rotate(3)
@pytest.mark.parametrize("call", SUBSTITUTIONS)
def test_an_image_of_a_substitution_that_was_resumed(tmp_path: Path, call: str) -> None:
    resumed_output(tmp_path, program("", SUBSTITUTIONS[call], "(1, 8, 15)"), places=[3])


@pytest.mark.rotate(3)
@pytest.mark.parametrize("call", JSON)
def test_a_parser_of_json_goes_on(tmp_path: Path, call: str) -> None:
    resumed_output(
        tmp_path, program(JSON_SOURCE, JSON[call], "(1, 5, 12)"), places=[1 if "each other" in call else 3]
    )


@pytest.mark.rotate(4)
@pytest.mark.parametrize("call", NUMPY)
def test_a_call_of_numpy_goes_on(tmp_path: Path, call: str) -> None:
    pytest.importorskip("numpy")
    resumed_output(tmp_path, program("import numpy", NUMPY[call], "(1, 8, 15)"), places=[3])


@pytest.mark.rotate(5)
@pytest.mark.parametrize("call", PANDAS)
def test_a_call_of_pandas_goes_on(tmp_path: Path, call: str) -> None:
    pytest.importorskip("pandas")
    resumed_output(tmp_path, program("import pandas", PANDAS[call], "(1, 8, 15)"), places=[3])


WAITS = {
    "arrays of numbers, of which numpy makes copies": "numpy.frompyfunc(tick, 1, 1)(numpy.arange(3))",
    "an array without dimensions has been returned": (
        "numpy.frompyfunc(returned, 1, 1)(numpy.array([1, 2], object))"
    ),
    "a call in the same call": "re.sub('[ab]', Again(), 'ab')",
}


@pytest.mark.parametrize("call", WAITS)
def test_an_image_waits_where_it_is_not_known_how_a_call_goes_on(tmp_path: Path, call: str) -> None:
    pytest.importorskip("numpy")
    source = f"""
    import numpy, re

    class Again:
        def __call__(self, match):
            tick(0)
            return ""

    def tick(n):
        driver_tick()
        return n

    def returned(n):
        if n == 2:
            driver_tick()
        return numpy.array(n)

    {WAITS[call]}
    """
    assert refusals(tmp_path, source)
