"""Open files of every kind, temporary files, mere descriptors."""

import bz2
import codecs
import gzip
import io
import os
import sys
import tarfile
import tempfile
import zipfile
import zlib

from cases import case, main

HERE = sys.argv[1]


def place(name, content=None):
    path = os.path.join(HERE, name)
    if content is not None:
        with open(path, "wb") as out:
            out.write(content)
    return path


@case
def reading():
    path = place("read.txt", "".join(f"line é {n}\r\n" for n in range(2000)).encode())
    text, lines, data, raw = (
        open(path, encoding="utf-8"),
        open(path, newline=""),
        open(path, "rb"),
        open(path, "rb", buffering=0),
    )
    loop = iter(lines)
    update = open(path, "r+b")
    coded = codecs.open(path, encoding="utf-8")
    while True:
        yield (
            text.readline(),
            next(loop),
            data.read(7),
            raw.read(3),
            data.tell(),
            text.name == path,
            update.read(4),
            coded.readline(),
            [f.mode for f in (text, data, raw, update)],
        )


@case
def derived_from_buffers():
    """Members of tar files are of a class derived from BufferedReader; so may be those of the program."""

    class Counted(io.BufferedReader):
        def __init__(self, path):
            super().__init__(open(path, "rb", buffering=0))
            self.lines = 0

        def line(self):
            self.lines += 1
            return self.readline()

    class Marked(io.BufferedWriter):
        __slots__ = ("mark",)

    content = "".join(f"line é {n}\n" for n in range(2000)).encode()
    path = place("plain.txt", content)
    plain, packed = (tarfile.open(place(name), mode) for name, mode in (("a.tar", "w"), ("a.tgz", "w:gz")))
    for archive in (plain, packed):
        archive.add(path, "member.txt")
        archive.close()
    members = [tarfile.open(place(name)).extractfile("member.txt") for name in ("a.tar", "a.tgz")]
    text = io.TextIOWrapper(tarfile.open(place("a.tgz")).extractfile("member.txt"), encoding="utf-8")
    counted, marked = Counted(path), Marked(open(place("marked"), "wb", buffering=0))
    marked.mark = [1]
    while True:
        marked.write(b"abc")
        marked.mark.append(marked.tell())
        yield (
            [each.readline() for each in members],
            text.readline(),
            (counted.line(), counted.lines, type(counted).__name__),
            (marked.mark, os.path.getsize(place("marked"))),
        )


