"""What a restart has put back is not written once more while an image is loaded: files keep their times."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from ckpt.image.files import cuts
from ckpt.image.stdlib.mapped import make_map

LONG = bytes(range(256)) * 1024


def _noted(path: Path) -> tuple[int, int]:
    os.utime(path, ns=(1, 1))
    return path.stat().st_mtime_ns, path.stat().st_ctime_ns


def test_a_mapped_file_that_has_its_content_is_not_written(tmp_path: Path) -> None:
    """Its time changed, and a rank that was killed then made it look as if another program had written there."""
    path = tmp_path / "mapped"
    path.write_bytes(LONG)
    before = _noted(path)
    made = make_map(str(path), len(LONG), 0, mmap.ACCESS_WRITE, LONG, 0)
    made.flush()
    assert (path.stat().st_mtime_ns, path.stat().st_ctime_ns) == before
    made.close()
    path.write_bytes(LONG[:-1] + b"?")
    made = make_map(str(path), len(LONG), 0, mmap.ACCESS_WRITE, LONG, 7)
    made.flush()
    assert path.read_bytes() == LONG and made.tell() == 7
    made.close()


def test_a_file_that_is_another_one_by_then_is_written_only_if_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text, expected in (("same", True), ("sam", False), ("same and more", False)):
        path.write_text(text)
        before = _noted(path)
        fd = os.open(path, os.O_WRONLY)
        try:
            cuts.put_back(fd, b"same")
            cuts.make_changes()
        finally:
            os.close(fd)
        assert path.read_text() == "same"
        assert ((path.stat().st_mtime_ns, path.stat().st_ctime_ns) == before) is expected
