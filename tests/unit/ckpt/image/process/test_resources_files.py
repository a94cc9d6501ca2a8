"""Open files: position, length, buffers, and what is no file any more."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import _drive, image_failure, resumed_output

pytestmark = pytest.mark.turns(3)


def test_reading_in_every_way(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("".join(f"zeile {i} äöü {'x' * (i % 90)}\n" for i in range(3000)))
    source = """
        text = open("data.txt")
        text.readline()
        binary = open("data.txt", "rb")
        binary.read(1001)
        raw = open("data.txt", "rb", buffering=0)
        raw.seek(77)
        loop = open("data.txt")
        same = [loop, text, text.buffer]
        total = 0
        for number, line in enumerate(loop):
            total += len(line)
            if number == 1234:
                driver_tick()
                rest = text.read(), binary.read(), raw.read()
                print([len(r) for r in rest], hash(rest), same[0] is loop, same[2] is text.buffer)
        print(number, total, loop.read(), loop.name, loop.mode)
    """
    assert resumed_output(tmp_path, source).endswith("  data.txt r\n")


@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
def test_newlines_are_translated_as_before(tmp_path: Path, newline: str | None) -> None:
    (tmp_path / "data.txt").write_bytes(b"a\rb\r\nc\nd\r\n" * 2000)
    source = f"""
        r = open("data.txt", newline={newline!r})
        w = open("out.txt", "w", newline={newline!r})
        lines = []
        for line in r:
            lines.append(line)
            w.write("x\\n")
            if len(lines) == 700:
                driver_tick()
        w.close()
        print(len(lines), hash(tuple(lines)), hash(open("out.txt", "rb").read()))
    """
    resumed_output(tmp_path, source)


def test_writing_is_cut_back_and_goes_on(tmp_path: Path) -> None:
    source = """
        import os
        written, added, both = open("w.txt", "w"), open("a.txt", "a"), open("b.txt", "w+b")
        for i in range(5000):
            written.write(f"{i}é\\n")
            added.write(f"{i},")
            both.write(b"%d;" % i)
            if i == 3000:
                both.seek(100)
                both.write(b"here")
                driver_tick()
                print(both.tell(), written.tell(), added.tell())
        for f in (written, added, both):
            f.close()
        print(*(hash(open(n, "rb").read()) for n in ("w.txt", "a.txt", "b.txt")), os.path.getsize("w.txt"))
    """
    resumed_output(tmp_path, source)


def test_files_that_have_no_name_any_more(tmp_path: Path) -> None:
    source = """
        import tempfile
        t, n = tempfile.TemporaryFile("w+"), tempfile.NamedTemporaryFile("w+", dir=".")
        s = tempfile.SpooledTemporaryFile(mode="w+")
        for i in range(2000):
            for f in (t, n, s):
                f.write(f"{i};")
            if i == 1500:
                driver_tick()
        for f in (t, n, s):
            f.seek(0)
            print(hash(f.read()))
    """
    resumed_output(tmp_path, source)


def test_closed_files_and_devices(tmp_path: Path) -> None:
    source = """
        f = open("x", "w")
        f.close()
        null = open("/dev/null", "w")
        driver_tick()
        print(f.closed, f.name, null.write("x"))
    """
    assert resumed_output(tmp_path, source) == "True x 1\n"


def test_the_length_of_standard_output_is_part_of_the_image(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("print('one')\nprint('two', end='')\ndriver_tick()\nprint('three')\n")
    out = tmp_path / "out"
    _drive(["calls", str(tmp_path), "[1]", str(script)], out, tmp_path)
    assert out.read_text() == "one\ntwothree\n"
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert out.read_text() == "one\ntwothree\n"


_PRINTING = """
    import io, logging, os, sys
    mine = open(1, "w", closefd=False)
    layered = io.TextIOWrapper(sys.stdout.buffer, write_through=False, newline="\\r\\n")
    thin = io.TextIOWrapper(open("log.txt", "ab", 0), write_through=False)
    binary = open(os.dup(1), "wb")
    raw = os.dup(1)
    logging.basicConfig(stream=mine, format="%(message)s", level=logging.INFO)
    first, second, both = open("log.txt", "a"), open("log.txt", "a"), open("log.txt", "a+")
    number, kept = os.dup(first.fileno()), both.buffer.raw
    for i in range(6):
        print("printed", i)
        driver_tick()
        mine.write(f"mine {i}\\n")
        driver_tick()
        binary.write(b"binary %d\\n" % i)
        driver_tick()
        sys.stdout.buffer.write(b"beside %d\\n" % i)
        driver_tick()
        print("half a line", end="; ")
        driver_tick()
        layered.write(f"layered {i}\\n")
        driver_tick()
        os.write(raw, b"raw %d\\n" % i)
        os.write(1, b"direct %d\\n" % i)
        if i == 4:
            logging.info("logged %d", i)
        driver_tick()
        first.write(f"first {i}\\n")
        driver_tick()
        second.write(f"second {i}\\n")
        driver_tick()
        both.write(f"both {i}\\n")
        thin.write(f"thin {i}\\n")
        driver_tick()
        os.write(number, b"number %d\\n" % i)
        if i % 2:
            for file in (second, mine, both, first, layered, binary)[:i]:
                file.flush()
        driver_tick()
    for file in (first, second, both, thin, layered, binary, mine):
        file.flush()
    print(open("log.txt").read())
