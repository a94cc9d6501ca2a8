"""Files that are compressed while they are written, in every way the standard library has, and compressors by themselves."""

import bz2
import gzip
import io
import lzma
import os
import sys
import tarfile
import zipfile
import zlib

LINES = 120


def line(number):
    return f"number {number} {'é' * (number % 5)} {number * number * 7919 % 1000003}\n" * (1 + number % 3)


def data(number):
    return line(number).encode()


class Kept(io.RawIOBase):
    """A raw file of the program's own."""

    def __init__(self):
        self.parts = []

    def writable(self):
        return True

    def write(self, part):
        self.parts.append(bytes(part))
        return len(part)


class Squeezed:
    """What a compressor of the program's own gives out."""

    def __init__(self, *arguments, **options):
        self.packer, self.parts = zlib.compressobj(*arguments, **options), []

    def add(self, number):
        self.parts.append(self.packer.compress(data(number)))

    def end(self):
        return b"".join([*self.parts, self.packer.flush()])


driver_start()
os.chdir(sys.argv[1])
with open("before.gz", "wb") as before:
    before.write(gzip.compress(b"before\n"))
closed = gzip.open("before.gz")
closed.read()
closed.close()
grown = open(
    "added.gz", "wb"
)  # by one file object: before it is there, nobody cuts what the first run has added
grown.write(gzip.compress(b"before\n"))
memory = io.BytesIO()
plain, text, added = (
    gzip.open("plain.gz", "wb"),
    gzip.open("text.gz", "wt", encoding="utf-8"),
    gzip.GzipFile(fileobj=grown, mode="ab"),
)
wide = gzip.open("wide.gz", "wt", encoding="utf-16", newline="\r\n")
quick, stored = gzip.GzipFile(fileobj=memory, mode="wb", compresslevel=1), gzip.open("stored.gz", "wb", 0)
burrows, burrows_text = bz2.open("data.bz2", "wb", 1), bz2.open("text.bz2", "wt", encoding="utf-8")
markov = lzma.open("data.xz", "wb", preset=0, check=lzma.CHECK_CRC32)
archive = zipfile.ZipFile("members.zip", "w", zipfile.ZIP_DEFLATED)
member = archive.open("member", "w")
kept = Kept()
own = io.TextIOWrapper(io.BufferedWriter(kept, 700), encoding="utf-8")
squeezed = {
    "zlib": Squeezed(),
    "gzip": Squeezed(4, wbits=31),
    "raw": Squeezed(9, wbits=-15, memLevel=9),
    "small": Squeezed(6, wbits=9),
    "coded": Squeezed(6, strategy=zlib.Z_HUFFMAN_ONLY),
}
half, halves = zlib.compressobj(1), []
for number in range(LINES):
    for file in (plain, added, quick, stored, burrows, markov, member):
        file.write(data(number))
    for file in (text, wide, burrows_text, own):
        print(line(number), end="", file=file)
    for packer in squeezed.values():
        packer.add(number)
    halves.append(half.compress(data(number)))
    if number == 40:
        plain.flush()
        text.flush()
        halves.append(half.flush(zlib.Z_SYNC_FLUSH))
        twin, twins = half.copy(), list(halves)
twins.append(twin.flush())
halves.append(half.flush())
whole, part = b"".join(map(data, range(LINES))), b"".join(map(data, range(41)))
for file in (plain, text, added, wide, quick, stored, burrows, burrows_text, markov, member, grown, own):
    if file is own:
        file.flush()
    else:
        file.close()
archive.close()


def same(read, expected):
    return read == expected or (len(read), len(expected))


for name, expected in (("plain", whole), ("text", whole), ("added", b"before\n" + whole), ("stored", whole)):
    print(name, same(gzip.open(f"{name}.gz").read(), expected))
print("wide", same(gzip.open("wide.gz").read(), whole.decode().replace("\n", "\r\n").encode("utf-16")))
print("quick", same(gzip.decompress(memory.getvalue()), whole))
print("bz2", same(bz2.open("data.bz2").read(), whole), same(bz2.open("text.bz2").read(), whole))
print("xz", same(lzma.open("data.xz").read(), whole))
print(
    "zip",
    zipfile.ZipFile("members.zip").testzip(),
    same(zipfile.ZipFile("members.zip").read("member"), whole),
)
print("own", same(b"".join(kept.parts), whole), closed.closed)
for name, wbits in (("zlib", 15), ("gzip", 31), ("raw", -15), ("small", 9), ("coded", 15)):
    print(name, same(zlib.decompress(squeezed[name].end(), wbits), whole))
print("halves", same(zlib.decompress(b"".join(halves)), whole), same(zlib.decompress(b"".join(twins)), part))
with tarfile.open("tree.tgz", "w:gz") as tree, tarfile.open("stream.tgz", "w|gz") as stream:
    for number in range(0, LINES, 10):
        for each in (tree, stream):
            info = tarfile.TarInfo(f"member{number}")
            info.size = len(data(number))
            each.addfile(info, io.BytesIO(data(number)))
for name in ("tree.tgz", "stream.tgz"):
    unpacked = gzip.open(name).read()
    print(name, len(unpacked), all(data(number) in unpacked for number in range(0, LINES, 10)))
