"""Tools of the standard library: argparse, configparser, logging, zlib, bz2, lzma, base64, uuid, datetime, calendar, pprint, sched, tempfile, shelve-free."""

import argparse
import base64
import bz2
import calendar
import configparser
import datetime
import io
import logging
import lzma
import optparse
import os
import pprint
import sched
import shlex
import sys
import tarfile
import tempfile
import types
import uuid
import zipfile
import zlib
from pathlib import Path
from xml.dom import minidom
from xml.etree import ElementTree

work = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s", level=logging.INFO)
log = logging.getLogger("tools")
parser = argparse.ArgumentParser(prog="tool")
parser.add_argument("--level", type=int, choices=range(9), default=3)
parser.add_argument("names", nargs="*")
commands = parser.add_subparsers(dest="command") if False else None
for i in range(60):
    options = parser.parse_args(shlex.split(f"--level {i % 9} 'a b' c{i}"))
log.info("%s", options)
old = optparse.OptionParser()
old.add_option("-n", type="int", action="append")
log.info("%s", vars(old.parse_args(["-n", "3", "-n4", "rest"])[0]))
config = configparser.ConfigParser()
config.read_string("[a]\nx = 1\ny = %(x)s0\n[b]\nlist = 1,\n  2,\n  3\n")
log.info("%s %s", config["a"].getint("y"), config["b"]["list"].split())
data = bytes((i * i) % 251 for i in range(20000))


def pack(data):
    packer, unpacker = zlib.compressobj(6), zlib.decompressobj()
    packed = b"".join(
        [*(packer.compress(data[i : i + 999]) for i in range(0, len(data), 999)), packer.flush()]
    )
    return len(packed), unpacker.decompress(packed) == data


log.info("%d %s", *pack(data))
log.info(
    "%d %d %s",
    len(bz2.compress(data)),
    len(lzma.compress(data, preset=1)),
    base64.b85encode(data[:9]).decode(),
)
with open(work / "lines.txt", "w") as lines:
    for i in range(800):
        print(f"line {i} {uuid.uuid5(uuid.NAMESPACE_URL, str(i))}", file=lines)
with (
    open(work / "lines.txt") as lines,
    zipfile.ZipFile(work / "packed.zip", "w", zipfile.ZIP_DEFLATED) as archive,
):
    for number, line in enumerate(lines):
        if number % 100 == 0:
            archive.writestr(zipfile.ZipInfo(f"part{number}"), line * 20)
with zipfile.ZipFile(work / "packed.zip") as archive:
    log.info("%s", [(info.filename, info.file_size) for info in archive.infolist()][-2:])
stream = io.BytesIO()
with tarfile.open(fileobj=stream, mode="w") as archive:
    info = tarfile.TarInfo("member")
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
log.info("%d", len(stream.getvalue()))
day = datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
for i in range(900):
    day += datetime.timedelta(days=i % 5, seconds=i * 7)
log.info(
    "%s %s %s",
    day.isoformat(),
    day.strftime("%a %j %U"),
    calendar.TextCalendar().formatmonth(2024, 2).split()[-1],
)
pprint.pprint({"nested": [list(range(30)), {"k" * i: i for i in range(8)}]}, width=60, compact=True)
clock = iter(range(10**6))
scheduler = sched.scheduler(lambda: next(clock), lambda delay: None)
for i in range(40):
    scheduler.enter(i * 3 % 17, i % 3, log.debug if i % 10 else log.info, argument=("event %d", i))
scheduler.run()
root = ElementTree.Element("root")
for i in range(200):
    child = ElementTree.SubElement(root, "child", n=str(i))
    child.text = "text" * (i % 3)
text = ElementTree.tostring(root, encoding="unicode")
log.info("%d %s", len(text), [e.get("n") for e in ElementTree.fromstring(text).iterfind("child[@n='7']")])
log.info("%d", len(minidom.parseString(text).toprettyxml()))
module = types.ModuleType("made")
exec("def f(x):\n    return [x, *map(str, range(x))]", module.__dict__)
log.info("%s %s", module.f(3), sorted(os.listdir(work)))