"""


@pytest.mark.rotate(6)
@pytest.mark.timeout(900)  # many processes, one after the other
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_line_is_lost_doubled_or_moved_however_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str, first: int
) -> None:
    """Full buffers, several file objects and mere descriptors of one file, at every third place; each resumed with all
    that the original has written in the way.
    """
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    script, out, log = tmp_path / "program.py", tmp_path / "out", tmp_path / "log.txt"
    script.write_text(textwrap.dedent(_PRINTING))
    _drive(["calls", str(tmp_path), "[]", str(script)], out, tmp_path)
    expected, logged = out.read_bytes(), log.read_bytes()
    places = [*range(first, 67, 3)]
    assert len(expected.splitlines()) > 60 and json.loads(_last(tmp_path))["total"] == 66
    out.unlink()
    log.unlink()
    _drive(["calls", str(tmp_path), json.dumps(places), str(script)], out, tmp_path)
    assert json.loads(_last(tmp_path))["taken"] == len(places)
    assert out.read_bytes() == expected, "an image changed the program"
    for number, place in enumerate(places):
        out.write_bytes(expected)
        log.write_bytes(logged)
        _drive(["resume", str(tmp_path), "[]", str(tmp_path / f"image-{number}")], out, tmp_path)
        assert out.read_bytes() == expected, f"place {place}"


def test_a_restart_that_fails_leaves_output_and_files_as_they_were(tmp_path: Path) -> None:
    """So an image that is newer than the one that could not be resumed still finds every line."""
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(
        "import os\n"
        "data = open('data.txt', 'w')\n"
        "needed = os.open('needed', os.O_CREAT | os.O_RDWR)\n"
        "os.ftruncate(needed, 2 << 20)  # more than an image holds of a file\n"
        "print('one')\ndata.write('one')\ndata.flush()\ndriver_tick()\n"
        "os.close(needed)\nos.unlink('needed')\n"
        "print('two')\ndata.write('two')\ndata.flush()\ndriver_tick()\n"
        "print('three', data.tell())\n"
    )
    _drive(["calls", str(tmp_path), "[1, 2]", str(script)], out, tmp_path)
    expected = out.read_text()
    with pytest.raises(
        AssertionError, match=r"needed.*, which the program had open .* cannot be opened again"
    ):
        _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert (out.read_text(), (tmp_path / "data.txt").read_text()) == (expected, "onetwo")
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-1")], out, tmp_path)
    assert out.read_text() == expected


def test_a_setting_that_this_process_cannot_have_leaves_output_as_it_was(tmp_path: Path) -> None:
    script, out, codec = tmp_path / "program.py", tmp_path / "out", tmp_path / "ours.py"
    codec.write_text(
        "import codecs, encodings.ascii as known\n"
        "def find(name):\n    return known.getregentry() if name == 'ours' else None\n"
        "codecs.register(find)\n"
    )
    script.write_text(
        f"import sys\nexec(open({str(codec)!r}).read())\n"
        "sys.stdout.reconfigure(encoding='ours')\nprint('one')\ndriver_tick()\nprint('two')\n"
    )
    _drive(["calls", str(tmp_path), "[1]", str(script)], out, tmp_path)
    expected = out.read_text()
    with pytest.raises(AssertionError, match="unknown encoding: ours"):
        _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert out.read_text() == expected == "one\ntwo\n"


def test_a_file_that_is_removed_while_it_is_open_keeps_its_mode(tmp_path: Path) -> None:
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(
        "import os, stat\n"
        "held = os.open('held', os.O_CREAT | os.O_RDWR)\nos.fchmod(held, 0o2640)\nos.unlink('held')\n"
        "driver_tick()\nprint(oct(stat.S_IMODE(os.fstat(held).st_mode)))\n"
    )
    _drive(["calls", str(tmp_path), "[1]", str(script)], out, tmp_path)
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert out.read_text() == "0o2640\n"


def test_files_of_the_kernel_have_no_length_and_those_of_the_program_itself_are_those_of_the_new_process(
    tmp_path: Path,
) -> None:
    source = """
        import os
        memory, status = open("/proc/meminfo"), open("/proc/self/status")
        raw, number = open("/proc/self/stat", "rb", buffering=0), os.open("/proc/self/comm", os.O_RDWR)
        setting, own = open("/sys/kernel/mm/transparent_hugepage/enabled"), os.open("/proc/self", os.O_RDONLY)
        read = memory.read(), status.readline(), raw.read(3), os.read(number, 100), setting.read()
        driver_tick()
        for file in (memory, status, raw):
            file.seek(0)
        os.lseek(number, 0, os.SEEK_SET)
        pids = [line for line in status if line.startswith("Pid:")]
        print(memory.readline().split()[0], int(pids[0].split()[1]) == int(raw.read().split()[0]) == os.getpid())
        print(os.read(number, 100) == read[3], setting.read(), os.path.samestat(os.fstat(own), os.stat("/proc/self")))
    """
    assert resumed_output(tmp_path, source) == "MemTotal: True\nTrue  True\n"


def test_output_that_has_become_shorter_is_named(tmp_path: Path) -> None:
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(
        "import sys, warnings\nprint('one')\ndriver_tick()\nprint(len(open(sys.argv[0]).read()))\n"
    )
    _drive(["calls", str(tmp_path), "[1]", str(script)], out, tmp_path)
    out.write_text("o")
    said = _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert "has 1 bytes, but had 4 when the image was taken" in said


def _last(directory: Path) -> str:
    return (directory / "log.jsonl").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            "import os; os.unlink('data.txt')",
            "had open for writing when the checkpoint was taken, cannot be opened again",
        ),
        ("open('data.txt', 'w')", "has 0 bytes; the image needs 2000000"),
    ],
)
def test_a_missing_or_shorter_file_that_is_too_large_for_an_image_is_named(
    tmp_path: Path, damage: str, reason: str
) -> None:
    (tmp_path / "data.txt").write_text("x" * 2_000_000)
    script = tmp_path / "program.py"
    script.write_text(f"log = open('data.txt', 'a')\ndriver_tick()\n{damage}\n")
    _drive(["calls", str(tmp_path), "[1]", str(script)], tmp_path / "out", tmp_path)
    with pytest.raises(AssertionError) as failure:
        _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], tmp_path / "out", tmp_path)
    assert "RestoreError: module __main__ variable 'log': the " in str(failure.value)
    assert "data.txt" in str(failure.value) and "Put " in str(failure.value)
    assert reason in str(failure.value)


def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    source = """
        import os
        class Holder: pass
        def f(holder):
            os.mkfifo("fifo")
            holder.list = [1, {"pipe": os.fdopen(os.open("fifo", os.O_RDWR), "wb")}]
            driver_tick()
        f(Holder())
    """
    failed = image_failure(tmp_path, source)
    assert "frame 1 (f) local 'holder'.list[1]['pipe']" in failed
    assert "an open pipe" in failed


@pytest.mark.parametrize(("held", "is_held"), [("pipe", True), ("[pipe]", False)])
def test_a_failure_tells_the_type_of_what_a_running_function_holds_itself(
    tmp_path: Path, held: str, is_held: bool
) -> None:
    source = f"""
        import os
        def f():
            os.mkfifo("fifo")
            pipe = os.fdopen(os.open("fifo", os.O_RDWR), "wb", buffering=0)
            held = {held}
            del pipe
            driver_tick()
        f()
    """
    assert "frame 1 (f) local 'held'" in image_failure(tmp_path, source)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["held"] for line in lines if "failed" in line] == [is_held]


def test_the_report_names_sizes_and_places(tmp_path: Path) -> None:
    source = "big = list(range(10000, 20000))\ndef f(other):\n    driver_tick()\nf(['y' * 5000])\nprint(1)\n"
    resumed_output(tmp_path, source)
    line = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])
    assert [(row["line"], row["function"]) for row in line["stack"]] == [(4, "<module>"), (3, "f")]
    assert line["sizes"][0]["where"] == "module __main__ variable 'big'"
    assert any(size["where"] == "frame 1 (f) local 'other'" for size in line["sizes"])
    assert line["modules"][0] == "__main__"
    assert line["versions"]["python"]


def test_the_report_names_the_largest_variables_of_each_module_and_frame(tmp_path: Path) -> None:
    source = """
        big = list(range(10000, 20000))
        small = "x" * 100
        def f(other, number):
            driver_tick()
        f(["y" * 5000], 1)
    """
    resumed_output(tmp_path, source)
    variables = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])["variables"]
    [main] = [row for row in variables["modules"] if row["name"] == "__main__"]
    assert (main["largest"][0]["name"], main["largest"][0]["type"]) == ("big", "list of 10000")
    assert main["bytes"] >= main["largest"][0]["bytes"] > 20000
    [frame] = [row for row in variables["frames"] if row["frame"] == 1]
    assert (frame["largest"][0]["name"], frame["largest"][0]["type"]) == ("other", "list of 1")
    assert frame["largest"][0]["bytes"] > 5000
