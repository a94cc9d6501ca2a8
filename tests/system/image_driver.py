"""Runs one program, takes images of it at chosen places, and resumes them: the smallest host of the image
package.

    python -m image_driver run DIR PLACES SCRIPT [ARG…]     images DIR/image-K at the checks in PLACES, a
                                                            JSON list of counts (from the program's
                                                            driver_start() on); refused ones are tried again
    python -m image_driver watch DIR [] SCRIPT [ARG…]       captures the stack at every check, and drops it
    python -m image_driver calls DIR PLACES SCRIPT [ARG…]   the same at calls of the builtin ``driver_tick()``
    python -m image_driver run-files, calls-files …         likewise; DIR/image-K.files: the working directory as it was then
    python -m image_driver resume DIR PLACES IMAGE          goes on from there, and may take images at checks again
    python -m image_driver resume-calls DIR PLACES IMAGE    the same, with images at calls of ``driver_tick()``

Standard output must be a regular file. DIR/log.jsonl has one line per image and failure, and the totals.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import shutil
import stat
import struct
import sys
from pathlib import Path

from ckpt import image
from ckpt.image.frames import _frames
from ckpt.image.interface.registry import libraries


class FileSink:
    def __init__(self, path: str) -> None:
        self.stream = open(path + ".stream", "wb")  # noqa: SIM115
        self.raw = open(path + ".buffers", "wb")  # noqa: SIM115

    def write(self, data) -> None:
        self.stream.write(data)

    def buffer(self, buffer) -> None:
        view = buffer.raw()
        self.raw.write(struct.pack("<Q", view.nbytes))
        self.raw.write(view)

    def close(self) -> None:
        self.stream.close()
        self.raw.close()


class FileSource:
    def __init__(self, path: str) -> None:
        self.path = path

    def stream(self):
        # No descriptor: the program has its numbers again
        return io.BytesIO(Path(self.path + ".stream").read_bytes())

    def buffers(self):
        found, data, at = [], Path(self.path + ".buffers").read_bytes(), 0
        while at < len(data):
            (nbytes,) = struct.unpack_from("<Q", data, at)
            found.append(memoryview(bytearray(data[at + 8 : at + 8 + nbytes])))
            at += 8 + nbytes
        return found


class Driver:
    """Counts places and takes images. In an image only its name is kept: the resumed process has its own."""

    def __init__(self, directory: str, places: list[int], at: str) -> None:
        self.directory = directory
        self.places = sorted(places)
        self.at = at
        self.count = 0
        self.turns = 0
        self.taken = 0
        self.refused: dict[str, int] = {}
        self.is_over = False
        self.keeps_files = False

    def log(self, **line) -> None:
        with open(os.path.join(self.directory, "log.jsonl"), "a") as log:
            log.write(json.dumps(line) + "\n")

    def at_check(self) -> None:
        self.turns += 1
        if self.turns % _TURNS_PER_CHECK == 0:
            self.count += 1
            self.consider("check", Driver.consider.__code__, Driver.at_check.__code__)
        if self.places:
            _frames.request(self.at_check)

    def watch(self) -> None:
        """Capture at every check. The stack is dropped at once: lifetimes are the program's own."""
        self.turns += 1
        if self.turns % _TURNS_PER_CHECK == 0:
            self.count += 1
            try:
                image.capture(at="check")
                self.taken += 1
            except image.Refused as refused:
                self.refused[refused.reason] = self.refused.get(refused.reason, 0) + 1
        if not self.is_over:
            _frames.request(self.watch)

    def at_call(self) -> str:
        if self.at != "calls":
            return "going on"
        self.count += 1
        self.consider("call", Driver.consider.__code__, Driver.at_call.__code__, driver_tick.__code__)
        return "going on"

    def consider(self, at, *skip) -> None:
        if not self.places or self.count < self.places[0]:
            return
        try:
            stack = image.capture(at=at, skip=skip, value="going on")
            if at == "check":  # at a call the programs say what the image must name
                image.refuse_transient(stack)
        except image.Refused as refused:
            self.refused[refused.reason] = self.refused.get(refused.reason, 0) + 1
            return
        self.places = [place for place in self.places if place > self.count]
        path = os.path.join(self.directory, f"image-{self.taken}")
        self.taken += 1
        libraries.before_image()
        libraries.copy_out(is_writing=False, available=lambda: None)
        prepared = image.prepare(stack, {"count": self.count})
        pid = image.fork(prepared.noted)
        if pid == 0:
            self.write(prepared, path)
        os.waitpid(pid, 0)
        if self.keeps_files:
            shutil.copytree(os.getcwd(), path + ".files", ignore=sockets)

    def write(self, prepared, path: str) -> None:
        code = 1
        try:
            sink = FileSink(path)
            report = image.dump(prepared, live={"driver": self}, sink=sink)
            sink.close()
            self.log(image=path, at=self.count, printed=os.fstat(1).st_size, **report.as_dict())
            code = 0
        except BaseException as failure:
            held = bool(getattr(failure, "held_type", 0))
            self.log(failed=f"{type(failure).__name__}: {failure}", held=held, at=self.count)
        finally:
            os._exit(code)


def sockets(directory: str, names: list[str]) -> list[str]:
    """Those of the names that are sockets, which cannot be copied."""
    return [name for name in names if stat.S_ISSOCK(os.lstat(os.path.join(directory, name)).st_mode)]


_TURNS_PER_CHECK = 32  # the interpreter makes that many queued calls at one check
DRIVER: list[Driver] = []


def driver_tick() -> str:
    """Stands for a library call that may take an image; a builtin of the programs."""
    return DRIVER[0].at_call()


def main() -> None:
    verb, directory, places, *rest = sys.argv[1:]
    keeps_files, verb = verb.endswith("-files"), verb.removesuffix("-files")
    driver = Driver(directory, json.loads(places), "calls" if verb.endswith("calls") else "check")
    driver.keeps_files = keeps_files
    if keeps_files:
        os.environ["TMPDIR"] = os.getcwd()
    if verb.startswith("resume"):
        loaded = image.load(FileSource(rest[0]), live={"driver": driver})
        if loaded.left_out:
            driver.log(left_out=loaded.left_out)
        box = [loaded.stack]
        del loaded
        if driver.places and driver.at == "check":
            _frames.request(driver.at_check)
        image.resume(box.pop())
    else:
        builtins.driver_tick = driver_tick
        DRIVER.append(driver)
        image.preload()
        builtins.driver_start = (
            (lambda: _frames.request(driver.watch if verb == "watch" else driver.at_check))
            if verb in ("run", "watch")
            else (lambda: True)
        )
        image.prepare_program(rest)()
    driver.places.clear()
    driver.is_over = True
    driver.log(total=driver.count, taken=driver.taken, refused=driver.refused)
    sys.stdout.flush()


if __name__ == "__main__":
    # as a module of its own name: nothing of the driver shall be in __main__
    import image_driver

    image_driver.main()
    os._exit(0)