@case
def members_of_zip_files():
    content = {"a": b"".join(b"line %d\n" % n for n in range(3000)), "b": bytes(9), "none": b""}
    with zipfile.ZipFile(place("members.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data, zipfile.ZIP_STORED if name == "b" else None)
    archive = zipfile.ZipFile(place("members.zip"))
    first, again, stored, empty = (archive.open(name) for name in ("a", "a", "b", "none"))
    loop, text = iter(again), io.TextIOWrapper(archive.open("a"), encoding="ascii")
    closed, over = archive.open("b"), archive.open("a")
    closed.close()
    over.read()
    while True:
        yield (
            (first.readline(), first.tell(), first.peek(3)[:3], next(loop), text.readline(), stored.read(2)),
            (empty.read(), over.read(1), over.tell(), closed.closed, first.name, archive.namelist()),
        )


@case
def writing():
    path = place("write.txt")
    text, data, raw = (
        open(path, "w"),
        open(place("write.bin"), "wb"),
        open(place("write.raw"), "wb", buffering=0),
    )
    line, again, both = (
        open(place("line"), "w", buffering=1),
        open(place("again"), "a"),
        open(place("both"), "w+b"),
    )
    exclusive = open(place("exclusive"), "x")
    n = 0
    while True:
        n += 1
        for f in (text, line, again, exclusive):
            print("é", n, file=f)
        for f in (data, raw, both):
            f.write(b"%d;" % n)
        both.seek(0)
        first = both.read(2)
        both.seek(0, 2)
        yield (
            text.tell(),
            data.tell(),
            raw.tell(),
            again.tell(),
            first,
            os.path.getsize(line.name),
            os.path.getsize(raw.name),
        )
        if n == 4:
            for f in (text, data, again, both):
                f.flush()


@case
def updating_in_a_loop():
    path = place("update.txt", b"".join(b"line %d\n" % n for n in range(500)))
    text = open(path, "r+")
    loop = iter(text)
    while True:
        yield next(loop)


@case
def temporary_files():
    unnamed, named, spooled = (
        tempfile.TemporaryFile(),
        tempfile.NamedTemporaryFile("w+", dir=HERE),
        tempfile.SpooledTemporaryFile(20),
    )
    kept = tempfile.NamedTemporaryFile(delete=False, dir=HERE)
    n = 0
    while True:
        n += 1
        for f in (unnamed, kept, spooled):
            f.write(b"%d;" % n)
        named.write(f"{n};")
        named.flush()
        unnamed.seek(0)
        spooled.seek(0)
        yield (
            unnamed.read(),
            os.path.getsize(named.name),
            spooled.read(),
            spooled._rolled,
            kept.tell(),
            os.path.exists(named.name),
            os.path.basename(named.name)[:3],
        )


@case
def temporary_directories():
    directory = tempfile.TemporaryDirectory(dir=HERE)
    path = os.path.join(directory.name, "inside")
    os.mkdir(os.path.join(directory.name, "sub"))
    inside = open(path, "w")
    n = 0
    while True:
        n += 1
        print(n, file=inside, flush=True)
        yield open(path).read(), sorted(os.listdir(directory.name)), directory._finalizer.alive


@case
def mere_descriptors():
    path = place("descriptor", b"0123456789" * 10)
    reading = os.open(path, os.O_RDONLY)
    writing = os.open(place("descriptor.out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    wrapped = os.fdopen(os.open(path, os.O_RDONLY), "rb")
    os.read(reading, 3)
    while True:
        os.write(writing, b"w")
        yield (
            os.read(reading, 2),
            os.fstat(writing).st_size,
            wrapped.read(1),
            os.lseek(reading, 0, os.SEEK_CUR),
        )


@case
def shared_descriptors():
    path = place("shared", b"abcdefghijklmnopqrstuvwxyz")
    base = open(path, "rb", buffering=0)
    second = open(base.fileno(), "rb", buffering=0, closefd=False)
    twice = os.fdopen(os.dup(base.fileno()), "rb", buffering=0)
    while True:
        yield base.read(1), second.read(1), second.fileno() == base.fileno(), twice.closed


@case
def closed_files():
    path = place("closed", b"x")
    with open(path) as text:
        pass
    with open(path, "rb") as data:
        pass
    memory = io.StringIO("x")
    memory.close()
    while True:
        yield text.closed, data.closed, text.name == path, memory.closed, text.mode


@case
def compressed_files():
    path, other = (
        place("z.gz", gzip.compress(b"".join(b"line %d\n" % n for n in range(3000)))),
        place("z.bz2", bz2.compress(b"text\n" * 100)),
    )
    data, text, squeezed = gzip.open(path), gzip.open(path, "rt"), bz2.open(other)
    while True:
        yield data.readline(), text.readline(), squeezed.read(3), data.tell()


@case
def compressed_files_being_written():
    path = place("w.gz", gzip.compress(b"before "))
    data, text, memory = (
        gzip.open(path, "ab"),
        gzip.open(place("w.txt.gz"), "wt", newline="\r\n"),
        io.BytesIO(),
    )
    squeezed = gzip.GzipFile(fileobj=memory, mode="wb")
    n = 0
    while True:
        n += 1
        for f in (data, squeezed):
            f.write(b"%d;" % n)
        print("é", n, file=text)
        data.flush()
        whole = gzip.decompress(gzip.compress(b"before ")) + zlib.decompressobj(31).decompress(
            place_content(path)[len(gzip.compress(b"before ")) :]
        )
        yield whole, data.tell(), squeezed.tell(), text.newlines, squeezed.writable()


def place_content(path):
    with open(path, "rb") as read:
        return read.read()


if __name__ == "__main__":
    main()
